"""No request of a client is carried out twice: a leader's desk on every store.

Each case does something, undoes it in another way, and sends the first request once more under its
id, to the same leader or to the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from tests.unit.machine_tools import LeaderStory, result_of, spec, urls
from zcrawl.errors import RetryClass
from zcrawl.master.desk.operation import OPERATIONS
from zcrawl.model.rows import RunRow
from zcrawl.model.states import Outcome, RunState
from zcrawl.store.ports import Store
from zcrawl.store.queries import JobList, ListJobs
from zcrawl.testing.store.store import FakeStore

FAILED: dict[str, Any] = {"outcome": Outcome.FAILED, "page": None, "items": [], "reason": "x"}
TOKEN = {"prefix": "zc_ab12cd34", "digest": "ab" * 32}
SPEC = {"spec": msgspec.to_builtins(spec()), "seeds": urls(3)}


def done(story: LeaderStory, op: str, **args: Any) -> dict[str, Any]:
    reply = story.ask(op, f"other-{op}-{len(story.replies)}-{story.now}", **args)
    assert reply is not None, reply
    assert reply.ok, reply
    return reply.data


def newest(story: LeaderStory) -> RunRow:
    """The newest run of all."""
    reply = cast(Store, story.store).query(ListJobs())
    assert isinstance(reply, JobList)
    return max((run for job in reply.jobs for run in job.runs), key=lambda run: run.id)


def fail_all(story: LeaderStory) -> None:
    """Whatever is assigned fails for good."""
    for assignment in story.assigned():
        story.report(
            result_of(assignment, story.master.epoch, retry=RetryClass.PERMANENT, **FAILED)
        )
    story.sent.clear()


def pace(story: LeaderStory) -> float:
    return float(msgspec.json.decode(newest(story).spec)["politeness"]["rate"])


def nothing(story: LeaderStory) -> None:
    pass


class Case(NamedTuple):
    op: str
    args: dict[str, Any]
    undo: Callable[[LeaderStory], object]
    seen: Callable[[LeaderStory], object]  # what a second time would change
    before: Callable[[LeaderStory], object] = nothing
    same: tuple[str, ...] = ()  # keys of the answers that are equal; empty: all


SECRETS = {"secret_set", "secret_delete", "secret_rotate"}

CASES = {
    "submit": Case("submit", {**SPEC, "mode": "again"}, nothing, newest, same=("job", "run")),
    "add_seeds": Case(
        "add_seeds",
        {"run": 2, "seeds": urls(5, "b.test"), "last": False},
        nothing,
        lambda story: newest(story).counters.admitted,
        before=lambda story: done(story, "submit", **SPEC, mode="again", seeding=True),
        same=("job", "run"),
    ),
    "pause": Case(
        "act",
        {"ref": "1", "action": "pause"},
        lambda story: done(story, "act", ref="1", action="resume"),
        lambda story: newest(story).state is RunState.PENDING,
    ),
    "resume": Case(
        "act",
        {"ref": "1", "action": "resume"},
        lambda story: done(story, "act", ref="1", action="pause"),
        lambda story: newest(story).state is RunState.PAUSED,
        before=lambda story: done(story, "act", ref="1", action="pause"),
    ),
    "cancel": Case(
        "act",
        {"ref": "job", "action": "cancel"},
        lambda story: done(story, "submit", **SPEC, mode="again"),
        lambda story: newest(story).state is RunState.PENDING,
    ),
    "delete": Case(
        "act",
        {"ref": "job", "action": "delete"},
        lambda story: done(story, "submit", **SPEC, mode="new"),
        lambda story: newest(story).state is RunState.PENDING,
    ),
    "change_job": Case(
        "change_job",
        {"ref": "job", "state": "archived"},
        lambda story: done(story, "change_job", ref="job", state="active"),
        lambda story: len(done(story, "jobs")["jobs"]) == 1,
    ),
    "retry": Case(
        "act",
        {"ref": "1", "action": "retry"},
        fail_all,
        lambda story: newest(story).counters.failed == 3,
        before=fail_all,
    ),
    "tune": Case(
        "tune",
        {"ref": "1", "rate": 7.5},
        lambda story: done(story, "tune", ref="1", rate=2.5),
        lambda story: pace(story) == 2.5,
    ),
    "drain": Case(
        "drain",
        {"node": "w1"},
        lambda story: done(story, "undrain", node="w1"),
        lambda story: story.leader.state.drains == {},
    ),
    "undrain": Case(
        "undrain",
        {"node": "w1"},
        lambda story: done(story, "drain", node="w1"),
        lambda story: set(story.leader.state.drains) == {"w1"},
        before=lambda story: done(story, "drain", node="w1"),
    ),
    "user_add": Case(
        "user_add",
        {"name": "ann", "role": "operator"},
        lambda story: done(story, "user_change", name="ann", role="viewer"),
        lambda story: [user["role"] for user in done(story, "users")["users"]],
    ),
    "user_change": Case(
        "user_change",
        {"name": "ann", "role": "viewer"},
        lambda story: done(story, "user_change", name="ann", role="operator"),
        lambda story: [user["role"] for user in done(story, "users")["users"]],
        before=lambda story: done(story, "user_add", name="ann", role="operator"),
    ),
    "token_create": Case(
        "token_create",
        {"user": "ann", "role": "viewer", **TOKEN},
        lambda story: done(story, "token_revoke", prefix=TOKEN["prefix"]),
        lambda story: [bool(token["revoked_at"]) for token in done(story, "tokens")["tokens"]],
        before=lambda story: done(story, "user_add", name="ann", role="operator"),
    ),
    "token_revoke": Case(
        "token_revoke",
        {"prefix": TOKEN["prefix"]},
        nothing,
        lambda story: [token["revoked_at"] for token in done(story, "tokens")["tokens"]],
        before=lambda story: (
            done(story, "user_add", name="ann", role="operator"),
            done(story, "token_create", user="ann", role="viewer", **TOKEN),
        ),
    ),
    "audit_archive": Case(
        "audit_archive",
        {"before": 9e9, "last": 1, "file": "f"},
        nothing,
        lambda story: [row["id"] for row in done(story, "audit")["rows"]],
        before=lambda story: done(story, "user_add", name="ann", role="operator"),
    ),
    "reassign": Case(
        "reassign",
        {"host": "http://a.test", "node": "w2"},
        lambda story: done(story, "reassign", host="http://a.test", node="w1"),
        lambda story: (
            [host.wanted_owner for host in story.leader.state.planner.hosts.values()] != ["w2"]
        ),
    ),
    # Nothing is stored: the next leader begins it again, and each node knows the id.
    "reload": Case(
        "reload",
        {"reload": "r1"},
        nothing,
        lambda story: story.leader.state.reloads.view("r1")["waiting"] != ["m1"],
        same=("began",),
    ),
    # It only starts the look at old runs earlier, which each leader takes anyway.
    "prune": Case(
        "prune",
        {"ref": "job", "dry_run": False},
        nothing,
        lambda story: newest(story).id,
    ),
    "rebalance": Case(
        "rebalance",
        {"epoch": 1},
        lambda story: None,
        lambda story: story.leader.state.epoch,
        same=("epoch",),
    ),
    "step_down": Case(
        "step_down",
        {"epoch": 1},
        lambda story: story.master.leader or story.elect(alone=False),
        lambda story: story.master.leader is not None,
        same=("epoch",),
    ),
}


def leading(store: Store, me: str = "m1", now: float = 100.0) -> LeaderStory:
    story = LeaderStory(cast(FakeStore, store), me, now).elect()
    if me == "m1":
        story.submit(*urls(3))
    for worker in ("w1", "w2"):
        story.join(worker)
    return story


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("at", ["the same leader", "the next leader"])
def test_a_late_copy_of_a_request_is_answered_and_not_done_again(
    store: Store, name: str, at: str
) -> None:
    """With the answer that the first one got, whatever has happened since."""
    case = CASES[name]
    story = leading(store)
    case.before(story)
    first = story.ask(case.op, "same", **case.args)
    assert first is not None, first
    assert first.ok, first
    case.undo(story)
    if at == "the next leader":
        story = leading(store, "m2", story.now + 1.0)
        story.sent.clear()
    before = case.seen(story)
    again = story.ask(case.op, "same", b"d", **case.args)
    assert again is not None, again
    assert again.ok, again
    keys = case.same or tuple(first.data)
    assert {key: again.data[key] for key in keys} == {key: first.data[key] for key in keys}
    assert case.seen(story) == before
    assert before, "a second time would be seen"


def test_every_request_that_changes_something_has_its_case() -> None:
    """A new one has to think about its repeat too."""
    names = {operation.name for operation in OPERATIONS.values() if operation.changes}
    # Secrets need keys of the masters: tests/contract/test_store_secrets has their repeats.
    assert names == {case.op for case in CASES.values()} | SECRETS


def test_a_request_whose_leader_lost_its_lock_is_done_by_the_next_one(store: Store) -> None:
    """What the old one had begun is fenced: one pause, one answer."""
    old = leading(store)
    old.hold = lambda what: True
    old.ask("act", "same", ref="1", action="pause")
    new = leading(store, "m2", old.now + 1.0)
    reply = new.ask("act", "same", ref="1", action="pause")
    assert reply is not None
    assert reply.ok
    assert reply.data["changed"] == 1
    done(new, "act", ref="1", action="resume")
    while old.held:
        old.release()
    assert newest(new).state is RunState.PENDING


def test_a_refusal_is_not_kept(store: Store) -> None:
    """Nothing was done: the same request may succeed later."""
    story = leading(store)
    refused = story.ask("act", "same", ref="2", action="pause")
    assert refused is not None
    assert refused.data["code"] == "no_such_job"
    done(story, "submit", spec={**msgspec.to_builtins(spec()), "name": "b"}, mode="new", seeds=[])
    reply = story.ask("act", "same", ref="2", action="delete")
    assert reply is not None
    assert reply.ok
