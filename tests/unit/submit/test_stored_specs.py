"""A leader and specs that another version, or a master with more rights, has stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import NO_PACE, LeaderStory, link, result_of, spec, urls
from zcrawl.errors import JobError
from zcrawl.master import recall
from zcrawl.master.master import Master
from zcrawl.mesh.messages import Code, Traits
from zcrawl.model.spec import JobSpec, Recrawl, Scope
from zcrawl.store.commands import AdmitKnown, ChangeRun
from zcrawl.store.rules import RECALLED
from zcrawl.submit.code import code_of
from zcrawl.submit.stored import read_stored
from zcrawl.testing.store.store import FakeStore, Fault

GOOD: dict[str, Any] = msgspec.to_builtins(spec())
HANGING = {**GOOD, "scope": {**GOOD["scope"], "exclude": ["(?=(a+)+$)"]}}
STORED = [
    (msgspec.json.encode(HANGING), "bad_expression"),
    (
        msgspec.json.encode(
            {**GOOD, "login": {"url": "http://a.test/", "fields": {"u": "x"}, "success": "(?!x)"}}
        ),
        "bad_expression",
    ),
    (msgspec.json.encode({**GOOD, "colour": "red"}), "bad_spec"),
    (msgspec.json.encode({**GOOD, "scope": {"max_pages": -5}}), "bad_spec"),
    (msgspec.json.encode({**GOOD, "scope": {"max_pages_per_host": "x"}}), "bad_spec"),
    (msgspec.json.encode({**GOOD, "scope": [1]}), "bad_spec"),
    (msgspec.json.encode([1]), "bad_spec"),
    (b"\xff{", "bad_spec"),
    (b"", "bad_spec"),
    (b"[" * 100_000, "bad_spec"),
]


def stored(story: LeaderStory, data: bytes) -> FakeStore:
    """The job and its run as an older version might have left them."""
    run = story.store.tables.runs[1]
    run.spec = run.job.spec = data
    return story.store


def refusal(story: LeaderStory, op: str, **args: Any) -> str:
    reply = story.ask(op, **args)
    assert reply is not None
    assert not reply.ok
    return str(reply.data["code"])


@pytest.mark.parametrize(("data", "code"), STORED)
def test_a_stored_spec_that_is_refused_ends_its_run_and_nothing_else(
    data: bytes, code: str
) -> None:
    """The next leader loads, ends that run with the reason, and goes on with the others."""
    first = LeaderStory().elect()
    first.submit(*urls(2))
    first.submit(*urls(2, "b.test"), of=JobSpec("other", politeness=NO_PACE))
    store = stored(first, data)
    second = LeaderStory(store, "m2").elect()
    second.join()
    second.tick()
    bad, good = store.runs()
    assert (str(bad.state), bad.reason.partition(":")[0]) == ("failed", code)
    assert len(bad.reason) <= 255
    assert str(good.state) == "pending"
    assert {assignment.run for assignment in second.assigned()} == {good.id}
    for _ in range(5):
        second.tick()
    assert {row.reason for row in store.requests(bad.id)} == {code}, "rows have the short reason"
    reply = second.ask("job", ref="1")
    assert reply is not None
    assert reply.ok
    assert reply.data["reason"].startswith(f"{code}: ")
    reply = second.ask("jobs")
    assert reply is not None
    assert reply.ok
    assert len(reply.data["jobs"]) == 2
    store.check()


@pytest.mark.parametrize(("data", "code"), STORED)
def test_such_a_job_does_not_run_again(data: bytes, code: str) -> None:
    """`submit --again` and `retry` run what is stored: they are refused with the same reason."""
    story = LeaderStory().elect()
    story.submit(*urls(1))
    story.join()
    story.tick()
    story.report(result_of(story.assigned()[0]))
    stored(story, data)
    args: dict[str, Any] = {"spec": GOOD, "mode": "again", "seeds": urls(1)}
    assert refusal(story, "submit", **args) == code
    assert refusal(story, "act", ref="1", action="retry") == code
    assert len(story.store.runs()) == 1
    reply = story.ask("submit", **{**args, "mode": "update"})
    assert reply is not None, "a good spec replaces the bad one"
    assert reply.ok, "a good spec replaces the bad one"


def test_ending_a_refused_run_is_tried_until_it_is_stored() -> None:
    """A database that is away for a moment changes nothing but the time."""
    first = LeaderStory().elect()
    first.submit(*urls(1))
    store = stored(first, STORED[0][0])
    failures: list[Fault] = ["fail", "unknown_lost", "unknown_applied"]
    store.faults = lambda command: (
        failures.pop(0) if isinstance(command, ChangeRun) and failures else None
    )
    second = LeaderStory(store, "m2").elect()
    second.wait(20)
    assert not failures
    (run,) = store.runs()
    assert (str(run.state), run.reason[:14]) == ("failed", "bad_expression")
    assert second.leader.state.runs.refused == {}


def test_seeds_of_a_stored_job_are_not_judged_again() -> None:
    """They were admitted; what judges URLs may have become stricter since."""
    data = msgspec.json.encode({**GOOD, "seeds": ["no url"]})
    assert read_stored(data).seeds == ("no url",)
    with pytest.raises(JobError):
        read_stored(msgspec.json.encode({**GOOD, "name": ""}))


# ---------------------------------------------------------------- the right to bring code


SPIDER = JobSpec(
    "spider",
    politeness=NO_PACE,
    spider="s.py:S",
    code=code_of(b"class S: pass\n", "s.py"),
)


def leader_with(store: FakeStore | None, me: str, allow_code: bool) -> LeaderStory:
    story = LeaderStory(store, me)
    story.master = Master(me, seen_slots=64, allow_code=allow_code)
    return story.elect()


def test_a_stored_spider_waits_while_the_right_is_withdrawn() -> None:
    """Its run is not dispatched and its file not sent; given the right back, it goes on."""
    first = leader_with(None, "m1", True)
    first.submit(*urls(1), of=SPIDER)
    first.submit(*urls(1, "b.test"), of=JobSpec("plain", politeness=NO_PACE))
    closed = leader_with(first.store, "m2", False)
    closed.join()
    closed.wait(10, each=closed.beat)
    assert {assignment.run for assignment in closed.assigned()} == {2}
    assert closed.bodies(Code) == []
    reply = closed.ask("job", ref="spider")
    assert reply is not None
    assert reply.data["state"] == "pending"
    assert reply.data["reason"].startswith("code_not_allowed: ")
    reply = closed.ask("hosts")
    assert reply is not None
    whys = {row["host"]: row["why"] for row in reply.data["rows"]}
    assert whys["http://a.test"] == "code_not_allowed"
    opened = leader_with(first.store, "m3", True)
    opened.join()
    opened.tick()
    assert 1 in {assignment.run for assignment in opened.assigned()}
    assert opened.bodies(Code)


def test_a_run_with_code_does_not_begin_without_the_right() -> None:
    """Whichever way it begins: again, resume, retry. Pausing and ending it need no right."""
    first = leader_with(None, "m1", True)
    first.submit(*urls(1), of=SPIDER)
    closed = leader_with(first.store, "m2", False)
    again = {"mode": "again", "seeds": urls(1)}
    plain = msgspec.to_builtins(JobSpec("spider"))  # what is sent along is not what runs
    assert refusal(closed, "submit", spec=plain, **again) == "code_not_allowed"
    assert refusal(closed, "act", ref="spider", action="retry") == "code_not_allowed"
    reply = closed.ask("act", ref="spider", action="pause")
    assert reply is not None
    assert reply.ok
    assert refusal(closed, "act", ref="spider", action="resume") == "code_not_allowed"
    reply = closed.ask("act", ref="spider", action="cancel")
    assert reply is not None
    assert reply.ok
    assert len(first.store.runs()) == 1


# ---------------------------------------------------------------- what the leader evaluates


def test_recall_looks_at_few_pages_at_once_if_the_scope_is_costly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader runs the scope's expressions: so many steps, and then it does something else."""
    scope = Scope(exclude=("[x-z]{50}!",))
    job = JobSpec("job", politeness=NO_PACE, recrawl=Recrawl(True, 0.0, 0.0, 0.0), scope=scope)
    story = LeaderStory().elect()
    story.join()
    story.submit(urls(1)[0], of=job)
    story.tick()
    done = 0
    while len(story.assigned()) > done:
        links = [link(url) for url in urls(9)]
        assignment = story.assigned()[done]
        story.report(result_of(assignment, links=links, traits=Traits(content=b"x")))
        done += 1
        story.tick()
    monkeypatch.setattr(recall, "MAX_STEPS", 2_500)
    chunks: list[AdmitKnown] = []

    def hold_none(what: object) -> bool:
        if isinstance(what, AdmitKnown):
            chunks.append(what)
        return False

    story.hold = hold_none
    run = story.submit(urls(1)[0], of=job, mode="again")["run"]
    for _ in range(20):
        story.tick()
    assert story.store.tables.runs[run].recall == RECALLED
    assert len(chunks) > 2
    assert all(0 < len(chunk.links) < 9 for chunk in chunks if not chunk.last)
    assert {row.url for row in story.store.requests(run)} == set(urls(9))
