"""Compute the change that one result makes in the database.

Pure planning (rule `plan, then commit`): nothing in memory changes here; the leader changes its
state when the store answers `Applied`. Called once for each result and batch.

**Chains.** Redirects to other hosts and canonical links lead to a new request without a page. Each
step is a request of its own at the same depth, and does not count as a page. Two servers that
redirect to each other with ever new URLs could keep a run going forever. A worker sees only one
step, so the leader counts them. The count is lost with the leader; the next one starts at zero.

**Extraction.** Rejected items, counts and examples become rows and tallies of the change. They come
from a worker, so their sizes are limited here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.runs import ActiveRun, Runs
from zcrawl.errors import BadUrl, ParseError, RetryClass
from zcrawl.frontier.extra import (
    REDIRECT,
    decode,
    encode,
    is_key_of,
    request_key,
)
from zcrawl.frontier.retry import Retry, decide
from zcrawl.frontier.seen import SeenTable
from zcrawl.frontier.url import canonicalize, origin_of
from zcrawl.mesh.messages import BadBody, ExtractionReport, Result
from zcrawl.model.host import RobotsFile
from zcrawl.model.reasons.failure import BAD_RESULT, TOO_MANY_REDIRECTS
from zcrawl.model.reasons.skip import CANONICAL, REDIRECTED, START
from zcrawl.model.rows import NewLink, StoredRobots
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import Kept, Outcome, RequestState
from zcrawl.result.receive import Received
from zcrawl.store.commands import Change
from zcrawl.store.rules import MOST_DETAIL

MOST_CANONICAL: Final = 10  # steps of that kind
_MOST_REMEMBERED: Final = 50_000


class Chains:
    def __init__(self) -> None:
        self._steps: dict[tuple[int, str], int] = {}  # (run, URL) → steps that led there

    def follow(self, run: int, url: str, target: str) -> int:
        """Count the steps that lead to `target` over `url`; a repeated call returns the same."""
        steps = self._steps.get((run, url), 0) + 1
        if len(self._steps) >= _MOST_REMEMBERED:
            # Forget the older half: most of their targets were fetched long ago.
            self._steps = dict(list(self._steps.items())[_MOST_REMEMBERED // 2 :])
        self._steps[(run, target)] = steps
        return steps


MOST_ROWS: Final = 10_001  # the most items of a page, and a row that says so
MOST_FIELDS: Final = 500  # as many as a block can have
MOST_REASONS: Final = 50
MOST_NAME: Final = 200  # characters
MOST_COUNT: Final = 1_000_000
_KINDS: Final = ("filled", "empty", "unread")


def others_of(extracted: ExtractionReport | None) -> tuple[tuple[Kept, bytes], ...]:
    if extracted is None:
        return ()
    rows = [(Kept.REJECTED, data) for data in extracted.rejected[:MOST_ROWS]]
    rows += [(Kept.PROBLEM, data) for data in extracted.problems[:MOST_ROWS]]
    if extracted.capture is not None:
        rows.append((Kept.CAPTURE, extracted.capture))
    return tuple(rows)


def _failure_of(extracted: ExtractionReport | None) -> tuple[tuple[Kept, bytes], ...]:
    """Return the result of a task that failed for good. It is not an item of any output."""
    if extracted is None or extracted.failure is None:
        return ()
    return ((Kept.FAILURE, extracted.failure),)


def tallies_of(extracted: ExtractionReport | None) -> tuple[tuple[str, str, int], ...]:
    """Return (kind, name, count) of filled, empty and unreadable fields and of rejected items."""
    if extracted is None:
        return ()
    tallies = [
        (kind, name[:MOST_NAME], min(count, MOST_COUNT))
        for name, counts in list(extracted.fields.items())[:MOST_FIELDS]
        for kind, count in zip(_KINDS, counts, strict=True)
        if count
    ]
    tallies += [
        ("rejected", reason[:MOST_NAME], min(count, MOST_COUNT))
        for reason, count in list(extracted.reasons.items())[:MOST_REASONS]
    ]
    return tuple(tallies)


def examples_of(extracted: ExtractionReport | None) -> tuple[tuple[str, str], ...]:
    """Return (reason, description of the first item) for each reason of `tallies_of`."""
    if extracted is None or not extracted.reasons:
        return ()
    return tuple(
        (reason[:MOST_NAME], extracted.examples.get(reason, "")[:MOST_DETAIL])
        for reason in list(extracted.reasons)[:MOST_REASONS]
    )


SAMPLE_EVERY = 64  # one link in this many is canonicalised and hashed again
MOST_REASON = 100
MOST_KINDS = 10  # of reasons why links of one page are left out
MOST_REJECTED = 1_000_000
MOST_PRIO = 1_000


class ResultPlanner:
    def __init__(
        self,
        leases: Leases,
        runs: Runs,
        seen: SeenTable,
        is_lost: Callable[[int, int], bool] = lambda lease_epoch, seq: False,
    ) -> None:
        """`is_lost`: whether the number belongs to another row now (`LeaderState.is_lost`)."""
        self._leases, self._runs, self._seen = leases, runs, seen
        self._is_lost = is_lost
        self._chains = Chains()
        self._links_until_sample = SAMPLE_EVERY
        self.bad_samples = 0

    def plan(self, received: Received, clock_offset: float, now: float) -> Change:
        if isinstance(received.result, BadBody):
            return self.bury(received)
        result = received.result
        active = self._runs.get(result.run)
        lease = self._leases.by_seq.get(result.seq)
        newer = lease is not None and lease.token > (result.lease_epoch, result.lease_n)
        if active is None or newer or self._is_lost(result.lease_epoch, result.seq):
            return self._change(received, result, None, dropped=True)
        links = self._links(result, active)
        if links is None or not _is_true_target(result, active):
            self.bad_samples += 1
            return self.bury(received)
        if lease is not None and links and result.reason in (REDIRECTED, CANONICAL):
            links = self._bounded_chain(result, lease.row.url, links, active)
        return self._outcome(received, result, active, links, clock_offset, now)

    def bury(self, received: Received) -> Change:
        """Consume a result that cannot be used: its request ends dead (rule `bad results`)."""
        lease = self._leases.by_seq.get(received.seq)
        run, host = received.promised
        if isinstance(received.result, Result):
            run, host = received.result.run, received.result.host
        elif lease is not None:
            run, host = lease.row.run, lease.row.host
        worker, incarnation = received.stream
        dead = RequestState.DEAD
        return Change(
            *(worker, incarnation, received.number, received.seq, run, dead),
            reason=BAD_RESULT,
            host=host,
            detail=f"worker {worker} sent a result that cannot be used"[:MOST_DETAIL],
        )

    def _outcome(
        self,
        received: Received,
        result: Result,
        active: ActiveRun,
        links: list[NewLink],
        clock_offset: float,
        now: float,
    ) -> Change:
        utc = now + clock_offset
        change = self._change(received, result, None)
        if result.outcome is Outcome.PART:
            return msgspec.structs.replace(
                change, links=tuple(links), seed_hosts=vouched_hosts(result, active.spec)
            )
        change = msgspec.structs.replace(
            change,
            reason=result.reason[:MOST_REASON],
            status=result.status,
            host_next_at=utc + result.host_next_in_s if result.host_next_in_s > 0 else 0.0,
            crawl_delay_s=result.crawl_delay_s,
            cookies=result.cookies,
            manner=result.manner,
            robots=_stored_robots(result.robots, utc),
            address=result.address,
        )
        if result.outcome is Outcome.FAILED:
            return self._failure(change, result, active, utc)
        done = result.outcome is Outcome.DONE
        return msgspec.structs.replace(
            change,
            state=RequestState.DONE if done else RequestState.SKIPPED,
            page=result.page if done else None,
            items=tuple(result.items) if done else (),
            others=others_of(result.extracted),  # of a redirect, too: archives want it
            tallies=tallies_of(result.extracted) if done else (),
            traits=result.traits if done else None,
            detail="" if done else result.detail[:MOST_DETAIL],
            examples=examples_of(result.extracted) if done else (),
            links=tuple(links),
            rejected=_counts(result.rejected),
            links_dropped=_counts(result.dropped),
            final=_final(result, active) if done else None,
            attempts=result.attempt,
            seed_hosts=vouched_hosts(result, active.spec),
        )

    def _failure(self, change: Change, result: Result, active: ActiveRun, utc: float) -> Change:
        retry = result.retry or RetryClass.PERMANENT
        # The jitter must be the same when the batch is planned again: it derives from the row.
        jitter = (result.seq * 2654435761 + result.attempt * 40503) % 1024 / 1024
        spec = active.spec
        verdict = decide(
            *(result.attempt, spec.fetch.retries, retry, result.retry_after_s, jitter),
            backoff_s=spec.retry.backoff,
            most_s=spec.retry.max_delay,
        )
        if isinstance(verdict, Retry):
            counted = retry is not RetryClass.POSTPONED
            return msgspec.structs.replace(
                change,
                state=RequestState.QUEUED,
                attempts=result.attempt if counted else result.attempt - 1,
                due_at=utc + verdict.delay_s,
            )
        return msgspec.structs.replace(
            change,
            state=RequestState.DEAD,
            attempts=result.attempt,
            # The last answer; earlier ones were not the end.
            others=others_of(result.extracted) + _failure_of(result.extracted),
            detail=result.detail[:MOST_DETAIL],
        )

    def _links(self, result: Result, active: ActiveRun) -> list[NewLink] | None:
        """Return links that may be new; None if a sample shows that the worker lies."""
        links = []
        blocks = {key: block for block, keys in result.blocks for key in keys}
        run, seen, paging = result.run, self._seen, frozenset(result.paging)
        prios = result.prios if len(result.prios) == len(result.links) else None
        for at, (url, key) in enumerate(result.links):
            if (run, key) in seen:
                continue
            if self._sample_is_due() and not _is_true(url, key, b"", active):
                return None
            prio = 0 if prios is None else _bounded_prio(prios[at])
            block = blocks.get(key, "") if blocks else ""
            depth = result.depth if key in paging else result.depth + 1
            links.append(NewLink(url, key, origin_of(url), depth, prio, block=block))
        for url, key, reason in result.trapped:
            if (run, key) not in seen:
                depth, why = result.depth + 1, reason[:MOST_REASON]
                links.append(NewLink(url, key, origin_of(url), depth, skip=why or BAD_RESULT))
        extra = _mark(result, active)
        for url, key in result.sitemaps:
            if (run, key) not in seen:
                block, depth = blocks.get(key, ""), result.depth
                link = NewLink(url, key, origin_of(url), depth, block=block, extra=extra)
                links.append(link.as_sitemap())
        if result.handover is not None and (run, result.handover[1]) not in seen:
            url, key = result.handover
            block = blocks.get(key, "")
            links.append(NewLink(url, key, origin_of(url), result.depth, block=block, extra=extra))
        return (
            links
            if not result.requests or self._add_spider_requests(result, active, links)
            else None
        )

    def _bounded_chain(
        self, result: Result, url: str, links: list[NewLink], active: ActiveRun
    ) -> list[NewLink]:
        """Drop targets that are too many steps away from a page."""
        most = active.spec.fetch.max_redirects if result.reason == REDIRECTED else MOST_CANONICAL
        chains, run = self._chains, result.run
        return [
            link
            if link.skip or chains.follow(run, url, link.url) <= most
            else msgspec.structs.replace(link, skip=TOO_MANY_REDIRECTS)
            for link in links
        ]

    def _add_spider_requests(self, result: Result, active: ActiveRun, links: list[NewLink]) -> bool:
        """Add the requests of a spider; return False if a sample shows that the worker lies."""
        # Requests of `start` are seeds; a redirect stays at its depth.
        depth = result.depth + (result.reason not in (START, REDIRECTED))
        for url, key, prio, extra in result.requests:
            if (result.run, key) in self._seen:
                continue
            if self._sample_is_due() and not _is_true(
                url, key, extra, active, redirected=result.reason == REDIRECTED
            ):
                return False
            links.append(NewLink(url, key, origin_of(url), depth, _bounded_prio(prio), extra=extra))
        return True

    def _sample_is_due(self) -> bool:
        self._links_until_sample -= 1
        if self._links_until_sample > 0:
            return False
        self._links_until_sample = SAMPLE_EVERY
        return True

    def _change(
        self, received: Received, result: Result, state: RequestState | None, dropped: bool = False
    ) -> Change:
        worker, incarnation = received.stream
        return Change(
            worker,
            incarnation,
            received.number,
            result.seq,
            result.run,
            state,
            dropped=dropped,
            host=result.host,
        )


def _counts(counts: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Return (reason, count) with limited size, because a worker sent them."""
    return tuple(
        (reason[:MOST_REASON], min(count, MOST_REJECTED))
        for reason, count in list(counts.items())[:MOST_KINDS]
    )


