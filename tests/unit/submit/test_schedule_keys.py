"""The `[schedule]` section and `seeds_from`: what is read, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from zcrawl.errors import JobError
from zcrawl.model.spec import After, JobSpec, Schedule, SeedsFrom
from zcrawl.submit.read import from_json, job_schema, parse_job, to_json
from zcrawl.submit.schedule import check_future, check_parents

SCHEDULE = 'name = "j"\n[schedule]\n'


def test_the_keys_are_read() -> None:
    """As they are written, and the stored form is read back as the same."""
    text = (
        'cron = "0 3 * * *"\ntimezone = "Europe/Berlin"\njitter = "5m"\noverlap = "queue"\n'
        'catch_up = "last"\nstart = "2026-01-01"\nend = "2036-01-01T12:00"\nafter_mode = "any"\n'
        'after = ["a", { job = "b", on = "failure" }]'
    )
    spec = parse_job(SCHEDULE + text, "j.toml")
    assert spec.schedule == Schedule(
        cron="0 3 * * *", timezone="Europe/Berlin", jitter="5m", overlap="queue", catch_up="last",
        start="2026-01-01", end="2036-01-01T12:00", after_mode="any",
        after=(After("a"), After("b", "failure")),
    )  # fmt: skip
    assert from_json(to_json(spec)) == spec


def test_times_may_have_no_quotes() -> None:
    """TOML has times of its own, with and without an offset."""
    text = "at = 2026-12-01T03:00:00\nstart = 2026-01-01\nend = 2027-01-01T00:00:00Z"
    schedule = parse_job(SCHEDULE + text, "j.toml").schedule
    assert (schedule.at, schedule.start) == ("2026-12-01T03:00:00", "2026-01-01")
    assert schedule.end == "2027-01-01T00:00:00+00:00"


def test_a_job_can_have_parents_only() -> None:
    """`after` needs no times."""
    spec = parse_job(SCHEDULE + 'after = ["a"]', "j.toml")
    assert spec.schedule.after == (After("a", "success"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('cron = "0 3 * * *"\nevery = "1h"', "schedule has cron and every; a job has one of"),
        ('timezone = "Europe/Berlin"', "no cron, every, at or after"),
        ('after = ["a"]\njitter = "5m"', "schedule.jitter needs cron, every or at"),
        ('after = ["a"]\nstart = "2026-01-01"', "schedule.start needs cron, every or at"),
        ('cron = "0 0 30 2 *"', "schedule.cron '0 0 30 2 *': it never fires"),
        ('cron = "0 3 * * *"\ntimezone = "Mars"', "schedule.timezone 'Mars' does not exist"),
        ('every = "0s"', "schedule.every is '0s'; it must be at least 1s"),
        ("every = 15", "schedule.every: text in quotes is needed, not a whole number"),
        (
            'every = "1m"\njitter = "2m"',
            "schedule.jitter is '2m'; it can be at most schedule.every",
        ),
        ('cron = "0 3 * * *"\njitter = "2d"', "at most 1d"),
        ('every = "1m"\noverlap = "stop"', "use one of skip, queue, cancel, allow"),
        ('every = "1m"\ncatch_up = "some"', "use one of none, last, all"),
        ('after = ["a"]\nafter_mode = "one"', "schedule.after_mode is 'one'; use one of all, any"),
        ('every = "1m"\nstart = "2027-01-01"\nend = "2026-01-01"', "the start must come first"),
        ('at = "2026-05-01"\nend = "2026-01-01"', "has no due time until schedule.end"),
        (
            'cron = "0 0 1 1 *"\nstart = "2026-01-02"\nend = "2026-12-31"',
            "schedule.cron is '0 0 1 1 *' and has no due time until schedule.end, '2026-12-31'",
        ),
        ('at = "2026-05-01"\nstart = "2026-06-01"', "is not between schedule.start"),
        ('at = "soon"', "schedule.at is 'soon', which is not a time"),
        ("after = 'a'", 'write it in brackets: ["..."]'),
        ('after = [""]', "schedule.after, entry 1 is empty"),
        ('after = ["j"]', "the job would start itself: j -> j"),
        ('after = ["a", "a"]', "schedule.after has 'a' twice"),
        ('after = [{ job = "a", on = "done" }]', "use one of success, failure, end"),
        ('after = [{ on = "end" }]', "the key 'job' is missing"),
        ('after = [{ job = "a", whn = "end" }]', "whn"),
        (f"after = {[f'a{n}' for n in range(101)]}", "has 101 entries; at most 100"),
        ('crom = "0 3 * * *"', "did you mean 'schedule.cron'?"),
        ('depends_on = ["a"]', "did you mean 'schedule.after'?"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, message: str) -> None:
    """With the key, the value and what to write instead."""
    with pytest.raises(JobError) as caught:
        parse_job(SCHEDULE + text, "j.toml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('seeds_from = { field = "link" }', "seeds_from has no job"),
        ('seeds_from = { job = "j" }', "the job itself"),
        ('seeds_from = { job = "a", field = "" }', "seeds_from.field has 0 characters"),
        ('seeds_from = { job = "a", fild = "x" }', "did you mean 'seeds_from.field'?"),
        ('seeds_from = "a"', "seeds_from"),
    ],
)
def test_a_source_of_seeds_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    """With the key and what to write instead."""
    with pytest.raises(JobError) as caught:
        parse_job(f'name = "j"\n{text}', "j.toml")
    assert message in str(caught.value)


def test_the_field_of_the_items_is_url_by_default() -> None:
    """The default item has it."""
    spec = parse_job('name = "j"\nseeds_from = { job = "lists" }', "j.toml")
    assert spec.seeds_from == SeedsFrom("lists", "url")


def child(*parents: str, name: str = "child", seeds_from: str = "") -> JobSpec:
    after = tuple(After(parent) for parent in parents)
    return JobSpec(name, schedule=Schedule(after=after), seeds_from=SeedsFrom(seeds_from))


def check_of(spec: JobSpec, graph: dict[str, tuple[str, ...]], deleted: Any = ()) -> None:
    check_parents(spec.name, spec.schedule, spec.seeds_from, graph, deleted)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (child("lsits"), "schedule.after: the job 'lsits' does not exist; did you mean 'lists'?"),
        (child("zzz"), "schedule.after: the job 'zzz' does not exist; submit it first"),
        (child("gone"), "schedule.after: the job 'gone' has been deleted; submit it again first"),
        (child(seeds_from="zzz"), "seeds_from.job: the job 'zzz' does not exist"),
        (child("b", name="lists"), "lists -> a -> b -> lists"),
        (child("lists", name="lists"), "lists -> lists"),
    ],
)
def test_parents_that_do_not_exist_and_circles_are_refused(spec: JobSpec, message: str) -> None:
    """The circle is printed in the order in which its jobs would start each other."""
    graph: dict[str, tuple[str, ...]] = {"lists": (), "a": ("lists",), "b": ("a",)}
    with pytest.raises(JobError) as caught:
        check_of(spec, graph, deleted={"gone"})
    assert message in str(caught.value)
    assert caught.value.code == "bad_dependency"


def test_an_update_may_turn_a_chain_around() -> None:
    """The old parents of the submitted job do not count."""
    check_of(child("b", name="a"), {"a": ("b",), "b": ()})
    with pytest.raises(JobError, match="a -> b -> a"):
        check_of(child("b", name="a"), {"a": (), "b": ("a",)})


def test_a_schedule_in_the_past_is_refused_at_submit() -> None:
    """A stored job may have one: its only due time was there."""
    past = parse_job(SCHEDULE + 'at = "2026-01-01"', "j.toml").schedule
    check_future(past, 1_700_000_000.0)
    with pytest.raises(JobError, match=r"schedule.at is '2026-01-01', which is in the past"):
        check_future(past, 1_800_000_000.0)
    with pytest.raises(JobError, match=r"schedule.end is '2026-01-01', which is in the past"):
        check_future(Schedule(every="1h", end="2026-01-01"), 1_800_000_000.0)
    check_future(Schedule(after=(After("a"),)), 1_800_000_000.0)


def test_editors_know_the_short_form_of_after() -> None:
    """The JSON Schema allows texts among the parents."""
    items = job_schema()["$defs"]["Schedule"]["properties"]["after"]["items"]
    assert {"type": "string"} in items["anyOf"]
