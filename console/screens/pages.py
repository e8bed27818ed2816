"""Which page has which screen: a mode of the app each."""

from __future__ import annotations

from typing import Final

from console.screens.charts import ChartsScreen
from console.screens.details import HostScreen, ItemScreen, JobScreen, LineScreen, NodeScreen
from console.screens.overview import OverviewScreen
from console.screens.page import PageScreen
from console.screens.tables import (
    ErrorsScreen,
    FailedScreen,
    HostQueuesScreen,
    HostsScreen,
    ItemsScreen,
    JobsScreen,
    LanesScreen,
    LogScreen,
    NodesScreen,
    QueuesScreen,
    TagQueuesScreen,
)
from console.state import ConsolePage

SCREENS: Final[tuple[type[PageScreen], ...]] = (
    OverviewScreen,
    NodesScreen,
    JobsScreen,
    QueuesScreen,
    HostsScreen,
    ErrorsScreen,
    ItemsScreen,
    LogScreen,
    ChartsScreen,
    NodeScreen,
    JobScreen,
    TagQueuesScreen,
    HostQueuesScreen,
    LanesScreen,
    HostScreen,
    FailedScreen,
    ItemScreen,
    LineScreen,
)
MODES: Final[dict[ConsolePage, type[PageScreen]]] = {screen.PAGE: screen for screen in SCREENS}
