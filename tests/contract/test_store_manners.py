"""What every store keeps of hosts beyond their pace, and links that are admitted as skipped."""

from __future__ import annotations

import msgspec

from tests.contract.store_world import DONE, QUEUED, SKIPPED, A, B, C, World, key_of, link
from zcrawl.model.host import Manner
from zcrawl.model.rows import LaneCount, NewLink, StoredRobots

RULES = StoredRobots(200, b"compressed", 4_000.0)


def test_a_hosts_manner_and_robots_txt_survive(world: World) -> None:
    """They come with a result, also with one that failed, and a next leader loads them."""
    job = world.submit(A, B)
    first, second = job.admitted
    world.finish(first, QUEUED, manner=Manner(2.5, 3, 1), robots=RULES, reason="http_503")
    (host,) = world.reload().hosts
    assert (host.manner, host.robots) == (Manner(2.5, 3, 1), RULES)
    newer = msgspec.structs.replace(RULES, body=b"other", until=9_000.0)
    world.finish(second, DONE, robots=newer)
    (host,) = world.reload().hosts
    assert (host.manner, host.robots) == (Manner(2.5, 3, 1), newer)


def test_a_hosts_address_survives(world: World) -> None:
    """The newest that a worker found; a result that names none changes nothing."""
    job = world.submit(A, B, C)
    first, second, third = job.admitted
    world.finish(first, QUEUED, address="192.0.2.1", reason="address_moved")
    world.finish(second, QUEUED, address="2001:db8::1", reason="address_moved")
    world.finish(third, DONE)
    (host,) = world.reload().hosts
    assert host.address == "2001:db8::1"


def test_a_trapped_link_is_admitted_as_skipped(world: World) -> None:
    """It counts, has its reason, is never queued, and a second one of its key changes nothing."""
    job = world.submit(A, B)
    trap = NewLink(C, key_of(C), "https://a.test", 1, skip="trap_calendar")
    applied = world.finish(job.admitted[0], DONE, links=(trap,))
    assert applied.admitted == []
    assert world.failures(job.run) == [(C, SKIPPED, "trap_calendar")]
    counters = world.run_row(job.run).counters
    assert (counters.admitted, counters.pending, counters.skipped) == (3, 1, 1)
    assert world.tallies(job.run).skipped == {"trap_calendar": 1}
    world.finish(job.admitted[1], DONE, links=(link(C),))
    row = world.run_row(job.run)
    assert (row.counters.admitted, row.counters.skipped, row.state) == (3, 1, "completed")


def test_a_run_that_limits_the_pages_of_a_host_finds_them_counted(world: World) -> None:
    """A new leader goes on counting; runs without a limit are not counted."""
    limited = world.submit(A, B, spec=b'{"scope":{"max_pages_per_host":2}}')
    other = world.submit(A, B)
    world.finish(limited.admitted[0], DONE)
    world.finish(other.admitted[0], DONE)
    host = limited.admitted[0].host
    assert world.reload().pages == [LaneCount(limited.run, host, 1)]
