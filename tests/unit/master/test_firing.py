"""A leader that starts runs by schedules and after parents, told as stories on the fake store."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.unit.desk_tools import answer
from tests.unit.machine_tools import NO_PACE, UTC, LeaderStory, result_of
from zcrawl.errors import Fenced
from zcrawl.master.events import ScheduleDefaultsChanged
from zcrawl.master.feeding import LEAST_ITEMS
from zcrawl.master.master import Master
from zcrawl.mesh.messages import Reply
from zcrawl.model.spec import After, Fetch, JobSpec, Schedule, ScheduleDefaults, SeedsFrom
from zcrawl.model.states import RunState
from zcrawl.schedule.jitter import start_of
from zcrawl.store.commands import AdmitFed, Command, FireJob, SubmitJob
from zcrawl.submit.output_rights import OutputRights
from zcrawl.submit.read import from_json
from zcrawl.testing.store.tables import FakeRun

EVERY = 10.0


def timed(**changes: Any) -> Schedule:
    return Schedule(**{"every": f"{EVERY:.0f}s", **changes})


def store(story: LeaderStory, name: str = "nightly", **changes: Any) -> int:
    """Submit a job that is only stored; return its id."""
    seeds = ("http://a.test/",)
    spec = JobSpec(**{"name": name, "seeds": seeds, "politeness": NO_PACE, **changes})
    data = story.submit(of=spec, no_run=True)
    assert data["run"] == 0
    job: int = data["job"]
    return job


def runs(story: LeaderStory, name: str = "nightly") -> list[FakeRun]:
    return [run for run in story.store.tables.runs.values() if run.job.name == name]


def due(story: LeaderStory, name: str = "nightly") -> list[float]:
    """The due times of the job's runs, since its creation."""
    return [(run.start_facts.due_at or 0.0) - int(run.job.created_at) for run in runs(story, name)]


def note(story: LeaderStory, name: str = "nightly") -> str:
    (job,) = (job for job in story.store.tables.jobs.values() if job.name == name)
    return job.due_note


def finish(story: LeaderStory, run: int, **changes: Any) -> None:
    """A worker fetches all pages of a run."""
    story.tick()
    for assignment in story.assigned():
        if assignment.run == run:
            story.report(result_of(assignment, story.master.epoch, **changes))


def working() -> LeaderStory:
    story = LeaderStory().elect()
    story.join()
    return story


def restarted(story: LeaderStory, away_s: float) -> LeaderStory:
    """The next leader, after a while without one."""
    new = LeaderStory(story.store, "m2", story.now + away_s).elect()
    new.numbers, new.request_count = story.numbers, story.request_count + 100
    return new


# ---------------------------------------------------------------- due times


def test_a_job_runs_when_it_is_due() -> None:
    """Each due time starts one run, with its seeds, and the leader sleeps until then."""
    story = LeaderStory().elect()
    store(story, schedule=timed(overlap="allow"))
    story.wait(9)
    assert runs(story) == []
    assert story.leader.firing.next_wakeup() == pytest.approx(story.now + 1, abs=0.6)
    story.wait(12)
    assert due(story) == [10, 20]
    assert [run.admitted for run in runs(story)] == [1, 1]


def test_skip_leaves_out_what_is_due_beside_a_live_run() -> None:
    """It is the default, and the job says which run was in the way."""
    story = LeaderStory().elect()
    store(story, schedule=timed())
    story.wait(31)
    assert due(story) == [10]
    assert note(story).endswith("was skipped: run 1 is still running")
    answer(story, "act", ref="nightly", action="cancel")
    story.wait(10)
    assert due(story) == [10, 40]


def test_queue_holds_one_due_time() -> None:
    """It starts when no run is alive; others are left out meanwhile. It survives its leader."""
    story = LeaderStory().elect()
    store(story, schedule=timed(overlap="queue"))
    story.wait(21)
    assert due(story) == [10]
    assert note(story).endswith("waits for the end of run 1")
    story = restarted(story, 5.0)
    story.wait(8)
    assert note(story).endswith("was skipped: another one waits already")
    answer(story, "act", ref="nightly", action="cancel")
    story.tick()
    assert due(story) == [10, 20]
    answer(story, "act", ref="nightly", action="cancel")
    story.wait(10)
    assert due(story) == [10, 20, 40]


