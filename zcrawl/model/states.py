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
    FAILURE = 4  # the result of a task that failed for good, in the form of its item


class RunState(enum.StrEnum):
    """The state of one execution of a job: pending → running ⇄ paused → one of the others."""

    PENDING = "pending"  # stored; no worker has accepted an assignment of it yet
    RUNNING = "running"
    PAUSED = "paused"  # nothing is dispatched; results in flight are committed
    COMPLETED = "completed"  # no pending request is left
    FAILED = "failed"  # ended, and its reason says why it is worth nothing (store.rules.verdict)
    CANCELLED = "cancelled"  # ended by a person; results in flight are dropped
    DELETED = "deleted"  # ended, and its rows are being removed

    @property
    def ended(self) -> bool:
        return self not in (RunState.PENDING, RunState.RUNNING, RunState.PAUSED)


class JobState(enum.StrEnum):
    """The state of a job, which is a definition and lives without a run."""

    ACTIVE = "active"
    PAUSED = "paused"  # its schedule starts nothing; runs are not affected
    ARCHIVED = "archived"  # hidden, and its schedule starts nothing
    DELETED = "deleted"  # its name is free; the row stays until its runs are removed


class RunCause(enum.StrEnum):
    """Why a run was started."""

    SUBMITTED = "submitted"  # by a client
    CRON = "cron"  # its due time came, by any key of [schedule]
    DEPENDENCY = "dependency"  # runs of the jobs that it waits for ended
    RETRY = "retry"  # a person started a failed run anew
    CATCH_UP = "catch-up"  # a due time that passed while nobody led


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
