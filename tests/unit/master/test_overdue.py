"""A lease that heartbeats renew for ever is noticed, taken back and in the end given up by name."""

from __future__ import annotations

import pytest

from tests.unit.machine_tools import LeaderStory, held_leases, hello, result_of, row, spec, urls
from tests.unit.worker.test_worker_machine import Worker, of, sent
from tests.unit.worker.test_worker_machine_results import working
from zcrawl.dispatch import crash_suspects
from zcrawl.dispatch.crash_suspects import longest_attempt_s, suspects
from zcrawl.master.overdue import AGAIN_S
from zcrawl.mesh.messages import Assignment, Cancel, Heartbeat, Result
from zcrawl.model.reasons.failure import ATTEMPT_OVERDUE
from zcrawl.model.spec import Fetch, JobSpec, Politeness
from zcrawl.model.states import Outcome
from zcrawl.worker import events as w
from zcrawl.worker.results.attempt import by_verdict

PATIENCE_S = 40.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_suspects, "OVERDUE_LEAST_S", PATIENCE_S)
    monkeypatch.setattr(crash_suspects, "OVERDUE_FACTOR", 0.0)


class Watched(LeaderStory):
    """A leader with one worker, which says every second what it holds."""

    def __init__(self, retries: int = 3) -> None:
        super().__init__()
        self.elect()
        self.submit(*urls(1), of=spec(retries=retries))
        self.join()
        self.tick()

    @property
    def last(self) -> Assignment:
        return self.assigned()[-1]

    def say(self, *held: Assignment, produced: int = 0, seconds: float = 1.0) -> None:
        """Heartbeats for so long, each of which holds these as started."""
        tokens = [(1, assignment.n, True) for assignment in held]
        for _ in range(round(seconds)):
            self.beat(held=tokens, assigned=1_000, produced=produced)
            self.tick(1.0)

    @property
    def cancels(self) -> list[tuple[int, int]]:
        return [token for cancel in self.bodies(Cancel) for token in cancel.leases]

    def noted(self, name: str) -> int:
        return sum(note.name == name for note in self.notes)


def test_a_leader_that_slept_does_not_count_its_sleep() -> None:
    """It has heard nothing meanwhile: the attempt may have ended long ago."""
    story = Watched()
    story.say(story.last, seconds=3)
    story.now += 2 * PATIENCE_S
    story.say(story.last, seconds=PATIENCE_S - 10)
    assert not story.cancels
    assert not story.noted("lease_overdue")
    story.say(story.last, seconds=20)
    assert story.noted("lease_overdue") == 1


def test_an_attempt_that_lasts_too_long_is_taken_back_and_tried_again() -> None:
    """Not before the worker says that it let go: no host gets two requests for one."""
    story = Watched()
    first = story.last
    story.say(first, seconds=PATIENCE_S - 2)
    assert not story.cancels
    assert not story.noted("lease_overdue")
    story.say(first, seconds=8)
    assert story.cancels == [(1, first.n)]
    assert story.noted("lease_overdue") == 1
    assert story.leader.state.counters["leases_overdue"] == 1
    assert len(story.assigned()) == 1, "the worker still has it"
    story.say(seconds=2)
    assert story.noted("lease_taken_back") == 1
    second = story.last
    assert (second.seq, second.attempt) == (first.seq, 2)
    assert second.n > first.n
    story.report(result_of(second))
    assert story.states() == {first.url: "DONE"}


def test_a_cancel_that_is_lost_is_sent_again() -> None:
    """As long as heartbeats have the lease; it is noted once."""
    story = Watched()
    story.say(story.last, seconds=PATIENCE_S + 2 * AGAIN_S + 8)
    assert len(story.cancels) >= 2
    assert story.noted("lease_overdue") == 1


