"""What holds for every schedule, every downtime, every overlap and every net of dependencies."""

from __future__ import annotations

import itertools
import math

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from zcrawl.errors import JobError
from zcrawl.model.spec import After, Schedule
from zcrawl.schedule.catch_up import CATCH_UPS, GRACE_S, MOST_CAUGHT_UP, catch_up
from zcrawl.schedule.dependencies import (
    MODES,
    OUTCOMES,
    FinishedRun,
    circle_text,
    cycle_with,
    firings,
    matches,
)
from zcrawl.schedule.durations import duration_text, parse_duration
from zcrawl.schedule.jitter import start_of
from zcrawl.schedule.overlap import OVERLAPS, Overlap, overlap
from zcrawl.schedule.timetable import Timetable, due_after, due_times, timetable

NOW = st.integers(1_700_000_000, 1_900_000_000)
FIELD = st.sampled_from(["*", "*/7", "0", "5", "1-3", "2,4"])
ZONE = st.sampled_from(
    ["UTC", "Europe/Dublin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca"]
)
CRON = st.builds(
    lambda fields, zone: Schedule(cron=" ".join(fields), timezone=zone),
    st.tuples(FIELD, FIELD, st.sampled_from(["*", "1", "15-20"]), st.just("*"), FIELD),
    ZONE,
)
EVERY = st.builds(
    lambda seconds, start: Schedule(every=f"{seconds}s", start=start),
    st.integers(1, 10**6),
    st.sampled_from(["", "2024-02-29", "2026-07-01T03:04:05"]),
)
AT = st.builds(Schedule, at=st.sampled_from(["2025-03-30T02:30", "2030-01-01"]), timezone=ZONE)
SCHEDULE = st.one_of(CRON, EVERY, AT)


@given(SCHEDULE, NOW, NOW)
def test_the_next_due_time_is_the_first_one_after_now(
    schedule: Schedule, created: int, now: int
) -> None:
    """It lies after now, there is none in between, and from just before it, it is the next too."""
    times = timetable(schedule, created)
    due = due_after(times, now)
    if due is None:
        assert due_times(times, now, math.inf if schedule.at else now + 10**9, 1) == []
        return
    assert due > now
    assert due == int(due)
    assert due_times(times, now, due, 5) == [due]
    assert due_after(times, due - 1) == due


@given(SCHEDULE, NOW, NOW, st.integers(0, 10**6), st.integers(1, 20))
def test_due_times_backwards_are_due_times_forwards(
    schedule: Schedule, created: int, now: int, span: int, most: int
) -> None:
    """Both ways through a span lead over the same times."""
    times = timetable(schedule, created)
    backwards = due_times(times, now, now + span, most)
    assert len(backwards) <= most
    forwards, due = [], due_after(times, backwards[0] - 1 if backwards else now)
    while due is not None and due <= now + span:
        forwards.append(due)
        due = due_after(times, due)
    assert forwards == backwards


@given(SCHEDULE, NOW, st.integers(0, 10**7), st.sampled_from(CATCH_UPS))
def test_after_downtime_each_due_time_is_late_on_time_or_missed(
    schedule: Schedule, handled: int, downtime: int, rule: str
) -> None:
    """On-time ones fire always, of the late ones those of the rule, at most 100 together."""
    times, now = timetable(schedule, handled), handled + downtime
    result = catch_up(times, handled, now, rule)
    due = due_times(times, handled, now, MOST_CAUGHT_UP)
    assert list(result.due) == sorted(set(result.due))
    assert set(result.due) <= set(due)
    assert len(result.due) <= MOST_CAUGHT_UP
    assert all(moment >= now - GRACE_S for moment in result.on_time)
    assert all(moment < now - GRACE_S for moment in result.late)
    assert list(result.on_time) == [moment for moment in due if moment >= now - GRACE_S]
    late = due[: len(due) - len(result.on_time)]
    expected = {"none": [], "all": late, "last": [] if result.on_time else late[-1:]}
    assert list(result.late) == expected[rule]
    if result.missed == 0:
        assert list(result.due) == due


