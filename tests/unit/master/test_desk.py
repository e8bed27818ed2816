"""What clients ask of the leader: each request gets exactly one reply, whatever it holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import LeaderStory, result_of, spec, urls
from zcrawl.errors import RetryClass
from zcrawl.master.desk.seeds import MOST_SEEDS, MOST_TEXT
from zcrawl.mesh.messages import Reply
from zcrawl.model.states import Outcome, RunState
from zcrawl.store.commands import AddSeeds, ChangeJob, ChangeRun, RetryDead, SubmitJob
from zcrawl.store.queries import FindJob
from zcrawl.submit.code import code_of
from zcrawl.testing.store.store import Fault

SPEC = msgspec.to_builtins(spec())
SUBMIT = {"spec": SPEC, "mode": "again", "seeds": urls(2), "seeding": False, "output": None}

CODE = msgspec.to_builtins(code_of(b"class Books: pass", "books.py"))
FALSE_CODE = {**CODE, "source": "import os"}
BROUGHT = {"spider": "books.py:Books", "code": CODE}


def leading() -> LeaderStory:
    """A leader with one running job and one worker."""
    story = LeaderStory().elect()
    story.submit(*urls(3))
    story.join()
    story.tick()
    story.leader.state.settled_at = story.now  # nobody else is to come
    return story


def ask(story: LeaderStory, op: str, **args: Any) -> Reply:
    """The one reply to a request."""
    before = len(story.replies)
    story.ask(op, **args)
    story.wait(2.0, story.beat)
    replies = story.replies[before:]
    assert len(replies) == 1, f"{op} {args}: {replies}"
    return replies[0]


@pytest.mark.parametrize(
    ("op", "args", "keys"),
    [
        ("submit", SUBMIT, {"job", "run", "admitted"}),
        ("add_seeds", {"run": 1, "seeds": urls(9), "last": True}, {"job", "run", "admitted"}),
        ("jobs", {}, {"jobs"}),
        ("job", {"ref": "job"}, {"job", "name", "state"}),
        ("job", {"ref": "1"}, {"job", "name", "state"}),
        ("act", {"ref": "1", "action": "pause"}, {"job", "run", "state", "changed"}),
        ("act", {"ref": "1", "action": "resume"}, {"job", "run", "state", "changed"}),
        ("act", {"ref": "1", "action": "cancel"}, {"job", "run", "state", "changed"}),
        ("act", {"ref": "1", "action": "delete"}, {"job", "run", "state", "changed"}),
        ("act", {"ref": "1", "action": "retry"}, {"job", "run", "state", "changed"}),
        ("nodes", {}, {"leader", "workers"}),
        ("drain", {"node": "w1"}, {"node", "state", "changed"}),
        ("undrain", {"node": "w1"}, {"node", "state", "changed"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_good_request_is_answered(op: str, args: dict[str, Any], keys: set[str]) -> None:
    """Once, with what was asked for."""
    story = leading()
    reply = ask(story, op, **args)
    assert reply.ok, reply
    assert keys <= reply.data.keys(), reply
    story.store.check()


@pytest.mark.parametrize(
    ("op", "args", "code"),
    [
        ("", {}, "unknown_op"),
        ("format_disk", {}, "unknown_op"),
        ("submit", {}, "bad_request"),
        ("submit", {**SUBMIT, "mode": "new"}, "name_exists"),
        ("submit", {**SUBMIT, "mode": "sideways"}, "bad_request"),
        ("submit", {**SUBMIT, "mode": None}, "bad_request"),
        ("submit", {**SUBMIT, "spec": 5}, "bad_request"),
        ("submit", {**SUBMIT, "spec": {}}, "job"),
        ("submit", {**SUBMIT, "spec": {**SPEC, "nonsense": 1}}, "unknown_key"),
        ("submit", {**SUBMIT, "seeds": 5}, "bad_request"),
        ("submit", {**SUBMIT, "seeds": [5]}, "job"),
        ("submit", {**SUBMIT, "seeds": ["no url"]}, "bad_url"),
        ("submit", {**SUBMIT, "seeds": ["ftp://a.test/"]}, "unsupported_scheme"),
        ("submit", {**SUBMIT, "seeds": urls(MOST_SEEDS + 1)}, "too_many_seeds"),
        ("submit", {**SUBMIT, "seeds": ["http://a.test/" + "a" * MOST_TEXT]}, "too_many_seeds"),
        (
            "submit",
            {**SUBMIT, "spec": {**SPEC, "seeds": urls(MOST_SEEDS + 1)}},
            "job_too_large",
        ),
        ("submit", {**SUBMIT, "output": 5}, "bad_request"),
        ("submit", {**SUBMIT, "output": ["x.jsonl", "csv"]}, "bad_request"),
        (
            "submit",
            {**SUBMIT, "spec": {**SPEC, "output": {"to": ["/etc/x.csv"]}}},
            "path_not_allowed",
        ),
        ("submit", {**SUBMIT, "spec": {**SPEC, **BROUGHT}}, "code_not_allowed"),
        ("submit", {**SUBMIT, "spec": {**SPEC, **BROUGHT, "code": FALSE_CODE}}, "bad_hash"),
        ("submit", {**SUBMIT, "spec": {**SPEC, "spider": "os.path"}}, "job"),
        ("add_seeds", {}, "bad_request"),
        ("add_seeds", {"run": "x", "seeds": [], "last": True}, "bad_request"),
        ("add_seeds", {"run": None, "seeds": [], "last": True}, "bad_request"),
        ("add_seeds", {"run": 99, "seeds": urls(1), "last": True}, "no_such_job"),
        ("add_seeds", {"run": 1, "seeds": ["\x00"], "last": True}, "bad_url"),
        ("job", {}, "bad_request"),
        ("job", {"ref": "nobody"}, "no_such_job"),
        ("job", {"ref": None}, "no_such_job"),
        ("job", {"ref": ["1"]}, "no_such_job"),
        ("act", {}, "bad_request"),
        ("act", {"ref": "nobody", "action": "pause"}, "no_such_job"),
        ("act", {"ref": "1", "action": "explode"}, "bad_request"),
        ("act", {"ref": "1", "action": None}, "bad_request"),
        ("drain", {}, "bad_request"),
        ("drain", {"node": "nobody"}, "no_such_node"),
        ("drain", {"node": ["w1"]}, "no_such_node"),
        ("undrain", {"node": "nobody"}, "no_such_node"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_request_is_refused_by_name(op: str, args: dict[str, Any], code: str) -> None:
    """G7: never an exception, always one reply with a code and a message for people."""
    story = leading()
    reply = ask(story, op, **args)
    assert (reply.ok, reply.data["code"]) == (False, code)
    assert reply.data["message"]
    assert reply.data["exit_code"] in (1, 2, 3)
    has_event = any(note.name == "request_refused" for note in story.notes)
    assert has_event is (op != "job"), "a read that is refused is no event"


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "retry"])
def test_an_ended_run_refuses_actions(action: str) -> None:
    """Cancelled is the end; to cancel it again is no error."""
    story = leading()
    ask(story, "act", ref="1", action="cancel")
    reply = ask(story, "act", ref="1", action=action)
    assert reply.ok if action == "cancel" else reply.data["code"] == "run_ended"


@pytest.mark.parametrize(
    ("op", "args", "command"),
    [
        ("submit", SUBMIT, SubmitJob),
        ("add_seeds", {"run": 1, "seeds": urls(9), "last": True}, AddSeeds),
        ("act", {"ref": "1", "action": "pause"}, ChangeRun),
        ("act", {"ref": "1", "action": "cancel"}, ChangeRun),
        ("act", {"ref": "1", "action": "retry"}, RetryDead),
    ],
)
@pytest.mark.parametrize("fault", ["fail", "unknown_applied", "unknown_lost"])
def test_a_failing_store_still_gives_one_reply(
    op: str, args: dict[str, Any], command: type[Any], fault: Fault
) -> None:
    """Away: refused by name. Unknown: asked again, and done once."""
    story = leading()
    faults: list[Fault] = [fault]

    def choose(store_command: object) -> Fault | None:
        return faults.pop() if isinstance(store_command, command) and faults else None

    story.store.faults = choose
    reply = ask(story, op, **args)
    assert not faults
    assert reply.ok == (fault != "fail"), reply
    if op == "submit" and reply.ok:
        assert len(story.store.runs()) == 2
    story.store.check()


@pytest.mark.parametrize("op", ["jobs", "job", "act"])
def test_a_failing_read_is_refused_by_name(op: str) -> None:
    """The client may try again."""
    story = leading()
    story.store.query_faults = lambda query: True
    reply = ask(story, op, ref="1", action="pause")
    assert (reply.ok, reply.data["code"]) == (False, "store_unavailable")


def test_a_submission_is_answered_after_its_commit() -> None:
    """G1: what was answered survives any crash."""
    story = LeaderStory().elect()
    story.hold = lambda what: isinstance(what, SubmitJob)
    assert story.ask("submit", **{**SUBMIT, "mode": "new"}) is None
    assert story.store.runs() == []
    story.release()
    assert story.replies[-1].ok
    assert len(story.store.runs()) == 1


def test_a_repeated_submission_is_answered_again_without_a_second_run() -> None:
    """The client's answer was lost: the same id, another leader even."""
    story = LeaderStory().elect()
    first = story.ask("submit", id="same", **SUBMIT)
    second = LeaderStory(story.store, "m2", story.now + 1.0).elect()
    again = second.ask("submit", id="same", **SUBMIT)
    assert first is not None
    assert again is not None
    assert again.ok
    assert (first.data["job"], first.data["run"]) == (again.data["job"], again.data["run"])
    assert len(story.store.runs()) == 1