def test_a_result_that_comes_after_all_counts() -> None:
    """Rule `leases`: of a lease that is overdue, or taken back and not given to anybody again."""
    story = Watched()
    first = story.last
    story.say(first, seconds=PATIENCE_S + 8)
    story.report(result_of(first))
    assert story.states() == {first.url: "DONE"}
    assert not story.noted("lease_taken_back")
    story.say(produced=1, seconds=3)
    assert len(story.assigned()) == 1


def test_a_result_of_the_lost_attempt_is_dropped_when_a_newer_one_runs() -> None:
    """The newer one decides, and the page is there once."""
    story = Watched()
    first = story.last
    story.say(first, seconds=PATIENCE_S + 8)
    story.say(seconds=2)
    second = story.last
    assert second.n > first.n
    story.report(result_of(first))
    assert story.states() == {first.url: "QUEUED"}
    story.report(result_of(second))
    assert story.states() == {first.url: "DONE"}
    assert len(story.store.items(1)) == 1


def test_a_request_whose_attempts_are_all_lost_ends_by_name() -> None:
    """Each counts as a failed attempt of the job's; the last assignment only asks for the end."""
    story = Watched(retries=1)
    for _ in range(2):
        assert not story.last.verdict
        story.say(story.last, seconds=PATIENCE_S + 8)
        story.say(seconds=2)
    final = story.last
    assert (final.verdict, final.attempt) == (ATTEMPT_OVERDUE, 3)
    ended = by_verdict(final, 1).result()
    assert ended.outcome is Outcome.FAILED
    story.report(ended)
    (row,) = story.store.requests(1)
    assert (row.state.name, row.reason) == ("DEAD", ATTEMPT_OVERDUE)
    assert not story.leader.state.planner.overdue


def test_time_in_which_the_worker_slept_does_not_count() -> None:
    """A paused process fetches nothing, and goes on when it wakes."""
    story = Watched()
    first = story.last
    story.say(first, seconds=PATIENCE_S - 5)
    for _ in range(9):
        story.tick(1.0)  # silence, and not yet lost
    story.say(first, seconds=4)
    assert not story.cancels
    story.say(first, seconds=12)
    assert story.cancels


def test_a_host_that_asks_for_a_pause_is_waited_for() -> None:
    """A redirect of a running attempt waits for the host's Retry-After too."""
    story = LeaderStory().elect()
    story.submit(*urls(2), of=spec())
    story.join()
    story.tick()
    waiting, finished = story.assigned()
    tokens = [(1, waiting.n, True)]
    story.publish(result_of(finished, host_next_in_s=300.0))
    for _ in range(300):
        story.beat(held=tokens, assigned=1_000, produced=1)
        story.tick(1.0)
    assert not story.bodies(Cancel)


def test_a_new_leader_counts_from_its_takeover_on() -> None:
    """It knows of no earlier start than the HELLO that tells it."""
    story = Watched()
    story.say(story.last, seconds=PATIENCE_S - 5)
    first, store = story.last, story.store
    other = LeaderStory(store, me="m2", now=story.now).elect()
    other.join(held=held_leases([first], 1, started=True))
    for _ in range(10):
        other.beat(held=[(1, first.n, True)], assigned=1_000)
        other.tick(1.0)
    assert not other.bodies(Cancel)
    for _ in range(40):
        other.beat(held=[(1, first.n, True)], assigned=1_000)
        other.tick(1.0)
    assert other.bodies(Cancel)[0].leases == [(1, first.n)]


def test_an_attempt_that_nobody_asked_for_is_cancelled_when_it_is_as_old() -> None:
    """Of a worker that was lost and came back: its lost attempt would use up a slot for ever."""
    story = Watched()
    stray = (1, 999)
    for second in range(round(PATIENCE_S) + 30):
        story.beat(held=[(*stray, True)], assigned=0)
        story.tick(1.0)
        if second < PATIENCE_S - 1:
            assert stray not in story.cancels
    assert story.cancels.count(stray) >= 2, "again, as long as it is there"
    assert story.noted("stray_attempt")
    assert not story.noted("lease_overdue")
    story.say(seconds=1)
    assert not story.leader.state.roster.workers["w1"].strays