def test_cancel_ends_the_older_run() -> None:
    """The new one starts in the same transaction."""
    story = LeaderStory().elect()
    store(story, schedule=timed(overlap="cancel"))
    story.wait(21)
    assert [run.state for run in runs(story)] == [RunState.CANCELLED, RunState.PENDING]
    assert story.leader.state.runs.active.keys() == {2}


def test_jitter_delays_the_start_and_not_the_due_time() -> None:
    """The same on each leader: it follows from the job and the due time."""
    story = LeaderStory().elect()
    job = store(story, schedule=timed(overlap="allow", jitter="10s"))
    story.wait(40)
    assert due(story)[:2] == [10, 20]
    for run in runs(story):
        start = start_of(job, run.start_facts.due_at or 0.0, 10)
        assert start <= run.created_at < start + 0.5


@pytest.mark.parametrize("rule", ["none", "last", "all"])
def test_after_a_failover_what_was_due_meanwhile_is_on_time(rule: str) -> None:
    """For a minute. What is older is caught up as the job says."""
    story = LeaderStory().elect()
    schedule = Schedule(every="10s", overlap="allow", catch_up=rule)
    store(story, schedule=schedule)
    story = restarted(story, 101.0)
    story.wait(4)
    on_time = [float(moment) for moment in range(50, 101, 10)]
    late = {"none": [], "last": [], "all": [10.0, 20.0, 30.0, 40.0]}[rule]
    assert due(story) == late + on_time
    causes = [str(run.start_facts.cause) for run in runs(story)]
    assert causes == ["catch-up"] * len(late) + ["cron"] * len(on_time)


@pytest.mark.parametrize(
    ("rule", "expected"), [("none", []), ("last", [300]), ("all", [100, 200, 300])]
)
def test_after_downtime_due_times_are_caught_up_as_the_job_says(
    rule: str, expected: list[float]
) -> None:
    """One after the other: a late one waits for the end of the one before it."""
    story = LeaderStory().elect()
    store(story, schedule=Schedule(every="100s", catch_up=rule))
    story = restarted(story, 390.0)
    for _ in range(2):
        story.wait(1)
        for run in runs(story):
            if not run.state.ended:
                answer(story, "act", ref="nightly", action="cancel")
    assert due(story) == expected
    if rule == "none":
        assert note(story).endswith("3 due times passed without a run while nobody led")
    story.wait(20)
    assert due(story)[-1] == (400 if rule != "all" else 300)


def test_a_paused_job_starts_nothing_and_catches_nothing_up() -> None:
    """From its resumption on it runs again."""
    story = LeaderStory().elect()
    store(story, schedule=timed(overlap="allow", catch_up="all"))
    answer(story, "change_job", ref="nightly", state="paused")
    story.wait(25)
    assert runs(story) == []
    answer(story, "change_job", ref="nightly", state="active")
    story.wait(10)
    assert due(story) == [30]


def test_an_update_counts_from_now_on() -> None:
    """The new schedule, and the new spec."""
    story = LeaderStory().elect()
    store(story, schedule=timed(overlap="allow"))
    story.wait(5)
    spec = JobSpec(
        "nightly", seeds=("http://b.test/",), schedule=timed(every="4s", overlap="allow")
    )
    story.submit(of=spec, mode="update", no_run=True)
    story.wait(8)
    assert due(story) == [8, 12]
    story.submit(of=JobSpec("nightly", seeds=("http://b.test/",)), mode="update", no_run=True)
    story.wait(20)
    assert len(runs(story)) == 2
    assert {run.version for run in runs(story)} == {2}


def test_a_run_that_cannot_start_is_a_failed_run() -> None:
    """With the reason in words, and the next due time comes as ever."""
    story = LeaderStory().elect()
    store(story, seeds=(), schedule=timed())
    story.wait(21)
    assert [(run.state, run.reason) for run in runs(story)] == [
        (RunState.FAILED, "not_started: the job has no seeds of its own")
    ] * 2


