"""Users, tokens and the audit at the desk: who may do what, and what leaves a line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.desk_tools import leading
from tests.unit.machine_tools import LeaderStory, urls
from zcrawl.master import events as m
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.model.people import AuditEntry
from zcrawl.store.commands import ChangePeople
from zcrawl.text.tokens import format_token, full_prefix, prefix_of, token_digest

TOKEN = format_token(b"12345678", b"x" * 32)
CREDENTIALS = {"prefix": prefix_of(TOKEN), "digest": token_digest(TOKEN)}


class Desk:
    """A leader, and clients of any role."""

    def __init__(self) -> None:
        self.story = LeaderStory().elect()
        self.count = 0

    def ask(self, op: str, caller: str = "admin", by: str = "root", /, **args: Any) -> Reply:
        """Ask as a caller of a role. `given` is the argument `rights`."""
        self.count += 1
        fields: dict[str, Any] = {"key": by, "through": f"key {by}"}
        fields |= {key: args.pop(key) for key in ("key", "address") if key in args}
        given = args.pop("given", None)
        args |= {} if given is None else {"rights": given}
        request = ClientRequest(f"r{self.count}", op, args, by=by, role=caller, **fields)
        before = len(self.story.replies)
        self.story.handle(m.ClientAsked(b"c", request))
        self.story.tick()
        assert len(self.story.replies) == before + 1
        return self.story.replies[-1]

    def code(self, op: str, caller: str = "admin", by: str = "root", /, **args: Any) -> str:
        reply = self.ask(op, caller, by, **args)
        return "" if reply.ok else str(reply.data["code"])

    def user(self, name: str, role: str = "submitter", **args: Any) -> None:
        assert not self.code("user_add", name=name, role=role, **args)

    def token(self, user: str, role: str = "submitter", **args: Any) -> None:
        assert not self.code("token_create", user=user, role=role, **{**CREDENTIALS, **args})

    def authenticate(self, **args: Any) -> Reply:
        return self.ask("authenticate", "gateway", "gw", **{**CREDENTIALS, **args})

    def audit(self) -> list[AuditEntry]:
        return [row.entry for row in self.story.store.tables.audit]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_token_names_its_user_role_and_rights(desk: Desk) -> None:
    """The lower role of token and user counts, at the moment of the request."""
    desk.user("ann", "operator", given=["code", "shell"], quotas={"most_live_runs": 2})
    desk.token("ann", "operator", days=1)
    reply = desk.authenticate()
    assert reply.ok
    assert (reply.data["user"], reply.data["role"]) == ("ann", "operator")
    assert reply.data["rights"] == ["code", "shell"]
    assert reply.data["quotas"]["most_live_runs"] == 2
    assert reply.data["token"] == CREDENTIALS["prefix"]
    assert not desk.code("user_change", name="ann", role="viewer", given=["code"])
    reply = desk.authenticate()
    assert (reply.data["role"], reply.data["rights"]) == ("viewer", ["code"])


def test_each_token_that_does_not_count_gets_the_same_answer(desk: Desk) -> None:
    """Outside `bad_token` and nothing else; the audit has the reason."""
    desk.user("ann")
    desk.token("ann", days=1)
    texts = {str(desk.authenticate(digest=token_digest("guess")).data)}
    texts.add(str(desk.authenticate(prefix="zc_zzzzzzzz").data))
    texts.add(str(desk.authenticate(prefix="' OR 1=1").data))
    assert not desk.code("user_change", name="ann", disabled=True)
    texts.add(str(desk.authenticate().data))
    assert not desk.code("user_change", name="ann", disabled=False)
    desk.story.now += 86_400
    texts.add(str(desk.authenticate().data))
    assert not desk.code("token_revoke", prefix=CREDENTIALS["prefix"])
    texts.add(str(desk.authenticate().data))
    assert len(texts) == 1
    assert "bad_token" in texts.pop()
    desk.story.wait(2)
    reasons = [row.detail for row in desk.audit() if row.result == "bad_token"]
    assert reasons == [
        "wrong token with this prefix",
        "unknown token",
        "unknown token",
        "disabled user ann",
        "expired token",
        "revoked token",
    ]


def test_the_use_of_a_token_is_written_once_a_minute(desk: Desk) -> None:
    """However often it is used."""
    desk.user("ann")
    desk.token("ann")
    writes = desk.story.store.history

    def count() -> int:
        desk.authenticate()
        return sum(command is ChangePeople for _, command in writes)

    first = count()
    assert [count(), count()] == [first, first]
    desk.story.now += 61
    assert count() == first + 1


def test_others_manage_tokens_of_their_own_only(desk: Desk) -> None:
    """With at most the role and the rights of the request; nobody sees those of others."""
    desk.user("ann", "operator", given=["code"])
    desk.user("bob")
    other = {"prefix": "zc_bbbbbbbb", "digest": token_digest("b")}
    assert desk.code("token_create", "submitter", "ann", user="bob", role="viewer", **other) == (
        "forbidden"
    )
    assert desk.code("token_create", "submitter", "ann", role="operator", **other) == (
        "role_too_high"
    )
    assert desk.code("token_create", "viewer", "ann", role="viewer", **other) == "forbidden"
    assert not desk.code("token_create", "submitter", "ann", role="submitter", **other)
    assert desk.authenticate(**other).data["rights"] == []  # the request had none
    assert desk.ask("tokens", "viewer", "bob").data["tokens"] == []
    assert len(desk.ask("tokens", "viewer", "ann").data["tokens"]) == 1
    assert desk.code("token_revoke", "operator", "bob", prefix=other["prefix"]) == "no_such_token"
    assert not desk.code("token_revoke", "submitter", "ann", prefix=other["prefix"])


@pytest.mark.parametrize("op", ["users", "user_add", "user_change", "audit", "audit_archive"])
def test_only_admins_manage_users_and_read_the_audit(desk: Desk, op: str) -> None:
    """An operator is not one."""
    assert desk.code(op, "operator") == "forbidden"


def test_the_last_admin_falls_by_the_masters_key_or_the_socket_only(desk: Desk) -> None:
    """A user or a gateway that calls itself masters is not believed."""
    desk.user("ann", "admin")
    loss = {"name": "ann", "disabled": True}
    assert desk.code("user_change", "admin", "ann", **loss) == "last_admin"
    assert desk.code("user_change", "admin", "masters", key="gw", **loss) == "last_admin"
    assert not desk.code("user_change", "admin", "masters", key="masters", **loss)
    assert not desk.code("user_change", "admin", name="ann", disabled=False)
    assert not desk.code("user_change", "", "root@vm", key="", **loss)


def test_names_roles_rights_and_quotas_are_checked(desk: Desk) -> None:
    """A wrong one changes nothing."""
    for args in (
        {"name": "masters", "role": "admin"},
        {"name": "a b", "role": "viewer"},
        {"name": "ann", "role": "worker"},
        {"name": "ann", "role": "viewer", "given": ["root"]},
        {"name": "ann", "role": "viewer", "quotas": {"most_queued": -1}},
        {"name": "ann", "role": "viewer", "quotas": {"most_queued": True}},
        {"name": "ann", "role": "viewer", "quotas": {"other": 1}},
    ):
        assert desk.code("user_add", **args) == "bad_request", args
    assert desk.story.store.tables.users == {}


def test_an_action_leaves_its_line_with_who_and_from_where(desk: Desk) -> None:
    """A gateway's user, its token and its address; the diff of a changed user."""
    desk.user("ann")
    desk.ask("user_change", name="ann", role="viewer", address="192.0.2.7", key="gw")
    line = desk.audit()[-1]
    assert (line.by, line.role, line.through, line.address) == (
        "root",
        "admin",
        "key root",
        "192.0.2.7",
    )
    assert (line.via, line.op, line.target, line.result) == ("m1", "user_change", "ann", "ok")
    assert line.detail == 'role: "submitter" → "viewer"'


