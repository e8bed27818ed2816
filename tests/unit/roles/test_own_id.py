"""Whether a node's name is free is asked before it registers."""

from __future__ import annotations

import asyncio

import pytest

from zcrawl.coord.ports import Condition, Health, Member, MemberRole, Sighting
from zcrawl.errors import ConfigError, UnreachableError
from zcrawl.roles import own_id


def sighting(id: str, health: Health) -> Sighting:
    member = Member(MemberRole.WORKER, id, "c", "1", "box", 77, 5)
    return Sighting(member, health, False, Condition())


async def ask(*answers: list[Sighting] | None, patience_s: float = 0.0) -> int:
    """How often it looked. None: Consul is away."""
    left, looked = list(answers), 0

    def look() -> list[Sighting]:
        nonlocal looked
        looked += 1
        seen = left.pop(0) if len(left) > 1 else left[0]
        if seen is None:
            raise UnreachableError("away")
        return seen

    await own_id.require_free(["w1"], MemberRole.WORKER, look, asyncio.Event(), patience_s)
    return looked


async def test_a_living_process_of_our_name_is_named() -> None:
    """With its pid and its host."""
    with pytest.raises(ConfigError, match="worker is registered as w1: pid 77 on box") as caught:
        await ask([sighting("w1", Health.PASSING)])
    assert caught.value.code == "id_taken"


async def test_others_and_the_dead_do_not_matter() -> None:
    """One look is enough."""
    assert await ask([sighting("w2", Health.PASSING), sighting("w1", Health.CRITICAL)]) == 1


async def test_without_consul_a_name_is_free() -> None:
    """A worker that knows the masters starts even without Consul."""
    assert await ask(None) == 1


async def test_our_own_past_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as living until its check has run out."""
    monkeypatch.setattr(own_id, "LOOK_AGAIN_S", 0.0)
    alive = [sighting("w1", Health.PASSING)]
    assert await ask(alive, alive, [sighting("w1", Health.CRITICAL)], patience_s=60.0) == 3