def test_what_cannot_be_stored_starts_no_run_and_is_not_tried_for_ever() -> None:
    """The due time is dealt with, and says why."""
    story = LeaderStory().elect()
    store(story, schedule=timed())

    def fault(command: Command) -> Any:
        return "data_error" if isinstance(command, FireJob) and command.start else None

    story.store.faults = fault
    story.wait(11)
    assert runs(story) == []
    assert "the run cannot be stored: injected" in note(story)
    story.store.faults = None
    story.wait(10)
    assert due(story) == [20]


def test_a_store_that_is_away_delays_a_run() -> None:
    """It starts once, as soon as the store is back; also if the first commit was applied."""
    story = LeaderStory().elect()
    store(story, schedule=timed(overlap="allow"))
    faults = ["fail", "unknown_applied"]

    def fault(command: Command) -> Any:
        return faults.pop(0) if isinstance(command, FireJob) and faults else None

    story.store.faults = fault
    story.wait(13)
    assert due(story) == [10]
    assert story.leader.state.runs.active.keys() == {1}
    assert not faults


# ---------------------------------------------------------------- parents


def start(story: LeaderStory, name: str, **args: Any) -> int:
    """Run a stored job; return the number of the run."""
    reply = story.ask("submit", mode="again", ref=name, seeds=[], **args)
    assert reply is not None, name
    assert reply.ok, reply
    run: int = reply.data["run"]
    return run


def after(*parents: str, mode: str = "all") -> Schedule:
    """A schedule; `a:failure` is a parent that has to fail."""
    entries = [parent.partition(":") for parent in parents]
    return Schedule(
        after=tuple(After(job, on or "success") for job, _, on in entries), after_mode=mode
    )


def test_a_child_follows_its_parents() -> None:
    """By what they end as; `all` waits for each of them, `any` follows each."""
    story = working()
    store(story, "a")
    store(story, "good", schedule=after("a"))
    store(story, "bad", schedule=after("a:failure"))
    store(story, "any", schedule=after("a:end", "good", mode="any"))
    store(story, "both", schedule=after("a", "good"))
    first = start(story, "a")
    finish(story, first)
    story.tick()
    names = ("good", "bad", "any", "both")
    assert [len(runs(story, name)) for name in names] == [1, 0, 1, 0]
    finish(story, runs(story, "any")[0].id)
    finish(story, runs(story, "good")[0].id)
    story.tick()
    assert [len(runs(story, name)) for name in names] == [1, 0, 2, 1]
    children = [run for name in names for run in runs(story, name)]
    assert {(str(run.start_facts.cause), run.start_facts.chain) for run in children} == {
        ("dependency", first)
    }
    for run in children:
        finish(story, run.id)
    finish(story, start(story, "a"))
    story.tick()
    assert [len(runs(story, name)) for name in names] == [2, 0, 3, 1]


def test_a_chain_is_shown_as_a_tree() -> None:
    """From any of its runs; a run that follows two others is below the later one."""
    story = working()
    store(story, "a")
    store(story, "b", schedule=after("a"))
    store(story, "c", schedule=after("a", "b"))
    finish(story, start(story, "a"))
    story.tick()
    finish(story, runs(story, "b")[0].id)
    story.tick()
    for name in ("a", "b", "c"):
        chain = answer(story, "job", ref=name)["chain"]
        assert [(entry["name"], entry["state"], entry["depth"]) for entry in chain] == [
            ("a", "completed", 0),
            ("b", "completed", 1),
            ("c", "pending", 2),
        ]
    store(story, "alone")
    start(story, "alone")
    assert answer(story, "job", ref="alone")["chain"] == []


