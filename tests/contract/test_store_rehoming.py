"""The contract of a store: rows go to their owners when the list of standalone nodes changes."""

from __future__ import annotations

from tests.contract.store_world import DONE, SKIPPED, World
from zcrawl.model.rows import NewLink
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import RunState
from zcrawl.ownership import owner_of
from zcrawl.standalone.shares import Division, host_resource
from zcrawl.store.commands import Rehome, Rehomed
from zcrawl.submit.read import to_json

PAIR = ("node-1", "node-2")
URLS = [f"http://host-{n}.test/" for n in range(12)]
MINE = [url for url in URLS if owner_of(host_resource(url), PAIR) == "node-1"]
OTHERS = [url for url in URLS if url not in MINE]


def rehome(
    world: World, *nodes: str, limit: int = 100, held: frozenset[int] = frozenset()
) -> Rehomed:
    """Do a whole pass; return the counts of all its parts."""
    run = after = released = claimed = stayed = 0
    while True:
        command = Rehome(world.epoch, Division("node-1", nodes), run, after, limit, world.now, held)
        done = world.do(command, Rehomed)
        run, after = done.run, done.after
        released, claimed = released + done.released, claimed + done.claimed
        stayed += done.stayed
        if not done.more:
            return Rehomed(0, 0, False, released, claimed, stayed)


def test_queued_rows_of_another_node_are_skipped_with_its_name(world: World) -> None:
    """In chunks; and the run's counters and tallies stay true."""
    run = world.submit(*URLS).run
    moved = rehome(world, *PAIR, limit=5)
    assert (moved.released, moved.claimed) == (len(OTHERS), 0)
    assert sorted(world.failures(run)) == [
        (url, SKIPPED, "owned by node-2") for url in sorted(OTHERS)
    ]
    assert world.tallies(run).skipped == {"owned by node-2": len(OTHERS)}
    row = world.run_row(run)
    assert (row.counters.pending, row.counters.skipped) == (len(MINE), len(OTHERS))
    assert rehome(world, *PAIR) == Rehomed(0, 0, False), "a second pass changes nothing"


def test_a_share_comes_back_and_reopens_a_completed_run(world: World) -> None:
    """Rows that were done stay done."""
    submitted = world.submit(*URLS)
    rehome(world, *PAIR)
    for row in submitted.admitted:
        if row.url in MINE:
            world.finish(row, DONE)
    assert world.run_row(submitted.run).state is RunState.COMPLETED
    moved = rehome(world, "node-1", limit=3)
    assert moved.claimed == len(OTHERS)
    reopened = world.run_row(submitted.run)
    assert (reopened.state, reopened.counters.pending, reopened.counters.done) == (
        RunState.RUNNING,
        len(OTHERS),
        len(MINE),
    )
    assert reopened.counters.skipped == 0
    assert world.tallies(submitted.run).skipped == {}
    loaded = world.reload()
    assert sum(lane.queued for lane in loaded.lanes) == len(OTHERS)


def test_a_row_in_flight_stays(world: World) -> None:
    """This node finishes what it started; the pass says how many there are."""
    admitted = world.submit(*URLS).admitted
    held = frozenset(row.seq for row in admitted if row.url in OTHERS[:2])
    moved = rehome(world, *PAIR, held=held)
    assert (moved.released, moved.stayed) == (len(OTHERS) - 2, 2)
    for row in admitted:
        if row.seq in held:
            assert world.finish(row, DONE).runs[0].counters.done


def test_a_row_gets_the_name_of_its_new_owner(world: World) -> None:
    """The reason names who owns it now, not who did when it was skipped."""
    run = world.submit(*URLS).run
    rehome(world, "node-2")
    moved = rehome(world, "node-3")
    assert (moved.released, moved.claimed) == (0, 0)
    assert world.tallies(run).skipped == {"owned by node-3": len(URLS)}


def test_a_node_whose_share_is_empty_gets_it_later(world: World) -> None:
    """Its run ended without a page; the end is not final."""
    run = world.submit(*URLS).run
    rehome(world, "node-2")
    assert world.run_row(run).state is RunState.FAILED
    assert rehome(world, "node-1").claimed == len(URLS)
    assert world.run_row(run).state is RunState.RUNNING


def test_cancelled_runs_and_older_runs_stay_as_they_are(world: World) -> None:
    """Only the newest run of a job is looked at, unless it was ended by a person."""
    older = world.submit(*URLS, name="docs").run
    rehome(world, *PAIR)
    world.change_run(older, RunState.PAUSED)
    newer = world.submit(*URLS, name="docs", mode="update").run
    rehome(world, *PAIR)
    world.change_run(newer, RunState.CANCELLED, "cancelled")
    assert older != newer
    assert rehome(world, "node-1") == Rehomed(0, 0, False)
    assert world.run_row(older).counters.skipped == len(OTHERS)


def test_a_link_that_is_admitted_as_skipped_can_be_claimed(world: World) -> None:
    """As the leader admits links of other nodes."""
    (first,) = world.submit(MINE[0]).admitted
    link = NewLink(OTHERS[0], b"k" * 16, OTHERS[0][:-1], 1, skip="owned by node-2")
    world.finish(first, DONE, links=(link,))
    assert world.failures(first.run) == [(OTHERS[0], SKIPPED, "owned by node-2")]
    assert rehome(world, "node-1").claimed == 1
    assert [lane.queued for lane in world.reload().lanes] == [1]


FEEDS = [f"feed-{n}" for n in range(8)]
FEED_URLS = {f"http://host.test/{feed}": feed for feed in FEEDS}


def test_rows_of_a_listed_resource_go_to_the_owner_of_its_id(world: World) -> None:
    """Whatever their host is; a row that the list does not name stays with this node."""
    spec = to_json(
        JobSpec("feeds", seeds=("http://host.test/${resource}",), resources=tuple(FEEDS))
    )
    link = "http://host.test/found"
    run = world.submit(*FEED_URLS, link, spec=spec).run
    others = [url for url, feed in FEED_URLS.items() if owner_of(feed, PAIR) == "node-2"]
    assert 0 < len(others) < len(FEEDS)
    assert rehome(world, *PAIR, limit=3).released == len(others)
    assert sorted(url for url, _, _ in world.failures(run)) == sorted(others)
    assert rehome(world, "node-2").released == len(FEEDS) - len(others), "not the link"
    assert rehome(world, "node-1").claimed == len(FEEDS)
