"""Which page has which table."""

from __future__ import annotations

from typing import Final

from console.columns.outcomes import ERRORS, FAILED, ITEMS, LOG
from console.columns.queues import HOST_QUEUES, LANES, QUEUES, TAG_QUEUES
from console.columns.work import HOSTS, JOBS, NODES
from console.state import ConsolePage
from console.tables import Table

TABLES: Final[dict[ConsolePage, Table]] = {
    ConsolePage.NODES: NODES,
    ConsolePage.JOBS: JOBS,
    ConsolePage.QUEUES: QUEUES,
    ConsolePage.TAG_QUEUES: TAG_QUEUES,
    ConsolePage.HOST_QUEUES: HOST_QUEUES,
    ConsolePage.LANES: LANES,
    ConsolePage.HOSTS: HOSTS,
    ConsolePage.ERRORS: ERRORS,
    ConsolePage.FAILED: FAILED,
    ConsolePage.ITEMS: ITEMS,
    ConsolePage.LOG: LOG,
}
