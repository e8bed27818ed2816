"""The contract of a store: users, API tokens, and the audit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.contract.store_world import DEAD, A, B, C, World, client_action
from zcrawl.errors import Fenced
from zcrawl.model.people import AuditEntry, Quotas, TokenRow, UserRow
from zcrawl.model.states import JobState, RunState
from zcrawl.store.commands import (
    AddUser,
    ChangeJob,
    ChangePeople,
    ChangeRun,
    ChangeUser,
    ClientAction,
    CreateToken,
    Done,
    JobChanged,
    Loaded,
    NoteTokenUse,
    PeopleChange,
    PeopleChanged,
    RemoveAudit,
    RetryDead,
    RevokeToken,
    RunChanged,
    TakeOver,
    WriteAudit,
)
from zcrawl.store.queries import (
    AuditRows,
    CheckToken,
    ReadAudit,
    ReadTokens,
    ReadUsers,
    TokenChecked,
    TokenRows,
    UserRows,
)
from zcrawl.text.tokens import token_digest

ANN = UserRow("ann", "admin", ("code",), Quotas(3, 1_000, 2.5), created_at=90.0, created_by="x")
DIGEST = token_digest("zc_abcdefgh_the-rest-of-it")


def entry(op: str = "act", at: float = 100.0, **changes: Any) -> AuditEntry:
    fields: dict[str, Any] = {"by": "ann", "role": "admin", "through": "key ann", "address": ""}
    return AuditEntry(at=at, via="m1", op=op, **{**fields, "target": "", **changes})


def audited(request: str, **changes: Any) -> ClientAction:
    return msgspec.structs.replace(client_action(request), audit=entry(**changes))


def people(world: World, change: PeopleChange, request: str = "", **changes: Any) -> PeopleChanged:
    action = audited(request, **changes) if request else None
    return world.do(ChangePeople(world.epoch, change, world.now, action), PeopleChanged)


def users(world: World) -> list[UserRow]:
    return world.ask(ReadUsers(), UserRows).rows


def tokens(world: World, user: str = "") -> list[TokenRow]:
    return world.ask(ReadTokens(user), TokenRows).rows


def audit(world: World, limit: int = 100, **changes: Any) -> list[AuditEntry]:
    return [row.entry for row in world.ask(ReadAudit(limit, **changes), AuditRows).rows]


def token(prefix: str = "zc_abcdefgh", user: str = "ann", role: str = "viewer") -> TokenRow:
    return TokenRow(prefix, user, role, ("code",), 95.0, "ann", 5_000.0)


def test_a_user_is_stored_as_it_was_added(world: World) -> None:
    """All fields; a second one of the name is refused, a repeat gets the first answer."""
    first = people(world, AddUser(ANN), "a")
    assert users(world) == [ANN]
    assert people(world, AddUser(ANN), "a") == first
    assert people(world, AddUser(ANN), "b").refused == "user_exists"
    assert [(row.op, row.result) for row in audit(world)] == [("act", "ok")]


def test_a_user_changes_in_the_named_fields_only(world: World) -> None:
    """What is None stays. The audit says what changed."""
    people(world, AddUser(ANN), "a")
    people(world, AddUser(UserRow("bob", "viewer")), "b")
    change = ChangeUser("bob", role="operator", disabled=True)
    done = people(world, change, "c", op="user_change")
    assert msgspec.json.decode(done.reply)["changed"] == 1
    assert users(world) == [ANN, UserRow("bob", "operator", disabled=True)]
    assert audit(world)[0].detail == 'role: "viewer" → "operator"; disabled: false → true'
    assert people(world, ChangeUser("eve"), "d").refused == "no_such_user"


@pytest.mark.parametrize("loss", [{"disabled": True}, {"role": "operator"}])
def test_the_last_admin_stays_unless_the_masters_say_so(world: World, loss: dict[str, Any]) -> None:
    """A disabled admin does not count as another one."""
    people(world, AddUser(ANN), "a")
    people(world, AddUser(UserRow("bob", "admin", disabled=True)), "b")
    refused = people(world, ChangeUser("ann", **loss), "c")
    assert refused.refused == "last_admin"
    assert users(world)[0] == ANN
    assert not people(world, ChangeUser("ann", **loss, by_masters=True), "d").refused
    assert users(world)[0] != ANN


def test_one_of_two_admins_can_be_disabled(world: World) -> None:
    """The other one is left."""
    people(world, AddUser(ANN), "a")
    people(world, AddUser(UserRow("bob", "admin")), "b")
    assert not people(world, ChangeUser("ann", disabled=True), "c").refused


def test_a_token_matches_its_digest_only(world: World) -> None:
    """The stored digest is neither the given one nor shown."""
    people(world, AddUser(ANN), "a")
    done = people(world, CreateToken(token(), DIGEST), "b")
    assert DIGEST not in done.reply.decode()
    assert tokens(world) == tokens(world, "ann") == [token()]
    assert tokens(world, "bob") == []
    check = world.ask(CheckToken("zc_abcdefgh", DIGEST), TokenChecked)
    assert check == TokenChecked(token(), ANN, True)
    other = world.ask(CheckToken("zc_abcdefgh", token_digest("guess")), TokenChecked)
    assert not other.matches
    none = world.ask(CheckToken("zc_zzzzzzzz", DIGEST), TokenChecked)
    assert none == TokenChecked(None, None, False)


def test_a_token_needs_a_user_that_may_have_it(world: World) -> None:
    """An existing one, not disabled, with that role or a higher one; prefixes are unique."""
    people(world, AddUser(ANN), "a")
    people(world, AddUser(UserRow("bob", "viewer")), "b")
    people(world, AddUser(UserRow("eve", "viewer", disabled=True)), "c")
    create = [
        CreateToken(token(user="zoe"), DIGEST),
        CreateToken(token(user="bob", role="submitter"), DIGEST),
        CreateToken(token(user="eve"), DIGEST),
        CreateToken(token(), DIGEST),
        CreateToken(token(), DIGEST),
    ]
    refused = [people(world, change, f"t{n}").refused for n, change in enumerate(create)]
    assert refused == ["no_such_user", "role_too_high", "user_disabled", "", "token_exists"]
    assert len(tokens(world)) == 1


def test_a_token_is_revoked_once_and_stays_listed(world: World) -> None:
    """By its user or by an admin; the first time counts."""
    people(world, AddUser(ANN), "a")
    people(world, CreateToken(token(), DIGEST), "b")
    assert people(world, RevokeToken("zc_abcdefgh", "bob"), "c").refused == "no_such_token"
    assert people(world, RevokeToken("zc_zzzzzzzz"), "d").refused == "no_such_token"
    assert not people(world, RevokeToken("zc_abcdefgh", "ann"), "e").refused
    world.now += 50
    assert msgspec.json.decode(people(world, RevokeToken("zc_abcdefgh"), "f").reply)["changed"] == 0
    assert [row.revoked_at for row in tokens(world)] == [world.now - 50]


def test_the_last_use_of_a_token_only_grows(world: World) -> None:
    """It leaves no line and no answer."""
    people(world, AddUser(ANN), "a")
    people(world, CreateToken(token(), DIGEST), "b")
    people(world, NoteTokenUse("zc_abcdefgh"))
    latest, world.now = world.now, world.now - 60
    people(world, NoteTokenUse("zc_abcdefgh"))
    assert [row.last_used_at for row in tokens(world)] == [latest]
    assert len(audit(world)) == 2


def test_an_action_and_its_line_are_stored_once(world: World) -> None:
    """Also if its client asks again. The line names job and run."""
    run = world.submit(A, audit=entry("submit")).run
    for _ in range(2):
        change = ChangeRun(
            world.epoch, "p", run, RunState.PAUSED, "x", 1.0, audited("p", target="job1")
        )
        world.do(change, RunChanged)
    lines = [(row.op, row.target, row.job, row.run, row.detail) for row in audit(world)]
    assert lines == [
        ("act", "job1", 1, run, ""),
        ("submit", "job1", 1, run, "new, version 1"),
    ]


def test_a_new_spec_is_audited_with_what_it_changes(world: World) -> None:
    """As `zcrawl versions` shows it."""
    world.submit(A, spec=b'{"name":"j"}', name="j")
    new = b'{"name":"j","priority":5}'
    world.submit(A, name="j", mode="update", spec=new, audit=entry("submit"))
    assert audit(world)[0].detail == "update, version 2; priority: not set → 5"


def test_a_retry_in_parts_leaves_one_line(world: World) -> None:
    """Written with its first part, because another leader may do the last one."""
    submitted = world.submit(A, B, C)
    for row in submitted.admitted:
        world.finish(row, DEAD, reason="dns")
    for _ in range(4):
        retry = RetryDead(world.epoch, submitted.run, 1, world.now, audited("r", op="retry"))
        world.store.execute(retry)
    assert [(row.op, row.run) for row in audit(world)] == [("retry", submitted.run)]


def test_lines_without_a_transaction_are_stored_in_batches_once(world: World) -> None:
    """A repeat of the batch, after a commit with unknown outcome, writes nothing. Long texts are
    cut and not refused."""
    long = entry("act", detail="ä" * 9_000, target="t" * 900, address="a" * 900)
    for _ in range(2):
        batch = WriteAudit(world.epoch, "b1", (entry("reload"), long), world.now)
        world.do(batch, Done)
    assert [row.op for row in audit(world)] == ["act", "reload"]
    assert [len(audit(world)[0].detail), len(audit(world)[0].target)] == [4_000, 255]


def test_the_audit_is_read_by_time_user_job_and_place(world: World) -> None:
    """The newest first, or the oldest first after a place; a job by id, by name, and as it was
    named in a refused request."""
    world.submit(A, name="j", audit=entry("one", at=10.0))
    rows = (
        entry("two", at=20.0, by="bob", target="j", result="forbidden"),
        entry("three", at=30.0, by="bob", job=7, target="x"),
    )
    world.do(WriteAudit(world.epoch, "b1", rows, world.now), Done)

    def ops(**changes: Any) -> list[str]:
        return [row.op for row in audit(world, **changes)]

    assert ops() == ["three", "two", "one"]
    assert ops(limit=2) == ["three", "two"]
    assert ops(since=20.0) == ["three", "two"]
    assert ops(until=20.0) == ["one"]
    assert ops(user="bob") == ["three", "two"]
    assert ops(job="j") == ["two", "one"]
    assert ops(job="1") == ["one"]
    assert ops(job="7") == ["three"]
    assert ops(before=3) == ["two", "one"]
    assert ops(after=1) == ["two", "three"]


def test_only_archived_lines_are_removed_and_that_leaves_a_line(world: World) -> None:
    """In parts; lines that are younger, or came after the archive was written, stay."""
    rows = tuple(entry(f"o{n}", at=float(n)) for n in range(6))
    world.do(WriteAudit(world.epoch, "b1", rows, world.now), Done)
    first = people(world, RemoveAudit(5.0, 4, 3, "/a/f"), "r1", op="audit_archive")
    assert msgspec.json.decode(first.reply) == {"removed": 3, "more": True}
    second = people(world, RemoveAudit(5.0, 4, 3, "/a/f"), "r2", op="audit_archive")
    assert msgspec.json.decode(second.reply) == {"removed": 1, "more": False}
    assert [(row.op, row.detail) for row in audit(world)] == [
        ("audit_archive", "1 lines removed; they are in /a/f"),
        ("audit_archive", "3 lines removed; they are in /a/f"),
        ("o5", ""),
        ("o4", ""),
    ]


def test_an_older_leader_can_store_nothing_about_people(world: World) -> None:
    """G4, for users and for the audit."""
    old = world.epoch
    world.do(TakeOver("m2", 0, world.now), Loaded)
    for command in (
        ChangePeople(old, AddUser(ANN), 1.0, audited("a")),
        WriteAudit(old, "b", (entry(),), 1.0),
    ):
        with pytest.raises(Fenced):
            world.store.execute(command)
    assert (users(world), audit(world)) == ([], [])


def test_the_state_of_a_job_is_audited_with_its_change(world: World) -> None:
    """ChangeJob keeps its line beside its answer, like all others."""
    job = world.submit(A).job
    action = audited("x", op="change_job")
    world.do(ChangeJob(world.epoch, "x", job, JobState.ARCHIVED, 1.0, action), JobChanged)
    assert [(row.op, row.job) for row in audit(world)] == [("change_job", job)]