@pytest.mark.parametrize(
    ("state", "started"),
    [
        (RunState.COMPLETED, {"good", "any"}),
        (RunState.FAILED, {"bad", "any"}),
        (RunState.CANCELLED, {"any"}),
    ],
)
def test_what_a_parent_ended_as_decides_who_follows(state: RunState, started: set[str]) -> None:
    """Also if it ended while nobody led."""
    story = working()
    store(story, "a")
    for name, parent in (("good", "a"), ("bad", "a:failure"), ("any", "a:end")):
        store(story, name, schedule=after(parent))
    tables = story.store.tables
    tables.end(tables.runs[start(story, "a")], state, "", UTC + story.now)
    story = restarted(story, 30.0)
    story.tick()
    assert {run.job.name for run in tables.runs.values()} - {"a"} == started


def test_runs_before_the_child_was_there_start_nothing() -> None:
    """Only what ends from its submission on."""
    story = working()
    store(story, "a")
    finish(story, start(story, "a"))
    story.wait(1)
    store(story, "child", schedule=after("a"))
    story.wait(1)
    assert runs(story, "child") == []


def test_a_child_waits_for_the_end_of_its_own_run() -> None:
    """No run of a parent is lost, and no two of the child's runs overlap."""
    story = working()
    store(story, "a")
    store(story, "child", schedule=after("a", mode="any"))
    for _ in range(3):
        finish(story, start(story, "a"))
    for count in (1, 2, 3):
        story.tick()
        children = runs(story, "child")
        assert len(children) == count
        finish(story, children[-1].id)
    story.wait(1)
    assert len(runs(story, "child")) == 3


@pytest.mark.parametrize("overlap", ["skip", "cancel", "allow"])
def test_a_child_can_have_another_overlap(overlap: str) -> None:
    """Then a parent's run is used up, too: by a run, or by none."""
    story = working()
    store(story, "a")
    schedule = msgspec.structs.replace(after("a", mode="any"), overlap=overlap)
    store(story, "child", schedule=schedule)
    for _ in range(2):
        finish(story, start(story, "a"))
        story.tick()
    states = [run.state for run in runs(story, "child")]
    live = RunState.PENDING
    assert (
        states
        == {"skip": [live], "cancel": [RunState.CANCELLED, live], "allow": [live, live]}[overlap]
    )
    skipped = "the run after run 3 of a was skipped: run 2 is still running"
    assert note(story, "child").endswith(skipped) == (overlap == "skip")
    story = restarted(story, 1.0)
    story.wait(1)
    assert len(runs(story, "child")) == len(states)


def test_parameters_are_handed_down_a_chain() -> None:
    """Each job uses those that it declares, also behind one that declares none."""
    story = working()
    store(story, "a", seeds=("http://a.test/${params.day}",), params={"day": "monday"})
    store(story, "middle", schedule=after("a"))
    seeds = ("http://b.test/${params.day}/${params.size}",)
    declared = {"day": "sunday", "size": "big"}
    store(story, "last", seeds=seeds, params=declared, schedule=after("middle"))
    run = start(story, "a", params={"day": "friday"})
    assert [request.url for request in story.store.requests(run)] == ["http://a.test/friday"]
    assert from_json(story.store.tables.jobs[1].spec).seeds == ("http://a.test/${params.day}",)
    finish(story, run)
    story.tick()
    finish(story, runs(story, "middle")[0].id)
    story.tick()
    (last,) = runs(story, "last")
    assert [row.url for row in story.store.requests(last.id)] == ["http://b.test/friday/big"]
    assert json.loads(last.start_facts.params) == {"day": "friday"}
    assert answer(story, "job", ref="last")["params"] == {"day": "friday"}


def test_a_parameter_that_makes_nonsense_fails_the_childs_run() -> None:
    """With the reason; the parent is not to blame."""
    story = working()
    store(story, "a", params={"site": "b.test"}, fetch=Fetch(headers={"Referer": "${params.site}"}))
    seeds = ("http://${params.site}/",)
    store(story, "child", seeds=seeds, params={"site": "c.test"}, schedule=after("a"))
    finish(story, start(story, "a", params={"site": "not a host"}))
    story.tick()
    (run,) = runs(story, "child")
    assert run.state is RunState.FAILED
    assert run.reason.startswith("not_started: seeds, entry 1: not a valid URL")


# ---------------------------------------------------------------- items as seeds

