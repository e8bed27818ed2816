"""Rows of the store as the leader's memory holds them. No behaviour but their order and kind."""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.model.host import Manner
from zcrawl.model.process_name import ProcessName
from zcrawl.model.sitemap_request import SITEMAP_PRIO, has_sitemap_prio
from zcrawl.model.states import JobState, RunCause, RunState

# The host of requests that go to no host: tasks with an id instead of a URL, and starts of spiders.
# They have no owner and no pace, and there is no row of this id in the table of hosts.
NO_HOST: Final = 0


class NewLink(msgspec.Struct, frozen=True):
    """A URL that may be new to a run. The store finds out, and gives it its seq if it is."""

    url: str
    key: bytes
    origin: str  # empty: it goes to no host (NO_HOST)
    depth: int
    prio: int = 0
    block: str = ""  # the extraction block that it goes to
    extra: bytes = b""  # of a spider's request: frontier.extra
    skip: str = ""  # reason if the link is admitted as skipped

    @property
    def is_sitemap(self) -> bool:
        return has_sitemap_prio(self.prio)

    def as_sitemap(self) -> NewLink:
        """Return the same URL as a sitemap, which is read first and is not a page."""
        return msgspec.structs.replace(self, prio=SITEMAP_PRIO)


class StoredRobots(msgspec.Struct, frozen=True):
    """A host's robots.txt, as answered, for all workers and the next leader."""

    status: int
    body: bytes  # compressed
    until: float  # UTC


class QueuedRow(msgspec.Struct, frozen=True):
    """A queued request as the frontier's window holds it."""

    run: int
    host: int
    prio: int
    depth: int
    seq: int
    url: str
    attempts: int = 0  # attempts that were made and failed
    crashes: int = 0  # crashes with this request alone
    due_at: float = 0.0  # UTC; 0: at once
    parent: str | None = None  # the parent's URL
    block: str = ""
    extra: bytes = b""
    known: bytes = b""  # what an earlier run stored about the page: frontier.recrawl

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.prio, self.depth, self.seq)


class RunCounters(msgspec.Struct, frozen=True):
    """`admitted = pending + done + failed + skipped`, always (G2)."""

    admitted: int = 0
    pending: int = 0
    done: int = 0  # answered with 2xx: pages
    failed: int = 0
    skipped: int = 0
    items: int = 0
    bytes: int = 0
    unchanged: int = 0  # of `done`: pages that are as an earlier run has found them


class RunRow(msgspec.Struct, frozen=True):
    id: int
    job: int
    name: str  # the job's name
    state: RunState
    reason: str  # why it ended or is paused
    spec: bytes  # JSON of JobSpec, as of the run's start
    seed_hosts: tuple[str, ...]  # netlocs that the default scope allows
    seeding: bool  # its submitter still sends seeds: it cannot complete
    counters: RunCounters
    created_at: float
    started_at: float
    ended_at: float  # 0: not ended
    cookies: bytes = b""  # see store.rules.merge_cookies
    # Of a job that remembers its pages: those up to this id are admitted. None: no more are to be.
    recall: int | None = None
    canonical: int = 1  # version of the canonical form by which its keys are made
    recalled: bool = False  # all pages of earlier runs are admitted
    idle_s: float = 0.0  # between an end and the retry that reopened it
    unfetched: int = 0  # requests that were not final when it ended
    version: int = 1  # of the job's spec
    cause: RunCause = RunCause.SUBMITTED
    due_at: float | None = None  # UTC, without jitter; None: nothing was scheduled
    params: bytes = b""  # JSON; the values that its spec was filled with
    chain: int = 0  # the run that began the chain of dependencies; 0: this one
    missing: int = 0  # of the failed requests: answered with 404 or 410
    feed_run: int = 0  # the run whose items are its seeds; 0: none
    feed_at: int | None = None  # items up to this id are admitted; None: nothing is left


class JobVersion(msgspec.Struct, frozen=True):
    """One version of a job's spec."""

    version: int
    spec: bytes
    created_at: float
    author: str  # who asked for it


class HeldSubmission(msgspec.Struct, frozen=True):
    """A submission that waits until no run of its job is alive, and what its run begins with."""

    run: int  # the number that its run will have
    at: float  # UTC
    by: str = ""  # who asked for it
    seeds: tuple[str, ...] = ()  # empty: those of the job
    params: bytes = b""  # JSON
    output: tuple[str, str] | None = None  # (path, format)


class DefinitionRow(msgspec.Struct, frozen=True):
    """A job without its runs."""

    id: int
    name: str
    spec: bytes
    created_at: float
    state: JobState = JobState.ACTIVE
    version: int = 1
    owner: str = ""  # who submitted it first
    updated_at: float = 0.0
    schedule_from: float = 0.0  # UTC; due times and parents count from here on; 0: no [schedule]
    due_done: float = 0.0  # all due times up to it are dealt with
    due_held: float | None = None  # a due time that waits until no run of the job is alive
    due_note: str = ""  # why the last due time started no run, for people
    held: HeldSubmission | None = None

    @property
    def holds(self) -> bool:
        """Whether a start waits for the end of a live run."""
        return self.due_held is not None or self.held is not None


class HostRow(msgspec.Struct, frozen=True):
    id: int
    origin: str
    owners: tuple[ProcessName, ...]  # workers that may start requests; empty: free
    next_at: float  # UTC
    crawl_delay_s: float
    manner: Manner = Manner()
    robots: StoredRobots | None = None
    address: str = ""  # that it was found at, if a job limits addresses


class KnownRow(msgspec.Struct, frozen=True):
    """A page that earlier runs of a job have fetched."""

    id: int
    url: str
    key: bytes
    origin: str
    depth: int
    block: str = ""
    extra: bytes = b""


class LaneCount(msgspec.Struct, frozen=True):
    run: int
    host: int
    queued: int


class LaneWant(msgspec.Struct, frozen=True):
    run: int
    host: int
    after: tuple[int, int, int] | None  # rows that sort after this (prio, depth, seq)
    limit: int


class Refilled(msgspec.Struct, frozen=True):
    """The next rows of each requested lane in order, and whether the lane ends there."""

    lanes: list[tuple[LaneWant, list[QueuedRow], bool]]
