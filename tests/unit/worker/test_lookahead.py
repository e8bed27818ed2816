"""URLs that workers hold ahead of the pace: whose credit they take, and how they are taken back."""

from __future__ import annotations

from tests.unit.desk_tools import answer, leading
from tests.unit.dispatch.test_planner import Office
from tests.unit.machine_tools import (
    LeaderStory,
    assignment,
    grant,
    result_of,
    run_row,
    spec,
    urls,
)
from tests.unit.worker.test_worker_machine import Worker, sent, started
from zcrawl.mesh.messages import Assign, Cancel, Reject, Rejection
from zcrawl.mesh.timing import LOOKAHEAD_S, WINDOW_RESULTS
from zcrawl.model.reasons.waiting import WITHDRAWN
from zcrawl.model.spec import Politeness
from zcrawl.model.vitals import WorkerVitals

TWO_A_SECOND = Politeness(robots=False, rate=2.0, concurrency=1)


def paced(hosts: int, each: int, slots: int = 8, rate: float = 0.0) -> Office:
    """An office with one worker and so many hosts at two requests a second."""
    office = Office(TWO_A_SECOND, workers=0)
    office.join("w1", slots)
    office.roster.workers["w1"].vitals = WorkerVitals(slots=slots, rate=rate)
    for host in range(1, hosts + 1):
        office.add(each, host)
    return office


def test_what_waits_for_a_slow_host_takes_no_credit_of_others() -> None:
    """A host without a pace gets all that the worker can start, whatever is held of slow ones."""
    office = paced(hosts=20, each=30, slots=32, rate=40.0)
    office.plan()
    worker = office.roster.workers["w1"]
    assert worker.ahead == 20 * 10
    assert worker.leases - worker.ahead == 20
    office.runs.put(run_row(2, spec(Politeness(robots=False, rate=0, concurrency=50))))
    office.add(30, host=99, run=2)
    fast = [url for _, url in office.plan(1.0) if url.host == 99]
    assert len(fast) == 20, "1.25 times its slots, without what starts now of the slow ones"


def test_what_is_held_ahead_fits_into_the_outbox() -> None:
    """However many hosts a worker has: what it fetches while nobody leads has its place."""
    office = paced(hosts=200, each=30, rate=400.0)
    for _ in range(30):
        office.plan(0.2)
    assert office.roster.workers["w1"].leases <= WINDOW_RESULTS


def test_a_worker_holds_no_more_ahead_than_it_does_in_that_time() -> None:
    """One whose slots are full would hold what others could do."""
    office = paced(hosts=200, each=30, slots=4, rate=4.0)
    for _ in range(30):
        office.plan(0.2)
    worker = office.roster.workers["w1"]
    assert worker.ahead <= 1.25 * LOOKAHEAD_S * 4.0


def test_a_new_run_is_not_kept_waiting_by_what_others_hold_ahead() -> None:
    """Its first URL goes at once, and the next when that one is done."""
    office = paced(hosts=1, each=30)
    assert len(office.plan()) > 5
    office.runs.put(run_row(2, office.spec))
    office.add(5, run=2)
    sent_now = [url for _, url in office.plan(0.01)]
    assert [url.run for url in sent_now] == [2]
    assert office.plan(0.01) == []
    office.receive(sent_now[0].seq)
    assert [url.run for _, url in office.plan(0.01)] == [2]


def test_a_worker_takes_runs_in_turn_and_each_by_priority() -> None:
    """What comes later may be more urgent than what is held already."""
    worker = Worker()
    worker.welcome(grant(concurrency=1))
    held = [assignment(n, n, prio=5) for n in (1, 2, 3)]
    held += [assignment(4, 4, prio=1), assignment(5, 5, run=2, prio=9)]
    order = started(worker.say(Assign([], held[:3])))
    worker.machine.assignments._runs[2] = 1
    worker.say(Assign([], held[3:]))
    for _ in range(4):
        order += started(worker.end(order[-1]))
    assert order == [1, 4, 5, 2, 3]


def test_a_worker_gives_back_what_is_withdrawn_and_has_not_started() -> None:
    """What runs is finished; what it does not hold is passed over."""
    worker = Worker()
    worker.welcome(grant(concurrency=1))
    assert started(worker.assign(1, 2, 3)) == [1]
    effects = worker.say(Cancel([], [], [(1, 1), (1, 3), (1, 99)]))
    assert [reject.leases for reject in sent(effects, Reject)] == [[Rejection(1, 3, WITHDRAWN)]]
    assert started(worker.end(1)) == [2]
    assert not worker.machine.intake.queued()


