"""Failovers that leave something behind: answers of an earlier epoch, a database that forgot."""

from __future__ import annotations

import asyncio
import copy
import threading

import pytest

from tests.unit.machine_tools import (
    NO_PACE,
    UTC,
    LeaderStory,
    header,
    held_leases,
    link,
    result_of,
    spec,
    urls,
)
from zcrawl.master import events as m
from zcrawl.master.driver.loop import MasterLoop, MasterProcess
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.master.master import TAKEOVER_AGAIN_S, Master, MasterState
from zcrawl.master.takeover import LEASE_S
from zcrawl.mesh.memory import MemoryHub
from zcrawl.mesh.messages import Ack, Beat, ClientRequest, Stale, Welcome
from zcrawl.store.commands import ApplyResults, ExtendLease, Sweep
from zcrawl.store.queries import ListJobs, Refill
from zcrawl.testing.store.store import FakeStore, Fault
from zcrawl.worker import events as w
from zcrawl.worker.machine import WorkerMachine


def test_a_refill_of_an_earlier_epoch_of_this_process_counts_no_more() -> None:
    """What was read before another master led knows nothing of the rows that one admitted."""
    story = LeaderStory().elect()
    run = story.submit(*urls(2), of=spec(NO_PACE), seeding=True)["run"]
    story.handle(m.Deposed("for a while"))
    story.hold = lambda what: isinstance(what, Refill)
    story.elect()  # its window is empty: it asks for a refill
    [old] = [call for call in story.held if isinstance(call, m.Ask)]
    answer = story.store.query(old.query)
    story.handle(m.Deposed("again"))
    other = LeaderStory(story.store, "m2").elect()
    added = other.ask("add_seeds", "more", run=run, seeds=["http://a.test/9"], last=True)
    assert added is not None
    assert added.ok
    story.held.clear()
    story.elect()
    story.handle(m.QueryDone(old.query, old.tag, answer))
    story.release()
    story.join()
    story.wait(2, each=story.beat)
    assert {assignment.url for assignment in story.assigned()} == {*urls(2), "http://a.test/9"}


def test_a_worker_that_knows_more_than_the_database_begins_anew() -> None:
    """A copy that was behind lacks results that were acked: nobody has them any more, so nothing
    that this process numbered after them could ever be applied."""
    story = LeaderStory().elect()
    story.submit(*urls(3))
    story.join()
    story.tick()
    first, second, third = story.assigned()
    behind = copy.deepcopy(story.store)
    story.report(result_of(first))
    assert story.bodies(Ack)[-1].upto == 1

    later = LeaderStory(behind, "m2").elect(alone=False)
    held = held_leases([second, third], 1, started=True)
    later.join(held=held, produced=1, acked=1)
    assert Stale("store_behind") in later.bodies(Stale)
    assert not later.bodies(Welcome)
    later.join(incarnation=2, replaces=1)
    later.wait(25, each=lambda: later.beat(incarnation=2))
    again = {assignment.seq: assignment for assignment in later.assigned()}
    assert sorted(again) == [first.seq, second.seq, third.seq]
    for assignment in again.values():
        later.report(result_of(assignment, 2), incarnation=2)
    assert set(later.states().values()) == {"DONE"}


def test_a_worker_whose_results_the_database_lost_ends() -> None:
    """Its supervisor starts another in its place, which holds nothing and has reported nothing."""
    worker = WorkerMachine("w1", 1, slots=4)
    beat = Beat("m1", 1.0, {})
    worker.handle(w.MasterMessageCame(header(beat, "m1", epoch=2), beat), 100.0)
    stale = Stale("store_behind")
    effects = worker.handle(w.MasterMessageCame(header(stale, "m1", epoch=2), stale), 100.1)
    assert any(isinstance(effect, w.Exit) for effect in effects)


@pytest.mark.parametrize("ahead_s", [3600.0, 86_400.0])
def test_a_clock_that_was_ahead_does_not_close_hosts_for_longer_than_a_lease(
    ahead_s: float,
) -> None:
    """The stored end of the lease is in the old leader's time; a lease is never longer than 20 s,
    so an owner that is gone keeps its host for that and one fetch, whatever the clocks say."""
    story = LeaderStory().elect()
    story.submit(*urls(2))
    story.join()
    story.tick()
    assert len(story.assigned()) == 2
    story.store.tables.lease_until += ahead_s
    later = LeaderStory(story.store, "m2", now=story.now).elect(alone=False)
    later.join("w2")
    later.wait(LEASE_S + 20.0 + 2.0, each=lambda: later.beat("w2"))
    assert len(later.assigned("w2")) == 2


def test_a_request_that_comes_as_a_takeover_is_tried_again_is_not_lost() -> None:
    """Whatever wakes a master that takes over is handled too."""
    story = LeaderStory()
    story.store.faults = lambda command: "fail"
    story.elect()
    assert story.master.role is MasterState.TAKING_OVER
    story.now += TAKEOVER_AGAIN_S
    story.handle(m.ClientAsked(b"c", ClientRequest("q", "act", {"ref": "1", "action": "pause"})))
    assert [reply.data["code"] for reply in story.replies] == ["no_leader"]
    assert story.master._takeover is not None or story.master._takeover_at > story.now


