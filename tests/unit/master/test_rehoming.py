"""The leader of a standalone node keeps to its share, also when the list of nodes changes."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.machine_tools import NO_PACE, LeaderStory, link, result_of
from zcrawl.errors import CommitUnknown, StoreUnavailable
from zcrawl.master.events import CommandFailed
from zcrawl.master.master import Master
from zcrawl.master.snapshot import published
from zcrawl.model.snapshot import ListedNodeView, NodeListView, PublishedSnapshot
from zcrawl.model.spec import JobSpec, Schedule
from zcrawl.model.states import RequestState
from zcrawl.ownership import Assigner, owner_of
from zcrawl.standalone.shares import Shares, host_resource
from zcrawl.store.commands import Rehome

PAIR = ("node-1", "node-2")
URLS = [f"http://host-{n}.test/" for n in range(10)]
MINE = {url for url in URLS if owner_of(host_resource(url), PAIR) == "node-1"}


def standalone(*nodes: str) -> tuple[LeaderStory, Shares]:
    """A leader of node-1 with these nodes, a job with all URLs, and no worker yet."""
    shares = Shares(Assigner("node-1", nodes))
    story = LeaderStory()
    story.master = Master("m1", seen_slots=64, shares=shares)
    story.elect()
    story.submit(*URLS)
    story.tick()
    return story, shares


def states(story: LeaderStory) -> dict[str, RequestState]:
    return {row.url: row.state for row in story.store.tables.requests.values()}


def queued(story: LeaderStory) -> set[str]:
    return {url for url, state in states(story).items() if state is RequestState.QUEUED}


def in_memory(story: LeaderStory) -> int:
    lanes = story.leader.state.frontier.lanes.values()
    return sum(lane.rows + lane.beyond for lane in lanes)


def test_seeds_of_another_node_are_skipped_when_they_are_admitted() -> None:
    """Nothing of them is queued, not for a moment."""
    story, _ = standalone(*PAIR)
    assert queued(story) == MINE
    reasons = {row.reason for row in story.store.tables.requests.values() if row.url not in MINE}
    assert reasons == {"owned by node-2"}
    assert in_memory(story) == len(MINE)


def test_a_share_moves_and_comes_back() -> None:
    """In the database and in memory."""
    story, shares = standalone(*PAIR)
    shares.change(["node-1"])
    story.wait(1.0)
    assert queued(story) == set(URLS)
    assert in_memory(story) == len(URLS)
    shares.change(PAIR)
    story.wait(1.0)
    assert queued(story) == MINE
    assert in_memory(story) == len(MINE)


def test_a_new_epoch_looks_at_all_rows() -> None:
    """The list may have changed while nobody led."""
    story, _ = standalone(*PAIR)
    story.master = Master("m1", seen_slots=64, shares=Shares(Assigner("node-1", ["node-1"])))
    story.elect()
    story.wait(1.0)
    assert queued(story) == set(URLS)
    assert in_memory(story) == len(URLS)


def test_what_a_worker_holds_stays_and_nothing_else_is_sent() -> None:
    """This node finishes what it has started."""
    story, shares = standalone("node-1")
    story.join()
    story.wait(1.0)
    held = {lease.row.url for lease in story.leader.state.leases.by_seq.values()}
    assert held
    shares.change(["node-2", "node-3"])
    story.wait(1.0)
    assert queued(story) == held
    assert {lease.row.url for lease in story.leader.state.leases.by_seq.values()} == held


def test_a_node_that_is_not_sure_of_its_share_sends_nothing() -> None:
    """From the moment itself on, without an event; and it goes on when it is sure again."""
    story, shares = standalone("node-1")
    shares.sure_until = story.now
    story.join()
    story.wait(1.0)
    assert not story.assigned()
    assert queued(story) == set(URLS)
    shares.sure_until = float("inf")
    story.wait(1.0)
    assert story.assigned()


def begun(story: LeaderStory, shares: Shares) -> Rehome:
    """Give all to this node; return the command that begins the pass, which is not carried out."""
    story.hold = lambda what: isinstance(what, Rehome)
    shares.change(["node-1"])
    story.tick()
    story.hold = lambda what: False
    (command,) = story.held
    assert isinstance(command, Rehome)
    return command


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_with_unknown_outcome_leaves_memory_as_the_database(applied: bool) -> None:
    """The part is repeated, and memory is read again, whether it was applied or not."""
    story, shares = standalone(*PAIR)
    command = begun(story, shares)
    assert story.leader.rehoming.busy
    if applied:
        story.store.execute(command)
    story.handle(CommandFailed(command, CommitUnknown("cut")))
    story.wait(2.0)
    assert queued(story) == set(URLS)
    assert in_memory(story) == len(URLS)


def test_a_store_that_is_away_delays_the_pass() -> None:
    """It is repeated, and nothing is dispatched before it is done."""
    story, shares = standalone(*PAIR)
    command = begun(story, shares)
    assert story.leader.rehoming.busy
    story.handle(CommandFailed(command, StoreUnavailable("away")))
    story.wait(2.0)
    assert queued(story) == set(URLS)


def of_node_1() -> LeaderStory:
    story = LeaderStory()
    story.master = Master("m1", seen_slots=64, shares=Shares(Assigner("node-1", PAIR)))
    return story.elect()


def test_a_run_of_a_schedule_keeps_to_the_share_of_its_node() -> None:
    """Its seeds are marked like those of a submission: no node does the share of another one."""
    story = of_node_1()
    job = JobSpec("nightly", seeds=tuple(URLS), schedule=Schedule(every="10s"))
    story.submit(of=job, no_run=True)
    story.wait(12.0)
    assert set(states(story)) == set(URLS)
    assert queued(story) == MINE


FEEDS = tuple(f"feed-{n}" for n in range(10))
MY_FEEDS = {feed for feed in FEEDS if owner_of(feed, PAIR) == "node-1"}


def test_the_ids_of_a_job_are_shared_and_not_the_host() -> None:
    """In a submission and in a run of a schedule; a link on their pages stays with this node."""
    story = of_node_1()
    job = JobSpec(
        "feeds",
        seeds=("http://host.test/${resource}",),
        resources=FEEDS,
        schedule=Schedule(every="10s", overlap="allow"),
        politeness=NO_PACE,
    )
    story.submit(of=job)
    mine = {f"http://host.test/{feed}" for feed in MY_FEEDS}
    assert 0 < len(mine) < len(FEEDS)
    assert queued(story) == mine
    story.wait(12.0)
    seeds = [row for row in story.store.tables.requests.values() if row.run == 2]
    assert {row.url for row in seeds if row.state is RequestState.QUEUED} == mine
    story.join()
    story.tick()
    first = next(each for each in story.assigned() if each.url in mine)
    targets = [f"http://host.test/found-{n}" for n in range(8)]
    story.report(result_of(first, story.master.epoch, links=[link(url) for url in targets]))
    story.wait(1.0)
    rows = {row.url: row for row in story.store.tables.requests.values() if row.run == first.run}
    assert all(rows[url].state is not RequestState.SKIPPED for url in targets)


def test_the_snapshot_and_nodes_show_the_list() -> None:
    """So the console and `zcrawl nodes` show the same; a snapshot of an older node has none."""
    story, shares = standalone(*PAIR)
    assert story.leader.current_snapshot(story.now).standalone is None
    shares.view = NodeListView("node-1", "aa11", nodes=(ListedNodeView("node-2", differs=True),))
    whole = story.leader.current_snapshot(story.now)
    raw = msgspec.msgpack.encode(published(whole))
    assert msgspec.msgpack.decode(raw, type=PublishedSnapshot).standalone == shares.view
    older = {"leader": "m1", "epoch": 1}
    assert msgspec.convert(older, PublishedSnapshot).standalone is None
    reply = story.ask("nodes")
    assert reply is not None
    assert reply.data["standalone"]["nodes"][0]["differs"]