ITEMS = 5 * LEAST_ITEMS


def feed(story: LeaderStory, *odd: Any) -> None:
    """Run a job whose items are the seeds of another one."""
    store(story, "lists")
    source = SeedsFrom("lists", "link")
    store(story, "pages", seeds=(), seeds_from=source, schedule=after("lists"))
    items = [*({"link": f"http://b.test/{n}"} for n in range(ITEMS)), *odd]
    finish(story, start(story, "lists"), items=[msgspec.json.encode(item) for item in items])
    story.wait(2)


def test_the_items_of_a_parent_are_the_seeds_of_its_child() -> None:
    """Chunk by chunk, each once; what is not a URL is left out and counted."""
    story = working()
    listed = {"link": ["http://b.test/x", None, "http://b.test/1"]}
    feed(story, {}, {"link": 7}, {"link": "nonsense"}, [], listed)
    (run,) = runs(story, "pages")
    urls = {request.url for request in story.store.requests(run.id)}
    assert urls == {f"http://b.test/{n}" for n in range(ITEMS)} | {"http://b.test/x"}
    assert (run.feed_at, run.seed_hosts) == (None, ["b.test"])
    left_out = [note.detail for note in story.notes if note.name == "seeds_left_out"]
    assert left_out == ["run 2: 4 items of run 1 have no URL in 'link'"]


def test_a_new_leader_goes_on_with_the_items_where_the_last_one_stopped() -> None:
    """The run does not end before the last item, and the old leader's chunk is not admitted."""
    story = working()
    chunks: list[AdmitFed] = []

    def hold_from_the_second_on(what: Any) -> bool:
        if isinstance(what, AdmitFed):
            chunks.append(what)
        return isinstance(what, AdmitFed) and len(chunks) > 1

    story.hold = hold_from_the_second_on
    feed(story)
    (run,) = runs(story, "pages")
    finish(story, run.id)
    assert (run.admitted, run.state.ended) == (LEAST_ITEMS, False)
    new = restarted(story, 1.0)
    new.wait(2)
    assert (run.admitted, run.feed_at) == (ITEMS, None)
    with pytest.raises(Fenced):
        story.store.execute(chunks[1])


def test_a_fed_run_without_a_run_of_its_parent_fails() -> None:
    """By hand and by its own schedule; once there is one, it is fed by the newest."""
    story = working()
    store(story, "lists")
    store(story, "pages", seeds=(), seeds_from=SeedsFrom("lists"), schedule=timed(every="1h"))
    start(story, "pages")
    (run,) = runs(story, "pages")
    assert (run.state, run.reason) == (RunState.FAILED, "no_parent_run")
    items = [b'{"url": "http://b.test/"}']
    finish(story, start(story, "lists"), items=items)
    number = start(story, "pages")
    story.wait(1)
    assert [request.url for request in story.store.requests(number)] == ["http://b.test/"]


# ---------------------------------------------------------------- submissions


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Schedule(after=(After("lsits"),)), "does not exist; did you mean 'lists'?"),
        (Schedule(after=(After("gone"),)), "has been deleted"),
        (Schedule(at="2000-01-01"), "is in the past"),
    ],
)
def test_a_schedule_that_never_starts_anything_is_refused(schedule: Schedule, message: str) -> None:
    """At submit, by name, and nothing is stored."""
    story = LeaderStory().elect()
    store(story, "lists")
    store(story, "gone")
    answer(story, "act", ref="gone", action="delete")
    spec = msgspec.to_builtins(JobSpec("child", seeds=("http://a.test/",), schedule=schedule))
    reply = story.ask("submit", spec=spec, mode="new", seeds=[])
    assert reply is not None
    assert not reply.ok
    assert message in reply.data["message"]
    assert "child" not in {job.name for job in story.store.tables.jobs.values()}


