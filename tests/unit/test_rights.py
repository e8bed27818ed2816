"""Keys that may only watch: what a master does for them, leader or not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine_tools import UTC, LeaderStory
from zcrawl.errors import ConfigError
from zcrawl.master import events as m
from zcrawl.master.master import Master
from zcrawl.master.rights import READS
from zcrawl.mesh.messages import Reply, Request
from zcrawl.mesh.security import (
    REPORTS_DOMAIN,
    WATCH,
    allow_list_line,
    is_watcher,
    judge,
    parse_allow_list,
)

KEY, OTHER = "ab" * 32, "cd" * 32


def asked(op: str, role: str = WATCH, **args: Any) -> m.ClientAsked:
    return m.ClientAsked(b"c", Request(f"id-{op}", op, args, role=role))


def replies(effects: m.Effects) -> list[Reply]:
    return [one.reply for one in effects if isinstance(one, m.ReplyTo)]


@pytest.mark.parametrize("leads", [True, False])
def test_who_may_only_watch_changes_nothing(leads: bool) -> None:
    """Every request that is no read is refused, by the leader and by any other master."""
    story = LeaderStory().elect() if leads else LeaderStory()
    ops = {"submit", "add_seeds", "act", "tune", "reassign", "step_down", "drain", "made_up"}
    if leads:
        ops |= story.leader.desk._ops.keys() - READS
    for op in ops:
        effects = story.master.handle(asked(op, ref="1"), story.now, UTC)
        (reply,) = replies(effects)
        assert (reply.ok, reply.data["code"]) == (False, "forbidden"), op
        assert not any(isinstance(one, m.Execute | m.Ask | m.Forward) for one in effects)


def test_who_may_only_watch_sees_everything() -> None:
    """The same answers as for others."""
    story = LeaderStory().elect()
    story.submit("http://a.test/")
    for op in sorted(READS - {"job", "node", "failed", "masters"}):
        story.replies.clear()
        story.handle(asked(op, run=1))
        assert [reply.ok for reply in story.replies] == [True], op


def test_each_is_told_its_role() -> None:
    """A console offers what may be done; also while nobody leads."""
    master = Master("m2", seen_slots=64)
    for role in ("", WATCH):
        (reply,) = replies(master.handle(asked("role", role), 5.0, UTC))
        assert reply.data == {"role": role}


def test_a_follower_hands_the_role_on() -> None:
    """The leader would refuse what a follower forgot to."""
    story = LeaderStory().elect()
    request = Request("x", "step_down", {}, forwarded=True, via="m2", role=WATCH)
    effects = story.master.handle(m.ClientAsked(b"c", request), story.now, UTC)
    assert replies(effects)[0].data["code"] == "forbidden"
    assert not any(isinstance(one, m.StepDown) for one in effects)


def test_the_list_names_watchers() -> None:
    """A third word; anything else in its place is a mistake that locks nobody out."""
    text = f"{KEY} ann watch\n{OTHER} bob  # may all\n"
    allowed = parse_allow_list(text, "list")
    assert is_watcher(allowed[KEY]) and allowed[OTHER] == "bob" and not is_watcher("bob")
    assert parse_allow_list(allow_list_line(KEY, "ann", WATCH), "list") == {KEY: allowed[KEY]}
    for wrong in (f"{KEY} ann admin", f"{KEY} ann watch more", f"{KEY} watch:ann"):
        with pytest.raises(ConfigError):
            parse_allow_list(wrong, "list")


def test_a_watcher_does_not_reach_the_socket_of_results() -> None:
    """It could report pages there."""
    allowed = parse_allow_list(f"{KEY} ann watch\n{OTHER} bob\n", "list")

    def admitted(key: str, domain: bytes) -> bool:
        frames = [b"1.0", b"1", domain, b"127.0.0.1", b"", b"CURVE", bytes.fromhex(key)]
        verdict = judge(frames, "ef" * 32, allowed)
        assert verdict is not None
        return verdict.admitted

    assert admitted(KEY, b"zcrawl") and not admitted(KEY, REPORTS_DOMAIN)
    assert admitted(OTHER, b"zcrawl") and admitted(OTHER, REPORTS_DOMAIN)
