"""What a leader lets the database forget, and what not."""

from __future__ import annotations

from tests.unit.machine_tools import LeaderStory, result_of, urls
from zcrawl.master import pruning
from zcrawl.master.follower import FORWARD_PATIENCE_S
from zcrawl.master.takeover import LEASE_S
from zcrawl.mesh.messages import Stale
from zcrawl.mesh.timing import HEARTBEAT_S, LOST_AFTER, PERMISSION_S
from zcrawl.model.spec import Fetch
from zcrawl.roles.client import GIVE_UP_S
from zcrawl.store.commands import ClientAction, Forget, SetWish
from zcrawl.testing.store.store import Fault

DAY = 86_400.0


def working() -> LeaderStory:
    """A worker has delivered one page and holds others."""
    story = LeaderStory().elect()
    story.submit(*urls(9))
    story.join("w1")
    story.wait(1.0, story.beat)
    story.report(result_of(story.assigned()[0]))
    assert story.store.tables.watermarks == {("w1", 1): 1}
    return story


def pass_days(story: LeaderStory, days: float, *alive: str) -> None:
    """A long time passes; only these are heard at its end."""
    story.now += days * DAY
    for worker in alive:
        story.beat(worker)
    story.tick()

    def beat() -> None:
        for worker in alive:
            story.beat(worker)

    story.wait(3.0, beat)


def test_the_watermark_of_a_process_that_is_long_gone_goes() -> None:
    """In memory and in the database."""
    story = working()
    pass_days(story, 1.1)
    assert story.store.tables.watermarks == {}
    assert ("w1", 1) not in story.leader.state.receiver.streams


def test_a_process_that_lives_keeps_its_watermark() -> None:
    """However long it has had nothing to do: without it, it would be sent away."""
    story = working()
    pass_days(story, 40.0, "w1")
    assert story.store.tables.watermarks == {("w1", 1): 1}
    story.report(result_of(story.assigned()[1]))
    assert story.store.tables.watermarks == {("w1", 1): 2}


def test_a_day_has_to_pass() -> None:
    """A watermark that moved an hour ago stays, also of a process that is lost."""
    story = working()
    pass_days(story, 0.9)
    assert story.store.tables.watermarks == {("w1", 1): 1}


def test_a_process_that_comes_back_after_it_was_forgotten_begins_anew() -> None:
    """It knows of acked results, the database does not: nothing of it is applied any more."""
    story = working()
    page = story.assigned()[1]
    pass_days(story, 1.1)
    before = story.store.runs()[0].counters
    story.publish(result_of(page))
    story.join("w1", acked=1, produced=2)
    story.tick()
    assert [refusal.reason for refusal in story.bodies(Stale, "w1")] == ["store_behind"]
    assert story.store.tables.watermarks == {}
    assert story.store.runs()[0].counters == before


def test_a_new_leader_waits_until_everybody_has_said_hello() -> None:
    """A worker that idled for days is not forgotten by a takeover."""
    story = working()
    later = LeaderStory(story.store, "m2", story.now + 3 * DAY).elect(alone=False)
    later.wait(pruning.FIRST_S - 5.0)
    assert story.store.tables.watermarks == {("w1", 1): 1}
    later.join("w1", acked=1, produced=1)
    later.wait(10.0, lambda: later.beat("w1"))
    assert story.store.tables.watermarks == {("w1", 1): 1}


def test_results_that_wait_for_their_commit_keep_their_watermark() -> None:
    """What is received and not yet stored needs the number before it."""
    story = working()
    story.hold = lambda what: type(what).__name__ == "ApplyResults"
    story.publish(result_of(story.assigned()[1]))
    pass_days(story, 1.1)
    assert ("w1", 1) in story.leader.state.receiver.streams
    story.release()
    assert story.store.tables.watermarks == {("w1", 1): 2}


def test_answers_go_after_a_week() -> None:
    """And not before."""
    story = LeaderStory().elect()
    story.submit(*urls(1))
    pass_days(story, 6.0)
    assert list(story.store.tables.answers) == ["q1"]
    pass_days(story, 1.1)
    assert story.store.tables.answers == {}


def test_many_rows_go_in_small_transactions() -> None:
    """With a pause between two, in which results are committed."""
    story = LeaderStory().elect()
    utc = story.leader.state.utc(story.now)
    for number in range(1_200):
        action = ClientAction(f"a{number}", "pause", "", "", utc)
        story.store.execute(SetWish(story.master.epoch, 1, "w1", b"{}", action))
    for number in range(250):
        key = (f"w{number}", 1)
        story.store.tables.watermarks[key] = 5
        story.store.tables.moved[key] = utc
        stream = story.leader.state.receiver.stream(key)
        stream.committed = stream.received = 5
        stream.moved_at = utc
    before = len(story.store.history)
    pass_days(story, 8.0)
    done = [kind for _, kind in story.store.history[before:] if kind is Forget]
    assert len(done) == 3
    assert story.store.tables.watermarks == {}
    assert story.store.tables.answers == {}


def test_what_could_not_be_removed_is_removed_later() -> None:
    """The database was away for a moment."""
    story = working()
    faults: list[Fault] = ["fail", "unknown_lost", "unknown_applied"]

    def choose(command: object) -> Fault | None:
        return faults.pop() if isinstance(command, Forget) and faults else None

    story.store.faults = choose
    pass_days(story, 1.1)
    assert not faults
    assert story.store.tables.watermarks == {}


def test_everything_is_kept_for_far_longer_than_anybody_can_ask() -> None:
    """A silent worker's leases, and the patience of clients and followers, end within minutes."""
    worker_s = LEASE_S + PERMISSION_S + LOST_AFTER * HEARTBEAT_S + Fetch().timeout
    assert 100 * worker_s < pruning.WATERMARKS_KEPT_S
    client_s = GIVE_UP_S + FORWARD_PATIENCE_S
    assert 1_000 * client_s < pruning.ANSWERS_KEPT_S
    assert pruning.FIRST_S > 2 * LEASE_S


def test_it_is_done_every_hour() -> None:
    """Once, when there is little to do."""
    story = LeaderStory().elect()
    before = len(story.store.history)
    for _ in range(3):
        story.now += pruning.EVERY_S + 1.0
        story.tick()
        story.wait(5.0)
    kinds = [kind for _, kind in story.store.history[before:]]
    assert kinds.count(Forget) == 3