def test_jobs_that_would_start_each_other_for_ever_are_refused() -> None:
    """The circle is printed; a paused job is part of it."""
    story = LeaderStory().elect()
    store(story, "a")
    store(story, "b", schedule=Schedule(after=(After("a"),)))
    store(story, "c", schedule=Schedule(after=(After("b"),)))
    answer(story, "change_job", ref="b", state="paused")
    spec = JobSpec("a", seeds=("http://a.test/",), schedule=Schedule(after=(After("c"),)))
    args = {"spec": msgspec.to_builtins(spec), "mode": "update", "seeds": []}
    reply = story.ask("submit", **args)
    assert reply is not None
    assert reply.data["code"] == "bad_dependency"
    assert "a -> b -> c -> a" in reply.data["message"]


def test_two_updates_at_once_cannot_close_a_circle() -> None:
    """Both come before the store has answered one of them; the second is refused."""
    story = LeaderStory().elect()
    store(story, "a")
    store(story, "b")
    before = len(story.replies)
    story.hold = lambda what: isinstance(what, SubmitJob)
    for name, parent in (("a", "b"), ("b", "a")):
        after = Schedule(after=(After(parent),))
        spec = JobSpec(name, seeds=("http://a.test/",), schedule=after)
        args = {"spec": msgspec.to_builtins(spec), "mode": "update", "seeds": []}
        assert story.ask("submit", no_run=True, **args) is None
    story.release()
    replies = story.replies[before:]
    assert [reply.ok for reply in replies] == [True, False]
    assert replies[1].data["code"] == "bad_dependency"
    assert "b -> a -> b" in replies[1].data["message"]


def test_a_submission_beside_a_live_run_follows_the_overlap_of_the_job() -> None:
    """Without one it starts a second run, as ever; --restart wins."""
    story = LeaderStory().elect()
    for policy in ("", "allow", "skip", "queue", "cancel"):
        name = f"job{policy}"
        spec = JobSpec(name, seeds=("http://a.test/",), schedule=timed(every="1d", overlap=policy))
        story.submit(of=spec)
        again: dict[str, Any] = {"mode": "again", "ref": name, "seeds": ["http://a.test/"]}
        reply = story.ask("submit", **again)
        assert reply is not None
        if policy == "queue":
            assert (reply.data["held"], reply.data["run"]) == (True, 0)
        if policy == "skip":
            assert reply.data["code"] == "run_is_alive"
        if policy in ("skip", "queue"):
            story.ask("submit", restart=True, **again)
        states = [run.state for run in runs(story, name)]
        first = RunState.PENDING if policy in ("", "allow") else RunState.CANCELLED
        assert states == [first, RunState.PENDING], policy


def queued(story: LeaderStory, **changes: Any) -> int:
    """Store and start a job with the overlap `queue`; return its id."""
    seeds = ("http://a.test/${params.page}",)
    spec = JobSpec(
        "nightly",
        seeds=seeds,
        params={"page": "1"},
        politeness=NO_PACE,
        schedule=timed(every="1d", overlap="queue", **changes),
    )
    job: int = story.submit(of=spec)["job"]
    return job


def again(story: LeaderStory, **args: Any) -> Reply:
    fields: dict[str, Any] = {"mode": "again", "ref": "nightly", "seeds": [], **args}
    reply = story.ask("submit", **fields)
    assert reply is not None
    return reply


def test_a_submission_waits_for_the_live_run_and_starts_once() -> None:
    """With its seeds and parameters, under the number that the reply has named."""
    story = LeaderStory().elect()
    queued(story)
    reply = again(story, params={"page": "7"}, seeds=["http://b.test/${params.page}"])
    assert reply.ok
    assert {name: reply.data[name] for name in ("run", "held", "held_run", "after")} == {
        "run": 0, "held": True, "held_run": 2, "after": 1,
    }  # fmt: skip
    story.wait(5)
    assert [run.id for run in runs(story)] == [1]
    (view,) = answer(story, "schedule")["jobs"]
    assert view["held_submission"]["run"] == 2
    assert view["held_submission"]["params"] == {"page": "7"}
    answer(story, "act", ref="nightly", action="cancel")
    story.wait(5)
    assert [run.id for run in runs(story)] == [1, 2]
    assert str(runs(story)[1].start_facts.cause) == "submitted"
    assert [row.url for row in story.store.requests(2)] == ["http://b.test/7"]
    (view,) = answer(story, "schedule")["jobs"]
    assert view["held_submission"] is None