def test_patience_grows_with_what_an_attempt_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timeouts, redirects, plugins, proxies and limits of domains make an attempt longer."""
    monkeypatch.setattr(crash_suspects, "OVERDUE_FACTOR", 2.0)
    plain = longest_attempt_s(JobSpec("j"), None, 4)
    assert plain > 10 * Fetch().timeout
    longer = (
        JobSpec("j", fetch=Fetch(timeout=60.0)),
        JobSpec("j", middlewares=("slow",)),
        JobSpec("j", fetch=Fetch(proxies=("http://p:1",), proxy_limit=1)),
        JobSpec("j", politeness=Politeness(domain_rate=0.1)),
    )
    assert all(longest_attempt_s(job, None, 4) > plain for job in longer)


# ---------------------------------------------------------------- the worker


def test_a_worker_lets_go_of_a_lease_that_is_cancelled() -> None:
    """Its slot is free, its fetch is cut off, and its heartbeat does not have it any more. One of
    the same number in another epoch is another lease."""
    worker: Worker = working(1, 2)
    assert not of(worker.say(Cancel([], [(7, 1)])), w.CancelFetch)
    assert of(worker.say(Cancel([], [(1, 1)])), w.CancelFetch) == [w.CancelFetch(1)]
    (beat,) = sent(worker.tick(2.0), Heartbeat)
    assert [n for _, n, _ in beat.held] == [2]
    assert not sent(worker.end(1), Result), "what comes of it is dropped"


# ------------------------------------------------------- suspects of a crash (rule `crashes`)


def suspects_of(politeness: Politeness, silent_s: float) -> int:
    """How many of eight requests of one host may have killed their worker, which had started two
    of them when its last heartbeat came, so long ago."""
    story = LeaderStory().elect()
    story.submit(*urls(1), of=spec(politeness))
    story.join()
    state = story.leader.state
    info, (host, *_) = state.roster.workers["w1"], state.planner.hosts
    leases = []
    for seq in range(100, 108):
        lease = state.leases.open((1, seq), row(seq, host=host), info, 1, story.now)
        lease.started_at = story.now if seq < 102 else None
        leases.append(lease)
    info.beat_at = story.now
    blamed = suspects(leases[::-1], state.planner.hosts, info, story.now + silent_s)
    named = sorted(seq for seq in blamed if seq)
    assert named == list(range(100, 100 + len(named))), "those that came first start first"
    return len(named)


def test_what_cannot_have_started_is_not_a_suspect() -> None:
    """Rule `crashes`, by the host's pace: two had started, and one more in every two seconds may
    have."""
    slow = Politeness(robots=False, rate=0.5, concurrency=8)
    assert suspects_of(slow, silent_s=0.5) == 2 + 1 + 1
    assert suspects_of(slow, silent_s=3.0) == 2 + 1 + 2
    assert suspects_of(slow, silent_s=60.0) == 2 + 1 + 4, "it starts nothing after its permission"


def test_without_a_pace_everything_may_have_started() -> None:
    """Since the last heartbeat: whoever kills a worker within a second must not get away."""
    assert suspects_of(Politeness(robots=False, rate=0, concurrency=8), silent_s=0.1) == 8


def test_what_had_not_started_is_leased_again_like_any_other() -> None:
    """Only suspects go one to a worker."""
    story = LeaderStory().elect()
    story.submit(*urls(1), of=spec(Politeness(robots=False, rate=0.5, concurrency=8)))
    story.join()
    state = story.leader.state
    info, (host, *_) = state.roster.workers["w1"], state.planner.hosts
    for seq in range(100, 108):
        lease = state.leases.open((1, seq), row(seq, host=host), info, 1, story.now)
        lease.started_at = story.now if seq < 102 else None
        state.planner.lease_adopted(info, lease.row)
    story.hear(hello(replaces=1), "w1", 2)
    trials = {seq for seq in state.planner.trials if seq >= 100}
    assert trials == {100, 101, 102, 103}