def test_a_read_that_began_before_the_takeover_is_answered_after_it() -> None:
    """Nobody waits for an answer that only a follower would have given."""
    story = LeaderStory()
    story.hold = lambda what: isinstance(what, ListJobs)
    story.ask("jobs", "q")
    assert len(story.held) == 1
    assert not story.replies
    story.elect()
    story.release()
    assert [(reply.id, reply.ok) for reply in story.replies] == [("q", True)]
    assert "stale" not in story.replies[0].data


@pytest.mark.parametrize("reported", [False, True])
def test_a_request_that_the_database_lost_does_not_stand_for_another(reported: bool) -> None:
    """A copy that was behind gives the numbers of lost rows to others: what a worker holds or has
    fetched under such a number is another page, and must not be stored as that one."""
    first, second = link("http://a.test/first"), link("http://a.test/second")
    story = LeaderStory().elect()
    story.submit("http://a.test/")
    story.join("w1")
    story.tick()
    [home] = story.assigned()
    behind = copy.deepcopy(story.store)
    story.report(result_of(home, links=[first, second]), "w1")
    story.join("w2")
    story.tick()
    assignment = next(assignment for assignment in story.assigned() if assignment.url == first[0])

    later = LeaderStory(behind, "m2").elect(alone=False)
    page = result_of(assignment, 1)
    if reported:
        about = (1, assignment.run, assignment.host, assignment.seq)
        later.join("w2", produced=1, reported=[about], replaces=0)
    else:
        later.join("w2", held=held_leases([assignment], 1, started=True))
        assert later.bodies(Welcome, "w2")[-1].keep == []
    later.join("w1", incarnation=2, replaces=1)

    def both_beat() -> None:
        later.beat("w2")
        later.beat("w1", 2)

    later.wait(3, each=both_beat)
    again = later.assigned()[-1]
    assert again.url == home.url
    later.report(result_of(again, 2, links=[second, first]), "w1", 2)
    [other] = [row for row in behind.requests(1) if row.seq == assignment.seq]
    assert other.url == second[0], "the number was given to another"
    later.report(page, "w2")
    assert later.states()[second[0]] == "QUEUED"
    later.wait(3, each=both_beat)
    assert {assignment.url for assignment in later.assigned()} == {home.url, first[0], second[0]}


async def test_a_takeover_whose_turn_comes_after_the_deposition_is_not_executed() -> None:
    """The writer was busy with an older command meanwhile; another master leads by now."""
    store = FakeStore()
    threads = StoreThreads(store, lambda name, detail, **fields: None)
    busy, answered = threading.Event(), asyncio.Event()
    loop = MasterLoop(
        Master("m1", seen_slots=64),
        MemoryHub().master("m1", 1),
        threads,
        MasterProcess(
            clock=lambda: 100.0, utc=lambda: UTC, log=lambda name, detail, **fields: None
        ),
    )
    slow = ApplyResults(1, [], UTC)
    threads.execute(slow, lambda outcome: None, lambda: not busy.wait(60))
    loop.handle(m.Elected(0, alone=False))
    loop.handle(m.Deposed("it took too long"))
    other = LeaderStory(store, "m2").elect()
    busy.set()
    threads.execute(ExtendLease(other.master.epoch, UTC), lambda outcome: answered.set())
    async with asyncio.timeout(60):
        await answered.wait()
    loop.close()
    await threads.close()
    assert store.tables.epoch == other.master.epoch


def test_a_refill_that_fails_is_not_asked_again_at_once() -> None:
    """While the database is away each failure comes at once, and a tick follows each answer."""
    story = LeaderStory().elect()
    story.submit(*urls(2))
    story.handle(m.Deposed("for a while"))
    refills = 0

    def away(query: object) -> bool:
        nonlocal refills
        refills += isinstance(query, Refill)
        return True

    story.store.query_faults = away
    story.elect()
    for _ in range(50):
        story.tick(0.002)
    assert refills == 1
    story.store.query_faults = None
    story.join()
    story.wait(2, each=story.beat)
    assert len(story.assigned()) == 2


def test_a_sweep_that_fails_is_not_asked_again_at_once() -> None:
    """The same on the writer's side; and the rows are swept in the end."""
    story = LeaderStory().elect()
    story.submit(*urls(2))
    tried = 0

    def away(command: object) -> Fault | None:
        nonlocal tried
        tried += isinstance(command, Sweep)
        return "fail" if isinstance(command, Sweep) else None

    story.store.faults = away
    story.ask("act", ref="1", action="cancel")
    for _ in range(50):
        story.tick(0.002)
    assert tried == 1
    story.store.faults = None
    story.wait(2)
    assert set(story.states().values()) == {"SKIPPED"}