def test_a_second_submission_is_refused_while_one_is_held() -> None:
    """The message has the remedy, and --restart still starts at once; the held one waits for it."""
    story = LeaderStory().elect()
    queued(story)
    assert again(story).ok
    refused = again(story)
    assert refused.data["code"] == "start_is_held"
    assert "zcrawl schedule pause nightly" in refused.data["message"]
    assert again(story, restart=True).data["run"] == 3
    story.wait(2)
    assert [run.id for run in runs(story) if not run.state.ended] == [3]
    answer(story, "act", ref="nightly", action="cancel")
    story.wait(2)
    assert [run.id for run in runs(story) if not run.state.ended] == [2]


def test_a_held_submission_survives_its_leader_and_its_lost_answers() -> None:
    """The client asks again under the same id, and gets the same answer; then its run."""
    story = LeaderStory().elect()
    queued(story)
    asked_again: dict[str, Any] = {"id": "held-1", "mode": "again", "ref": "nightly", "seeds": []}
    first = story.ask("submit", **asked_again)
    story = restarted(story, 5.0)
    second = story.ask("submit", **asked_again)
    assert first is not None
    assert second is not None
    assert (first.data["held_run"], second.data["held_run"]) == (2, 2)
    answer(story, "act", ref="nightly", action="cancel")
    story = restarted(story, 5.0)
    story.wait(2)
    third = story.ask("submit", **asked_again)
    assert third is not None
    assert third.data["run"] == 2
    assert [run.id for run in runs(story)] == [1, 2]


@pytest.mark.parametrize("how", ["pause", "change"])
def test_a_held_submission_is_dropped_like_a_held_due_time(how: str) -> None:
    """A schedule that is resumed or changed begins anew, and what it held is gone."""
    story = LeaderStory().elect()
    queued(story)
    assert again(story).ok
    if how == "pause":
        answer(story, "change_job", ref="nightly", state="paused")
    else:
        spec = JobSpec("nightly", seeds=("http://a.test/",), schedule=timed(every="2d"))
        story.submit(of=spec, mode="update", no_run=True)
    answer(story, "act", ref="nightly", action="cancel")
    story.wait(2)
    if how == "pause":
        answer(story, "change_job", ref="nightly", state="active")
        story.wait(2)
    assert [run.id for run in runs(story)] == [1]


def test_an_update_with_a_run_waits_too_and_runs_the_new_spec() -> None:
    """The spec is stored at once. Beside a paused schedule nothing can wait."""
    story = LeaderStory().elect()
    queued(story)
    schedule = timed(every="1d", overlap="queue")
    spec = JobSpec("nightly", seeds=("http://new.test/",), schedule=schedule)
    data = story.submit(of=spec, mode="update")
    assert (data["held"], data["held_run"]) == (True, 2)
    answer(story, "act", ref="nightly", action="cancel")
    story.wait(2)
    assert [row.url for row in story.store.requests(2)] == ["http://new.test/"]
    answer(story, "change_job", ref="nightly", state="paused")
    assert again(story).data["code"] == "run_is_alive"


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"dya": "x"}, "bad_params"),
        ({"day": "${TOKEN}"}, "bad_params"),
        ({"day": 1}, "bad_request"),
    ],
)
def test_parameters_of_a_submission_are_checked(params: dict[str, Any], code: str) -> None:
    """Unknown keys, references and other types are refused by name."""
    story = LeaderStory().elect()
    spec = JobSpec("a", seeds=("http://a.test/${params.day}",), params={"day": "1"})
    reply = story.ask("submit", spec=msgspec.to_builtins(spec), mode="new", seeds=[], params=params)
    assert reply is not None
    assert reply.data["code"] == code