def test_pause_holds_back_and_resume_goes_on() -> None:
    """What was in flight is committed meanwhile."""
    story = LeaderStory().elect()
    story.submit(*urls(9))
    ask(story, "act", ref="1", action="pause")
    story.join()
    story.wait(1.0, story.beat)
    assert story.assigned() == []
    ask(story, "act", ref="1", action="resume")
    assert len(story.assigned()) == 5


def test_a_resume_that_was_applied_unseen_is_answered_although_its_repeat_failed() -> None:
    """It is repeated until the store tells: a refusal would be wrong. A client that asks again is
    told the same."""
    story = LeaderStory().elect()
    story.submit(*urls(9))
    ask(story, "act", ref="1", action="pause")
    story.join()
    faults: list[Fault] = ["fail", "unknown_applied"]

    def choose(store_command: object) -> Fault | None:
        return faults.pop() if isinstance(store_command, ChangeRun) and faults else None

    story.store.faults = choose
    assert ask(story, "act", id="same", ref="1", action="resume").ok
    assert ask(story, "act", id="same", ref="1", action="resume").ok
    assert not faults
    assert len({assignment.seq for assignment in story.assigned()}) == 5


def test_retry_queues_dead_requests_again() -> None:
    """And says how many."""
    story = leading()
    failure: dict[str, Any] = {"outcome": Outcome.FAILED, "page": None, "items": [], "reason": "x"}
    for assignment in story.assigned():
        story.report(result_of(assignment, retry=RetryClass.PERMANENT, **failure))
    assert set(story.states().values()) == {"DEAD"}
    reply = ask(story, "act", ref="1", action="retry")
    assert reply.ok
    assert reply.data["changed"] == 3
    assert len(story.assigned()) == 6