@given(SCHEDULE, NOW, st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_second_leader_finds_nothing_left(
    schedule: Schedule, handled: int, downtime: int, later: int
) -> None:
    """What is handled up to a moment is not due again, and what comes later is not lost."""
    times, now = timetable(schedule, handled), handled + downtime
    first = set(due_times(times, handled, now, 10**4))
    second = set(due_times(times, now, now + later, 10**4))
    assume(len(first) + len(second) < 10**4)
    assert not first & second
    assert sorted(first | second) == due_times(times, handled, now + later, 10**4)


@given(st.integers(1), NOW, st.integers(0, 86_400))
def test_a_run_starts_at_its_due_time_or_within_the_jitter(job: int, due: int, jitter: int) -> None:
    """Never earlier, never as late as the whole jitter."""
    start = start_of(job, due, jitter)
    assert due <= start < due + max(jitter, 1)


@given(st.sampled_from(OVERLAPS), st.integers(0, 5), st.integers(0, 1))
def test_an_overlap_does_what_its_policy_promises(policy: str, live: int, waiting: int) -> None:
    """Runs overlap only if the policy allows it, one firing waits at most, and nothing waits for
    nothing."""
    decision = overlap(policy, live, waiting)
    if decision is Overlap.START:
        assert policy == "allow" or not live
    if decision is Overlap.WAIT:
        assert (policy, waiting) == ("queue", 0)
        assert live
    if decision is Overlap.CANCEL_AND_START:
        assert policy == "cancel"
        assert live
    if not live and not waiting:
        assert decision is Overlap.START
    if policy in ("allow", "cancel"):
        assert decision not in (Overlap.SKIP, Overlap.SKIP_QUEUED)


NAMES = ("a", "b", "c", "d", "e")
GRAPH = st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3))


@given(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3), GRAPH)
def test_a_circle_is_reported_exactly_if_there_is_one(
    name: str, parents: list[str], graph: dict[str, list[str]]
) -> None:
    """It begins and ends with the job, and each job of it starts the next."""
    circle = cycle_with(name, parents, graph)
    whole = {**graph, name: parents}
    for first, second in itertools.pairwise(circle):
        assert first in whole[second]
    ancestors: set[str] = set()
    layer = set(parents)
    while layer - ancestors:
        ancestors |= layer
        layer = {parent for job in layer for parent in whole.get(job, ())}
    assert bool(circle) == (name in ancestors)
    if circle:
        assert circle[0] == circle[-1] == name
        assert len(set(circle)) == len(circle) - 1
        assert circle_text(circle).count(" -> ") == len(circle) - 1


PARENTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(OUTCOMES), min_size=1)
FINISHED = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(OUTCOMES)), max_size=12)


@given(PARENTS, st.sampled_from(MODES), FINISHED)
def test_a_child_uses_each_run_of_its_parents_at_most_once(
    parents: dict[str, str], mode: str, finished: list[tuple[str, str]]
) -> None:
    """Played run by run, as the leader does. `any` uses each matching run; `all` fires only if each
    parent has a new one, and leaves no matching run behind when it does."""
    after = tuple(After(job, on) for job, on in parents.items())
    unused: list[FinishedRun] = []
    used: set[int] = set()
    for number, (job, outcome) in enumerate(finished):
        unused.append(FinishedRun(job, number, outcome))
        for firing in firings(after, mode, unused):
            assert not used & set(firing.used)
            assert set(firing.parents) <= set(firing.used)
            used |= set(firing.used)
            assert len(firing.parents) == (1 if mode == "any" else len(parents))
            jobs = {finished[run][0] for run in firing.parents}
            assert jobs == set(parents) if mode == "all" else jobs <= set(parents)
            unused = [run for run in unused if run.run not in used]
            if mode == "all":
                assert not any(
                    matches(parent, run.outcome)
                    for run in unused
                    for parent in after
                    if parent.job == run.job
                )
    matching = [
        run.job
        for run in unused
        if run.job in parents and matches(After(run.job, parents[run.job]), run.outcome)
    ]
    assert set(matching) < set(parents) if mode == "all" else not matching


@given(st.integers(0, 3_660 * 86_400))
def test_a_duration_is_read_as_it_is_written(seconds: int) -> None:
    """Text and number are one thing."""
    assert parse_duration("key", duration_text(seconds)) == seconds


@given(st.text(max_size=60))
def test_nonsense_is_refused_as_nonsense(text: str) -> None:
    """Whatever somebody writes in [schedule], the answer is a schedule or a named error."""
    for key in ("cron", "timezone", "every", "at", "start", "end"):
        try:
            times = timetable(msgspec.structs.replace(Schedule(), **{key: text}), 0.0)
        except JobError as error:
            assert key in str(error)
        else:
            assert isinstance(times, Timetable)
            due_after(times, 1_800_000_000.0)
