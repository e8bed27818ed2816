"""The table of what may arrive where: complete, and as the protocol's documentation has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zcrawl.mesh.codec import MAX_FRAME_BYTES
from zcrawl.mesh.messages import BODY_TYPES, MessageKind
from zcrawl.mesh.roles import (
    ANYBODY,
    ARRIVALS,
    REPORT_MOST,
    SMALL_REQUEST_MOST,
    WORKER_KINDS,
    Channel,
    KeyRole,
    body_most,
    kinds_on,
)

PROTOCOL = Path(__file__).parents[3] / "docs" / "protocol.md"

# What is legitimate, written down a second time, by hand: channel → role → kinds.
ASKS: dict[KeyRole, str] = {role: "REQUEST" for role in KeyRole if role is not KeyRole.WORKER}
BY_CHANNEL: dict[Channel, dict[KeyRole, str]] = {
    Channel.CONTROL: {
        KeyRole.WORKER: "HELLO ACCEPT REJECT RESULT BYE RELOADED STALE REQUEST",
        **ASKS,
    },
    Channel.REPORTS: {KeyRole.WORKER: "RESULT HEARTBEAT LINES"},
    Channel.PEER_CONTROL: {KeyRole.MASTER: "REPLY"},
    Channel.PEER_EVENTS: {KeyRole.MASTER: "BEAT SNAPSHOT LINES VITALS RELOAD RELOADED"},
    Channel.WORKER_CONTROL: {
        KeyRole.MASTER: "WELCOME ASSIGN ACK CANCEL REHELLO STALE NOT_LEADER DRAIN CONFIG CODE "
        "RELOAD"
    },
    Channel.WORKER_EVENTS: {KeyRole.MASTER: "BEAT"},
    Channel.CLIENT_CONTROL: {KeyRole.MASTER: "REPLY"},
    Channel.WATCHER_EVENTS: {KeyRole.MASTER: "BEAT EVENT SNAPSHOT"},
}


def test_every_kind_has_a_row() -> None:
    """A new kind that nobody thought about fails here, and is refused everywhere until then."""
    assert set(ARRIVALS) == set(MessageKind) == set(BODY_TYPES)
    assert all(ARRIVALS.values()), "a kind that may arrive nowhere is no message"
    assert set(BY_CHANNEL) == set(Channel)


@pytest.mark.parametrize("channel", list(Channel))
@pytest.mark.parametrize("role", list(KeyRole))
def test_each_role_sends_on_each_channel_what_the_protocol_says(
    channel: Channel, role: KeyRole
) -> None:
    """Every kind, channel and role: allowed where the second list says so, and nowhere else."""
    expected = {MessageKind[name] for name in BY_CHANNEL[channel].get(role, "").split()}
    for kind in MessageKind:
        assert (kind in kinds_on(channel, [role])) == (kind in expected), kind.name


def test_only_masters_speak_for_masters() -> None:
    """Also without keys, where everybody has all roles: the socket says it."""
    of_masters = {
        MessageKind.BEAT,
        MessageKind.SNAPSHOT,
        MessageKind.VITALS,
        MessageKind.EVENT,
        MessageKind.REPLY,
        MessageKind.WELCOME,
    }
    for channel in (Channel.CONTROL, Channel.REPORTS):
        assert not kinds_on(channel, ANYBODY) & of_masters


def test_roles_add_up() -> None:
    """A key that works and operates may send what either may."""
    worker, operator = (
        kinds_on(Channel.CONTROL, [role]) for role in (KeyRole.WORKER, KeyRole.OPERATOR)
    )
    assert kinds_on(Channel.CONTROL, (KeyRole.WORKER, KeyRole.OPERATOR)) == worker | operator
    assert not kinds_on(Channel.CONTROL, ())


def test_a_worker_speaks_in_its_own_name_in_all_that_it_says() -> None:
    """Requests have no name but the key's."""
    said = kinds_on(Channel.CONTROL, [KeyRole.WORKER]) | kinds_on(Channel.REPORTS, [KeyRole.WORKER])
    assert said - {MessageKind.REQUEST} == WORKER_KINDS


def test_lengths_go_by_role_and_kind() -> None:
    """Who may not submit has no long request; only results and held work are large."""
    for roles in ([KeyRole.VIEWER], [KeyRole.WORKER], [KeyRole.VIEWER, KeyRole.WORKER]):
        assert body_most(MessageKind.REQUEST, roles) == SMALL_REQUEST_MOST
    submitting: list[list[KeyRole]] = [
        [role] for role in KeyRole if role not in (KeyRole.VIEWER, KeyRole.WORKER)
    ]
    submitting.append([KeyRole.WORKER, KeyRole.OPERATOR])
    for of_submitter in submitting:
        assert body_most(MessageKind.REQUEST, of_submitter) == MAX_FRAME_BYTES
    large = {kind for kind in WORKER_KINDS if body_most(kind, [KeyRole.WORKER]) > REPORT_MOST}
    assert large == {MessageKind.RESULT, MessageKind.HELLO}


def test_the_documentation_has_the_same_table() -> None:
    """docs/protocol.md, line by line: socket, role, kinds."""
    section = PROTOCOL.read_text().partition("## What may arrive where")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z ]+)` \| ([a-z, ]+) \| ([A-Z_, ]+) \|$", section, re.MULTILINE)
    written: dict[tuple[Channel, KeyRole], set[MessageKind]] = {}
    for channel, roles, kinds in rows:
        for role in roles.split(", "):
            of_role = written.setdefault((Channel(channel), KeyRole(role)), set())
            of_role |= {MessageKind[name] for name in kinds.split(", ")}
    for channel in Channel:
        for role in KeyRole:
            assert written.get((channel, role), set()) == kinds_on(channel, [role]), (channel, role)
