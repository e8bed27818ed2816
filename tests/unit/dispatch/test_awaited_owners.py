"""A new leader waits for the workers that had hosts, also when every lease is over."""

from __future__ import annotations

from tests.unit.machine_tools import LeaderStory, held_leases, spec, urls
from zcrawl.master.takeover import GREETING_S
from zcrawl.mesh.messages import Accept, Assignment, Welcome
from zcrawl.model.process_name import ProcessName
from zcrawl.model.spec import Politeness
from zcrawl.store.commands import ExtendLease

LONG_S = 600.0  # without any master
SLOW = spec(Politeness(robots=False, rate=0, concurrency=2))


def left_alone() -> tuple[LeaderStory, list[Assignment]]:
    """What w1 holds of its host when the last master dies."""
    story = LeaderStory().elect()
    story.submit(*urls(4), of=SLOW)
    story.join()
    story.tick()
    return story, story.assigned("w1")


def successor(story: LeaderStory) -> LeaderStory:
    later = LeaderStory(story.store, "m2", now=story.now + LONG_S)
    return later.elect(alone=False)


def test_the_first_worker_that_greets_does_not_get_what_another_holds() -> None:
    """The owner lives and greets two seconds later: it goes on with all that it holds."""
    story, held = left_alone()
    later = successor(story)
    later.join("w2")
    later.wait(GREETING_S - 1.0, each=lambda: later.beat("w2"))
    assert later.assigned("w2") == []
    later.join(held=held_leases(held, 1, started=False))
    assert sorted(later.bodies(Welcome, "w1")[-1].keep) == sorted(
        assignment.seq for assignment in held
    )
    tokens = [(1, assignment.n, False) for assignment in held]

    def both_beat() -> None:
        later.beat("w2")
        later.beat("w1", held=tokens)

    later.wait(10.0, each=both_beat)
    assert later.assigned("w2") == [], "its host stays with it"


def test_a_host_is_given_to_another_when_its_owner_does_not_greet() -> None:
    """After the wait, and soon: not after one more lease."""
    story, held = left_alone()
    later = successor(story)
    later.join("w2")
    later.wait(GREETING_S + 1.0, each=lambda: later.beat("w2"))
    assert {assignment.seq for assignment in later.assigned("w2")} >= {
        assignment.seq for assignment in held
    }


def test_a_host_without_an_owner_does_not_wait() -> None:
    """Nobody can hold anything of it."""
    story, _ = left_alone()
    later = successor(story)
    later.submit(*urls(2, "b.test"), of=SLOW, id="other", mode="update")
    later.join("w2")
    later.tick()
    assert [assignment.url for assignment in later.assigned("w2")] == urls(2, "b.test")


def test_the_wait_begins_when_workers_can_hear_who_leads() -> None:
    """A database that is slow to take the lease holds the first BEAT back, and with it the wait."""
    story, _ = left_alone()
    later = LeaderStory(story.store, "m2", now=story.now + LONG_S)
    later.hold = lambda what: isinstance(what, ExtendLease)
    later.elect(alone=False)
    later.wait(GREETING_S + 1.0)
    later.release()
    later.tick()
    later.join("w2")
    later.wait(GREETING_S - 1.0, each=lambda: later.beat("w2"))
    assert later.assigned("w2") == []
    later.wait(2.0, each=lambda: later.beat("w2"))
    assert later.assigned("w2")


def test_what_a_worker_confirmed_to_an_earlier_leader_confirms_nothing_to_the_next() -> None:
    """The word comes late, to a master that leads again: it is about another grant."""
    story, held = left_alone()
    later = successor(story)
    later.join(held=held_leases(held, 1, started=True))
    [host] = later.leader.state.planner.hosts.values()
    part = host.parts[ProcessName("w1#1")]
    part.granted = 0  # it was lowered, and has not confirmed
    before = story.leader.state.planner.granter
    first = before.hosts[host.id].parts[ProcessName("w1#1")].revision
    for revision in range(first - 5, first + 6):
        later.hear(Accept(0, [(host.id, revision)]), epoch=1)
    assert part.in_use > 0
    later.hear(Accept(0, [(host.id, part.revision)]))
    assert "w1#1" not in host.parts
