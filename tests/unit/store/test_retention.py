"""The rule that decides which ended runs are removed."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.model.spec import Retention
from zcrawl.model.states import RunState
from zcrawl.store.retention import (
    DAY_S,
    ENDED,
    EndedRun,
    RemovalRule,
    Retentions,
    oldest_to_remove,
    rule_of,
    runs_to_remove,
)

NOW = 1_000 * DAY_S
rules = st.builds(
    RemovalRule,
    keep_runs=st.integers(0, 6),
    keep_days=st.sampled_from([0.0, 0.5, 3.0, 900.0]),
)
histories = st.lists(st.tuples(st.sampled_from(ENDED), st.floats(0, NOW + DAY_S)), max_size=12).map(
    lambda rows: [EndedRun(len(rows) - n, *row) for n, row in enumerate(rows)]
)


@given(rules, histories, st.booleans())
def test_each_limit_is_kept_and_nothing_else_goes(
    rule: RemovalRule, runs: list[EndedRun], needed: bool
) -> None:
    """What goes is beyond a limit; what stays is within both, or the newest completed run that
    others depend on."""
    removals = list(runs_to_remove(rule, iter(runs), NOW, needed=needed))
    gone = {run.id for run, _ in removals}
    completed = [run.id for run in runs if run.state is RunState.COMPLETED]
    protected = set(completed[:1]) if needed else set()
    for number, run in enumerate(runs):
        too_many = bool(rule.keep_runs) and number >= rule.keep_runs
        age_s = NOW - run.ended_at
        too_old = bool(rule.keep_days and run.ended_at) and age_s > rule.keep_days * DAY_S
        assert (run.id in gone) == ((too_many or too_old) and run.id not in protected)
    assert all("keep_runs is" in why or "keep_days is" in why for _, why in removals)


@given(rules, histories)
def test_removing_is_settled_at_once(rule: RemovalRule, runs: list[EndedRun]) -> None:
    """When the removed runs are gone the same rule removes no other."""
    gone = {run.id for run, _ in runs_to_remove(rule, runs, NOW)}
    left = [run for run in runs if run.id not in gone]
    assert not list(runs_to_remove(rule, left, NOW))


@given(rules, histories, st.integers(0, 12), st.integers(1, 4))
def test_the_oldest_come_first(
    rule: RemovalRule, runs: list[EndedRun], after: int, limit: int
) -> None:
    """So that a removal that stops halfway leaves the newer ones."""
    everything = sorted(run.id for run, _ in runs_to_remove(rule, runs, NOW))
    some = oldest_to_remove(runs_to_remove(rule, runs, NOW), after, limit)
    assert [run.id for run, _ in some] == [id for id in everything if id > after][:limit]


def test_the_jobs_own_values_win_and_zero_is_no_limit() -> None:
    """A key that the job does not set has the masters' value."""
    defaults = Retention(keep_runs=5, keep_days=30.0, archive="s3://old/runs")
    assert rule_of(Retention(), defaults) == RemovalRule(5, 30.0, "s3://old/runs")
    own = Retention(keep_runs=0, keep_days=0.0, archive="mine", archive_format="parquet")
    assert rule_of(own, defaults) == RemovalRule(0, 0.0, "mine", "parquet", True)
    assert rule_of(Retention(keep_runs=2), Retention()) == RemovalRule(2)


def test_jobs_that_others_depend_on_are_found() -> None:
    """By `after` in each of its forms, and by `seeds_from`; nonsense depends on nothing."""
    retentions = Retentions(Retention(keep_runs=1))
    for name in ("a", "b", "c", "d"):
        retentions.add(len(retentions.jobs) + 1, name, msgspec.json.encode({"name": name}))
    for links in (
        {"schedule": {"after": "a"}},
        {"schedule": {"after": [{"job": "b", "on": "end"}, 7, {"job": None}]}},
        {"seeds_from": {"job": "c", "field": "url"}, "schedule": None},
        {"schedule": 5},
    ):
        retentions.add(9, "child", msgspec.json.encode({"name": "child", **links}))
    retentions.add(10, "broken", b"\xff{")
    needed = [job.name for job in retentions.jobs if retentions.is_needed(job)]
    assert needed == ["a", "b", "c"]
