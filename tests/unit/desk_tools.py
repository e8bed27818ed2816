"""What the tests of the desk share: a leader at work, and what it answers."""

from __future__ import annotations

from typing import Any

from tests.unit.machine_tools import LeaderStory, spec
from zcrawl.model.spec import Politeness
from zcrawl.model.states import Outcome

FAILED: dict[str, Any] = {"outcome": Outcome.FAILED, "page": None, "items": [], "reason": "dns"}
SLOW = Politeness(robots=False, rate=0.5, concurrency=1)


def answer(story: LeaderStory, op: str, **args: Any) -> dict[str, Any]:
    reply = story.ask(op, **args)
    assert reply is not None, reply
    assert reply.ok, reply
    return reply.data


def leading(*seeds: str, politeness: Politeness | None = None) -> LeaderStory:
    story = LeaderStory().elect()
    story.submit(*seeds, of=spec(politeness) if politeness else None)
    story.join()
    story.tick()
    return story