def withdrawn(story: LeaderStory) -> list[tuple[int, int]]:
    return [token for cancel in story.bodies(Cancel) for token in cancel.withdrawn]


def busy() -> LeaderStory:
    """A worker that holds some seconds of URLs, of which the first runs."""
    story = leading(*urls(30), politeness=TWO_A_SECOND)
    story.wait(1.0, lambda: beat(story))
    assert len(story.assigned()) > 5
    return story


def beat(story: LeaderStory) -> None:
    given_back = set(withdrawn(story)) if story.bodies(Reject) else set()
    tokens = [(1, request.n, n == 0) for n, request in enumerate(story.assigned())]
    held = [token for token in tokens if token[:2] not in given_back]
    assigned = max(
        (message.sequence for message in story.sent if isinstance(message.body, Assign)), default=0
    )
    story.beat(held=held, assigned=assigned)


def test_a_pause_takes_back_what_has_not_started() -> None:
    """All that the worker holds of the run is named; what comes back is queued, and not sent."""
    story = busy()
    held = [(1, request.n) for request in story.assigned()]
    answer(story, "act", ref="1", action="pause")
    assert sorted(withdrawn(story)) == sorted(held)
    story.hear(Reject([Rejection(epoch, n, WITHDRAWN) for epoch, n in held[1:]]))
    before = len(story.assigned())
    story.wait(1.0, lambda: story.beat(held=[(*held[0], True)]))
    assert len(story.leader.state.leases.by_seq) == 1
    assert len(story.assigned()) == before
    answer(story, "act", ref="1", action="resume")
    story.wait(1.0, lambda: story.beat(held=[(*held[0], True)]))
    assert len(story.assigned()) > before, "and at once, not after what was held before"


def test_a_pause_that_was_not_heard_is_said_again() -> None:
    """By its heartbeats the worker still holds what it must not start."""
    story = busy()
    answer(story, "act", ref="1", action="pause")
    before = len(withdrawn(story))
    story.wait(1.0, lambda: beat(story))
    assert len(withdrawn(story)) > before


def test_another_pace_takes_back_what_was_sent_for_the_old_one_and_is_told_at_once() -> None:
    """The worker would go on with the old one until it got the next URL."""
    story = busy()
    answer(story, "tune", ref="1", rate=0.1)
    assert len(withdrawn(story)) == len(story.assigned())
    grants = [host_grant for body in story.bodies(Assign) for host_grant in body.grants]
    assert grants[-1].interval_s == 10.0


def test_nothing_is_sent_ahead_that_could_start_only_after_the_hours_end() -> None:
    """And what a worker holds when they end is taken back."""
    story = LeaderStory().elect()
    second = (story.now + 1_700_000_000.0) % 86_400
    ends = (second + 90.0) // 60 * 60  # a full minute, 30 to 90 s from now
    text = f"00:00-{int(ends // 3600):02d}:{int(ends % 3600 // 60):02d}"
    politeness = Politeness(robots=False, rate=2.0, concurrency=1, hours=(text,))
    story.submit(*urls(400), of=spec(politeness))
    story.join()
    left = ends - (story.now + 1_700_000_000.0) % 86_400
    done = 0

    def work() -> None:
        nonlocal done
        mine = story.assigned()
        if done < len(mine) - 8:
            story.publish(result_of(mine[done]))
            done += 1
        held = [(1, request.n, False) for request in mine[done:]]
        story.beat(held=held, produced=done)

    story.wait(left - 0.5, work)
    before = len(story.assigned())
    assert before > 20
    unstarted = [(1, request.n, False) for request in story.assigned()[done:]]
    story.wait(2.0, lambda: story.beat(held=unstarted, produced=done))
    assert len(story.assigned()) <= before + 1
    assert {token[:2] for token in unstarted} <= set(withdrawn(story))


def test_only_what_may_have_started_is_suspected_of_a_crash() -> None:
    """Rule `crashes`: of what waited for its host's pace, the next few; the rest is simply
    queued again."""
    story = busy()
    held = story.assigned()
    story.join(incarnation=2, replaces=1)
    trials = story.leader.state.planner.trials
    assert held[0].seq in trials or held[0].seq in {
        request.seq for request in story.assigned()[len(held) :]
    }
    assert len(trials) <= 5 < len(held)