def test_the_views_say_when_a_job_runs_next() -> None:
    """Of all jobs that have a schedule, and of one with as many times as wanted."""
    story = LeaderStory().elect()
    store(story, "plain")
    store(story, schedule=timed(timezone="Europe/Berlin", jitter="1s"))
    (view,) = answer(story, "schedule")["jobs"]
    assert (view["name"], view["times"], len(view["next"])) == ("nightly", "every 10s", 1)
    (view,) = answer(story, "schedule", ref="nightly", limit=3)["jobs"]
    assert view["next"] == [f"2023-11-14T22:1{time}.000Z" for time in ("5:10", "5:20", "5:30")]
    answer(story, "change_job", ref="nightly", state="paused")
    (view,) = answer(story, "schedule")["jobs"]
    assert (view["state"], view["next"]) == ("paused", [])
    assert answer(story, "job", ref="nightly")["schedule"]["times"] == "every 10s"
    assert answer(story, "job", ref="plain")["schedule"] is None


def test_other_defaults_change_the_next_due_times_at_once() -> None:
    """Of jobs that leave the key open, and in what they show. The stored job stays as it is."""
    story = LeaderStory().elect()
    store(story, schedule=Schedule(cron="0 3 * * *"))
    store(story, "own", schedule=Schedule(cron="0 3 * * *", timezone="UTC"))
    story.tick()
    assert story.leader.firing.next_wakeup() > story.now + 1_000
    story.handle(ScheduleDefaultsChanged(ScheduleDefaults("Pacific/Auckland", catch_up="last")))
    assert story.leader.firing.next_wakeup() <= story.now
    story.tick()
    views = {view["name"]: view for view in answer(story, "schedule")["jobs"]}
    assert views["nightly"]["next"] == ["2023-11-15T14:00:00.000Z"]
    assert views["own"]["next"] == ["2023-11-15T03:00:00.000Z"]
    assert views["nightly"]["timezone"] == "Pacific/Auckland"
    assert views["nightly"]["defaults"] == ["timezone", "jitter", "overlap", "catch_up"]
    assert views["own"]["defaults"] == ["jitter", "overlap", "catch_up"]
    shown = answer(story, "job", ref="nightly")["schedule"]
    assert (shown["timezone"], shown["catch_up"]) == ("Pacific/Auckland", "last")
    (row,) = (job for job in story.store.tables.jobs.values() if job.name == "nightly")
    assert from_json(row.spec).schedule == Schedule(cron="0 3 * * *")


def test_a_default_overlap_and_catch_up_count_when_a_run_is_due() -> None:
    """And the same defaults count again under a new epoch of this master."""
    story = LeaderStory().elect()
    store(story, schedule=timed())
    story.handle(ScheduleDefaultsChanged(ScheduleDefaults(overlap="allow", catch_up="all")))
    story.wait(21)
    assert due(story) == [10, 20]
    story.handle(ScheduleDefaultsChanged(ScheduleDefaults()))
    story.wait(10)
    assert due(story) == [10, 20]
    assert "was skipped" in note(story)


def test_a_submission_is_checked_by_the_defaults() -> None:
    """A time without an offset is past or not by the default zone."""
    story = LeaderStory().elect()
    past = Schedule(at="2023-11-15T01:00")  # the story begins at 22:15 UTC the day before
    story.handle(ScheduleDefaultsChanged(ScheduleDefaults("Pacific/Auckland")))
    spec = JobSpec("once", seeds=("http://a.test/",), politeness=NO_PACE, schedule=past)
    reply = story.ask("submit", spec=msgspec.to_builtins(spec), mode="new", seeds=[], no_run=True)
    assert reply is not None
    assert reply.data["code"] == "bad_schedule"
    story.handle(ScheduleDefaultsChanged(ScheduleDefaults()))
    store(story, "once", schedule=past)


def test_a_crawl_starts_nothing_by_itself() -> None:
    """Only a cluster and `zcrawl up` do. What was due meanwhile is theirs to catch up."""
    story = LeaderStory()
    story.master = Master("m1", seen_slots=64, outputs=OutputRights(owner=True), fires=False)
    story.elect()
    store(story, schedule=timed(overlap="allow", catch_up="all"))
    story.wait(21)
    assert runs(story) == []
    story = restarted(story, 0.5)
    story.wait(2)
    assert due(story) == [10, 20]
