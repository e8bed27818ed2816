"""Every operation, by every kind of sender, through the border's mark and a real leader.

What is expected is the table in docs/security.md, which people have read. A declaration that
changes fails here or in `test_tables.py` until the table is written again and its difference is
reviewed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.machine_tools import LeaderStory, spec
from zcrawl.master import events as m
from zcrawl.master.desk.operation import OPERATIONS
from zcrawl.mesh.border import LOCAL, Sender, mark
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.mesh.roles import PRINCIPALS, KeyRole

SECURITY = Path(__file__).parents[3] / "docs" / "security.md"
ACCESS_CODES = ("forbidden", "not_owner")
OWN, OTHER = "submitter, own job", "submitter, other job"
ARGS: dict[str, dict[str, Any]] = {
    "submit": {"spec": msgspec.to_builtins(spec()), "mode": "update", "seeds": ["http://a.test/"]},
    "add_seeds": {"run": 1, "seeds": ["http://a.test/more"], "last": False},
    "act": {"ref": "1", "action": "pause"},
    "change_job": {"ref": "1", "state": "paused"},
    "tune": {"ref": "1", "rate": 1.0},
}


def _rows() -> dict[str, dict[str, bool]]:
    """Return operation → column → allowed, as the page says."""
    text = SECURITY.read_text().partition("<!-- access:")[2].partition("<!-- end of access")[0]
    lines = [
        [cell.strip().strip("`") for cell in line.strip("| ").split("|")]
        for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    head, _, *rows = lines
    return {
        row[0]: dict(zip(head[1:], (cell == "yes" for cell in row[1:]), strict=True))
        for row in rows
    }


TABLE = _rows()


def _sender(role: KeyRole, name: str) -> Sender:
    return Sender("ab" * 32, name, frozenset({role}))


GATEWAY = _sender(KeyRole.GATEWAY, "gw")


def _by_key(op: str, role: KeyRole, name: str, **args: Any) -> ClientRequest:
    """A gateway that asks for itself names nobody; others forge what they like."""
    forged = "" if role is KeyRole.GATEWAY else "admin"
    return mark(ClientRequest("asked", op, args, by="root", role=forged), _sender(role, name))


def _by_gateway(op: str, role: KeyRole, name: str, **args: Any) -> ClientRequest:
    request = ClientRequest("asked", op, args, by=name, role=role, through="token zc_ab12cd34")
    return mark(request, GATEWAY)


def _ask(request: ClientRequest, seeding: bool = True) -> Reply | None:
    """Ask a leader whose job 1 belongs to ann; return its reply."""
    story = LeaderStory().elect()
    args = {**ARGS["submit"], "mode": "new", "seeding": seeding}
    story.handle(m.ClientAsked(b"c", ClientRequest("setup", "submit", args, by="ann")))
    story.tick()
    story.replies.clear()
    story.handle(m.ClientAsked(b"c", request))
    story.tick()
    story.tick()
    return story.replies[-1] if story.replies else None


def _is_let_in(reply: Reply | None) -> bool:
    return reply is None or reply.ok or reply.data["code"] not in ACCESS_CODES


COLUMNS = {
    "viewer": (KeyRole.VIEWER, "ann"),
    OWN: (KeyRole.SUBMITTER, "ann"),
    OTHER: (KeyRole.SUBMITTER, "eve"),
    "operator": (KeyRole.OPERATOR, "eve"),
    "admin": (KeyRole.ADMIN, "eve"),
    "worker": (KeyRole.WORKER, "ann"),
    "gateway": (KeyRole.GATEWAY, "ann"),
}


def test_the_table_has_every_operation_and_every_role() -> None:
    """No operation and no role is left out of what was reviewed."""
    assert set(TABLE) == set(OPERATIONS)
    assert all(set(row) == set(COLUMNS) for row in TABLE.values())
    assert {role for role, _ in COLUMNS.values()} == set(KeyRole) - {KeyRole.MASTER}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_each_operation_by_each_role(op: str, column: str) -> None:
    """A key of the role, and a user of the role through a gateway, get what the page says."""
    role, name = COLUMNS[column]
    requests = [_by_key(op, role, name, **ARGS.get(op, {}))]
    if role in PRINCIPALS:
        requests.append(_by_gateway(op, role, name, **ARGS.get(op, {})))
    for request in requests:
        reply = _ask(request)
        assert _is_let_in(reply) == TABLE[op][column], (request, reply)
        if op in ARGS and TABLE[op][column]:
            assert reply is not None
            assert reply.ok, reply  # it was not refused for another reason before


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_master_and_a_client_without_keys_may_do_all(op: str) -> None:
    """A master counts as an admin; without keys nobody is told apart. What a gateway asks, it asks
    for somebody."""
    masters = mark(ClientRequest("asked", op, ARGS.get(op, {})), _sender(KeyRole.MASTER, "masters"))
    assert _is_let_in(_ask(masters)) == TABLE[op]["admin"]
    assert _is_let_in(_ask(mark(ClientRequest("asked", op, ARGS.get(op, {})), LOCAL)))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(OPERATIONS)),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(["ann", "eve"]),
    st.sampled_from(["new", "update", "again"]),
    st.sampled_from(["pause", "cancel", "delete", "retry"]),
)
def test_a_gateway_opens_nothing_that_a_key_does_not(
    op: str, role: KeyRole, name: str, mode: str, action: str
) -> None:
    """The same user with the same role gets the same answer through a gateway as with a key, also
    when a follower forwarded it."""
    args = dict(ARGS.get(op, {}))
    args |= {"mode": mode} if op == "submit" else {"action": action} if op == "act" else {}
    by_key, by_gateway = (ask(op, role, name, **args) for ask in (_by_key, _by_gateway))
    forwarded = mark(
        msgspec.structs.replace(by_gateway, forwarded=True, via="m2"),
        _sender(KeyRole.MASTER, "masters"),
    )
    answers = [_ask(request) for request in (by_key, by_gateway, forwarded)]
    codes = [None if reply is None or reply.ok else reply.data["code"] for reply in answers]
    assert len(set(codes)) == 1, codes