@pytest.mark.parametrize("fault", ["unknown_applied", "unknown_lost"])
def test_a_retry_whose_commit_is_uncertain_is_carried_out(fault: Fault) -> None:
    """The rows that it queued, if it did, are known to the leader: they are fetched again."""
    story = leading()
    failure: dict[str, Any] = {"outcome": Outcome.FAILED, "page": None, "items": [], "reason": "x"}
    for assignment in story.assigned():
        story.report(result_of(assignment, retry=RetryClass.PERMANENT, **failure))
    faults: list[Fault] = [fault]

    def choose(store_command: object) -> Fault | None:
        return faults.pop() if isinstance(store_command, RetryDead) and faults else None

    story.store.faults = choose
    story.sent.clear()
    reply = ask(story, "act", ref="1", action="retry")
    story.wait(1.0, story.beat)
    assert reply.ok
    assert reply.data["changed"] == 3
    assert not faults
    assert len(story.assigned()) == 3


def test_deleting_a_job_ends_all_its_runs() -> None:
    """The name is free again when its rows are swept."""
    story = LeaderStory().elect()
    for _ in range(3):
        assert ask(story, "submit", **SUBMIT).ok
    assert ask(story, "act", ref="job", action="delete").ok
    story.wait(3.0)
    assert story.store.runs() == []
    assert ask(story, "submit", **{**SUBMIT, "mode": "new"}).ok


def test_a_client_that_asks_again_meanwhile_gets_the_one_answer() -> None:
    """A slow database makes clients repeat themselves. The repeat must not take the place of an
    action that is half done, nor end it."""
    story = LeaderStory().elect()
    for _ in range(3):
        assert ask(story, "submit", **SUBMIT).ok
    story.hold = lambda what: isinstance(what, ChangeJob | FindJob)
    story.ask("act", "one", b"first", ref="job", action="delete")
    story.held, [lookup] = [], story.held
    story.run(lookup)
    story.ask("act", "one", b"second", ref="job", action="delete")
    before = len(story.replies)
    story.release()
    assert [(reply.id, reply.ok, reply.data["changed"]) for reply in story.replies[before:]] == [
        ("one", True, 3)
    ]
    assert {run.state for run in story.store.runs()} <= {RunState.DELETED}


def test_a_submission_that_is_repeated_meanwhile_is_executed_once() -> None:
    """The store would know it by its id, but every repeat would make the leader load anew."""
    story = LeaderStory().elect()
    story.hold = lambda what: isinstance(what, SubmitJob)
    for _ in range(3):
        story.ask("submit", "one", **SUBMIT)
    assert len(story.held) == 1
    story.release()
    assert [reply.ok for reply in story.replies] == [True]