def test_refused_requests_leave_lines_but_not_too_many(desk: Desk) -> None:
    """Five a second of one caller; the rest is counted, and others are not held back."""
    for _ in range(30):
        desk.code("user_add", "operator", "eve", name="x", role="admin")
        desk.story.now -= 0.02  # all in the same second
    desk.code("act", "viewer", "bob", ref="7", action="cancel")
    desk.story.wait(2)
    lines = [(row.by, row.op, row.result, row.detail) for row in desk.audit()]
    refused = ("eve", "user_add", "forbidden", "")
    assert lines.count(refused) == 5
    assert ("eve", "user_add", "forbidden", "and 25 lines like this were left out") in lines
    assert ("bob", "act cancel", "forbidden", "") in lines
    assert len(lines) == 7


def test_what_needs_no_transaction_leaves_a_line(desk: Desk) -> None:
    """Also a forced failover, which ends the leader that writes it."""
    desk.ask("rebalance", epoch=1)
    desk.ask("step_down", epoch=1)
    assert [(row.op, row.target) for row in desk.audit()] == [
        ("rebalance", "epoch 1"),
        ("step_down", "epoch 1"),
    ]


def test_actions_on_runs_name_job_and_run() -> None:
    """A submission, a pause, and a change of the pace with its diff; a dry run leaves none."""
    story = leading(*urls(2))
    story.ask("act", ref="1", action="pause")
    story.ask("tune", ref="1", rate=2.5)
    story.ask("prune", dry_run=True)
    story.wait(2)
    lines = [(row.entry.op, row.entry.job, row.entry.run) for row in story.store.tables.audit]
    assert lines == [("submit", 1, 1), ("act pause", 1, 1), ("tune", 1, 1)]
    assert "politeness.rate" in story.store.tables.audit[-1].entry.detail


def test_a_follower_lets_the_leader_refuse_what_is_audited(desk: Desk) -> None:
    """So that the line is written; without a leader it refuses by itself (`test_rights`)."""
    story = LeaderStory(me="m2")
    story.master.follower.leader, story.master.follower.heard_at = "m1", story.now
    request = ClientRequest("x", "user_add", {"name": "x"}, by="eve", role="viewer")
    effects = story.master.handle(m.ClientAsked(b"c", request), story.now, 0.0)
    assert [type(effect) for effect in effects] == [m.Forward]


def test_the_form_of_a_token() -> None:
    """A visible part, and 256 bits; what is no token has no prefix."""
    assert len(TOKEN) == 3 + 8 + 1 + 43
    assert prefix_of(TOKEN) == TOKEN[:11]
    assert prefix_of(TOKEN[:-1]) == prefix_of(f"{TOKEN}x") == prefix_of("") == ""
    assert full_prefix(TOKEN[3:11]) == full_prefix(TOKEN[:11]) == TOKEN[:11]
    assert full_prefix("zc_") == full_prefix("a;drop table") == ""
