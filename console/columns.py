"""Which page has which table."""

from __future__ import annotations

from typing import Final

from console.columns_found import ERRORS, FAILED, ITEMS, LOG
from console.columns_work import HOSTS, JOBS, LANES, NODES, QUEUES
from console.state import Page
from console.tables import Table

TABLES: Final[dict[Page, Table]] = {
    Page.NODES: NODES,
    Page.JOBS: JOBS,
    Page.QUEUES: QUEUES,
    Page.LANES: LANES,
    Page.HOSTS: HOSTS,
    Page.ERRORS: ERRORS,
    Page.FAILED: FAILED,
    Page.ITEMS: ITEMS,
    Page.LOG: LOG,
}