def _mark(result: Result, active: ActiveRun) -> bytes:
    """Return the note that a redirect's target must not get the secrets of the job."""
    redirected = result.reason == REDIRECTED and b"${" in active.row.spec
    return encode(REDIRECT) if redirected else b""


def _stored_robots(file: RobotsFile | None, utc: float) -> StoredRobots | None:
    return None if file is None else StoredRobots(file.status, file.body, utc + file.lasts_s)


def _bounded_prio(prio: int) -> int:
    """Limit a worker's priority to the column's range, below that of sitemaps."""
    return max(-MOST_PRIO, min(MOST_PRIO, prio))


def _is_true(
    url: str, key: bytes, extra: bytes, active: ActiveRun, redirected: bool = False
) -> bool:
    """Return whether a worker sent the right canonical URL and key under the run's rules."""
    try:
        rules = active.rules
        if not rules.are_known:
            return True  # unknown rules: this master cannot check, and the run waits anyway
        if canonicalize(url, rules) != url:
            return False
        if redirected:
            return is_key_of(key, url, decode(extra), rules)
        return request_key(url, decode(extra), rules) == key
    except (BadUrl, ParseError):
        return False


def _is_true_target(result: Result, active: ActiveRun) -> bool:
    """Return whether a worker sent the right key of the page that answered."""
    target = result.redirected_to
    return target is None or _is_true(*target, b"", active)


def _final(result: Result, active: ActiveRun) -> NewLink | None:
    """Return the page that answered after a redirect, if the job counts it once."""
    if result.redirected_to is None or not active.spec.scope.collapse_redirects:
        return None
    url, key = result.redirected_to
    return NewLink(url, key, origin_of(url), result.depth)


def vouched_hosts(result: Result, spec: JobSpec) -> tuple[str, ...]:
    """Return hosts that the result adds to the default scope: targets of seeds."""
    if result.depth > 0 or spec.scope.hosts:
        return ()
    if result.reason in (START, REDIRECTED) and result.requests:
        return tuple(sorted({_netloc(url) for url, *_ in result.requests}))
    return () if result.handover is None else (_netloc(result.handover[0]),)


def _netloc(url: str) -> str:
    return origin_of(url).partition("://")[2]
