"""The leader of a standalone node keeps to its share, also when the list of nodes changes."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.machine_tools import LeaderStory
from zcrawl.errors import CommitUnknown, StoreUnavailable
from zcrawl.master.events import CommandFailed
from zcrawl.master.master import Master
from zcrawl.master.snapshot import published
from zcrawl.model.snapshot import ListedNodeView, NodeListView, PublishedSnapshot
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
