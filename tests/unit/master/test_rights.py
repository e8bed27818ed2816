"""What each role may ask of a master, leader or not, and how the list says the roles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine_tools import UTC, LeaderStory
from zcrawl.errors import ConfigError
from zcrawl.master import events as m
from zcrawl.master.desk.operation import OPERATIONS, Right
from zcrawl.master.desk.rights import READS
from zcrawl.master.master import Master
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.mesh.roles import KeyRole
from zcrawl.mesh.security import (
    DEFAULT_ROLES,
    REPORTS_DOMAIN,
    AllowedKey,
    allow_list_line,
    judge,
    parse_allow_list,
)

KEY, OTHER, THIRD = "ab" * 32, "cd" * 32, "12" * 32


def client_request(op: str, role: str = KeyRole.VIEWER, **args: Any) -> m.ClientAsked:
    return m.ClientAsked(b"c", ClientRequest(f"id-{op}", op, args, role=role))


def replies(effects: m.MasterEffects) -> list[Reply]:
    return [effect.reply for effect in effects if isinstance(effect, m.ReplyTo)]


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("role", ["viewer", "worker", "watch", "gateway", "root", "Operator"])
def test_who_may_not_operate_changes_nothing(leads: bool, role: str) -> None:
    """Every request that is no read is refused, by the leader and by any other master; also for a
    role that this master has never heard of."""
    story = LeaderStory().elect() if leads else LeaderStory()
    ops = {
        "submit",
        "add_seeds",
        "act",
        "tune",
        "reassign",
        "step_down",
        "drain",
        "undrain",
        "made_up",
    }
    if leads:
        ops |= OPERATIONS.keys() - READS
    if role == "gateway":
        ops -= {"authenticate"}  # a read of its own
    for op in ops:
        effects = story.master.handle(client_request(op, role, ref="1"), story.now, UTC)
        (reply,) = replies(effects)
        assert (reply.ok, reply.data["code"]) == (False, "forbidden"), op
        assert not any(isinstance(effect, m.Execute | m.Ask | m.Forward) for effect in effects)


def test_who_may_only_watch_sees_everything() -> None:
    """The same answers as for others."""
    story = LeaderStory().elect()
    story.submit("http://a.test/")
    for op in sorted(READS - {"job", "versions", "node", "failed", "masters", "owner", "reloaded"}):
        story.replies.clear()
        story.handle(client_request(op, run=1))
        assert [reply.ok for reply in story.replies] == [True], op


def test_each_is_told_its_role() -> None:
    """A console offers what may be done; also while nobody leads."""
    master = Master("m2", seen_slots=64)
    for role in ("", *(set(KeyRole) - {KeyRole.MASTER})):
        (reply,) = replies(master.handle(client_request("role", role), 5.0, UTC))
        assert reply.data == {"role": role}


def test_a_worker_asks_where_the_masters_are_and_nothing_else() -> None:
    """It needs that where there is no Consul; the refusal names the role that a read needs."""
    story = LeaderStory().elect()
    (reply,) = replies(
        story.master.handle(client_request("masters", KeyRole.WORKER), story.now, UTC)
    )
    assert reply.ok
    assert "masters" in reply.data
    for op in sorted(READS - {"role", "masters"}):
        (reply,) = replies(story.master.handle(client_request(op, KeyRole.WORKER), story.now, UTC))
        assert reply.data["code"] == "forbidden", op
        assert "is one of a worker" in reply.data["message"]
        assert "this needs the role viewer" in reply.data["message"]


def test_an_operator_and_a_client_without_keys_may_do_all() -> None:
    """What is asked is done, or refused for another reason."""
    for role in ("", KeyRole.OPERATOR):
        story = LeaderStory().elect()
        for op, operation in sorted(OPERATIONS.items()):
            if role and operation.right in (Right.ADMIN, Right.GATEWAY):
                continue  # users, secrets and the audit are for admins
            story.replies.clear()
            story.handle(client_request(op, role, ref="1"))
            codes = [reply.data.get("code") for reply in story.replies if not reply.ok]
            assert "forbidden" not in codes, op


def test_a_follower_hands_the_role_on() -> None:
    """The leader would refuse what a follower forgot to."""
    story = LeaderStory().elect()
    request = ClientRequest("x", "step_down", {}, forwarded=True, via="m2", role=KeyRole.VIEWER)
    effects = story.master.handle(m.ClientAsked(b"c", request), story.now, UTC)
    assert replies(effects)[0].data["code"] == "forbidden"
    assert not any(isinstance(effect, m.StepDown) for effect in effects)


def test_the_list_names_roles() -> None:
    """A third word with one or more; `watch` is the old name of viewer; a line without a role is
    worker and operator. Anything else is a mistake that locks nobody out."""
    text = f"{KEY} ann watch\n{OTHER} bob  # may all\n{THIRD} pool worker names=a-*,b* # shared\n"
    allowed = parse_allow_list(text, "list")
    assert allowed == {
        KEY: AllowedKey("ann", frozenset({KeyRole.VIEWER}), has_roles=True),
        OTHER: AllowedKey("bob", DEFAULT_ROLES),
        THIRD: AllowedKey("pool", frozenset({KeyRole.WORKER}), ("a-*", "b*"), has_roles=True),
    }
    both = parse_allow_list(f"{KEY} x worker,viewer", "list")[KEY]
    assert both.roles == {KeyRole.WORKER, KeyRole.VIEWER}
    patterned = parse_allow_list(f"{KEY} x names=*", "list")[KEY]
    assert patterned.may_be("any")
    assert not patterned.has_roles
    for wrong in (
        f"{KEY} ann root",
        f"{KEY} ann master",
        f"{KEY} ann watch more",
        f"{KEY} watch:ann",
    ):
        with pytest.raises(ConfigError):
            parse_allow_list(wrong, "list")


def test_a_written_line_is_read_as_it_was_meant() -> None:
    """For every choice of roles and patterns."""
    choices: list[tuple[KeyRole, ...]] = [(), (KeyRole.VIEWER,), (KeyRole.OPERATOR, KeyRole.WORKER)]
    choices += [(KeyRole.SUBMITTER,), (KeyRole.ADMIN,), (KeyRole.GATEWAY,)]
    for roles in choices:
        for patterns in ((), ("a-*", "b")):
            if patterns and roles and KeyRole.WORKER not in roles:
                continue
            line = allow_list_line(KEY, "x", roles, patterns)
            made = AllowedKey("x", frozenset(roles) or DEFAULT_ROLES, patterns, bool(roles))
            assert parse_allow_list(line, "list") == {KEY: made}


def test_only_workers_reach_the_socket_of_results() -> None:
    """Whoever does could report pages there; masters do not, they hear it."""
    allowed = parse_allow_list(f"{KEY} ann viewer\n{OTHER} bob\n{THIRD} eve operator", "list")

    def admitted(key: str, domain: bytes) -> bool:
        frames = [b"1.0", b"1", domain, b"127.0.0.1", b"", b"CURVE", bytes.fromhex(key)]
        verdict = judge(frames, "ef" * 32, allowed)
        assert verdict is not None
        return verdict.admitted

    assert admitted(KEY, b"zcrawl")
    assert not admitted(KEY, REPORTS_DOMAIN)
    assert admitted(OTHER, b"zcrawl")
    assert admitted(OTHER, REPORTS_DOMAIN)
    for key in (THIRD, "ef" * 32):
        assert admitted(key, b"zcrawl")
        assert not admitted(key, REPORTS_DOMAIN)
