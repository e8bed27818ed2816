"""Which page has which table."""

from __future__ import annotations

from typing import Final

from console.columns_found import ERRORS, FAILED, ITEMS, LOG
from console.columns_queues import HOST_QUEUES, LANES, QUEUES, TAG_QUEUES
from console.columns_work import HOSTS, JOBS, NODES
from console.state import Page
from console.tables import Table

TABLES: Final[dict[Page, Table]] = {
    Page.NODES: NODES,
    Page.JOBS: JOBS,
    Page.QUEUES: QUEUES,
    Page.TAG_QUEUES: TAG_QUEUES,
    Page.HOST_QUEUES: HOST_QUEUES,
    Page.LANES: LANES,
    Page.HOSTS: HOSTS,
    Page.ERRORS: ERRORS,
    Page.FAILED: FAILED,
    Page.ITEMS: ITEMS,
    Page.LOG: LOG,
}
