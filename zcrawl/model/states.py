"""The states of requests, runs, nodes and results: the enums that every part shares.

docs/glossary.md explains the words.
"""

from __future__ import annotations

import enum


class RequestState(enum.IntEnum):
    """The state of a URL within a run, as stored. Leases live in the leader's memory only."""

    QUEUED = 0  # admitted, not final; may be leased, or delayed until its due time
    DONE = 1  # answered with 2xx, page and items committed
    DEAD = 2  # failed for good, with its reason
    SKIPPED = 3  # will not be fetched, with its reason


class Kept(enum.IntEnum):
    """The kind of a row in the table of items. All kinds share one sequence, in commit order."""

    ITEM = 0
    REJECTED = 1  # an item that broke its schema or lacks a required field, with the reason
    PROBLEM = 2  # the report of an item that was kept although fields of it failed
    CAPTURE = 3  # an exchange, for archives


class RunState(enum.StrEnum):
    """The state of one execution of a job."""

    RUNNING = "running"
    PAUSED = "paused"  # nothing is dispatched; results in flight are committed
    COMPLETED = "completed"  # no pending request is left
    CANCELLED = "cancelled"  # ended by a person; results in flight are dropped
    DELETED = "deleted"  # ended, and its rows are being removed

    @property
    def ended(self) -> bool:
        return self in (RunState.COMPLETED, RunState.CANCELLED, RunState.DELETED)


class NodeState(enum.StrEnum):
    """The state of a worker as the leader sees it."""

    JOINING = "joining"  # said HELLO, not yet heard a heartbeat
    IDLE = "idle"  # alive, holds no lease
    BUSY = "busy"  # alive, holds leases
    SUSPECT = "suspect"  # silent for 3 heartbeat intervals, or it does not hear: no new work
    LOST = "lost"  # silent or deaf for 10 intervals: its work goes to other workers
    DRAINING = "draining"  # finishes what it has, gets nothing new
    DRAINED = "drained"  # a person drained it and it has finished; `undrain` takes it back
    OFFLINE = "offline"  # said BYE


class Disposition(enum.IntEnum):
    """The outcome of one result, as an ACK reports it."""

    APPLIED = 0  # committed: its links are known to the store
    DUPLICATE = 1  # its request was final already, nothing changed
    DROPPED = 2  # run ended, or a newer attempt is known, nothing changed


class Outcome(enum.IntEnum):
    """How an attempt ended, as the worker saw it."""

    DONE = 0
    FAILED = 1
    SKIPPED = 2
    PART = 3  # a chunk of links; the page itself follows in a later result
