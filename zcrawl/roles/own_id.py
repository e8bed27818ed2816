"""Check that a node's name is free before it registers. The second node with a name must end, and
the first must not be disturbed. (Registering would overwrite the first one's entry.)

Used by the master's and the worker's role. If two nodes start at the same moment, both find the
name free, and the coordinator reports it later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from zcrawl.coord.members import ID_TAKEN_AFTER_S
from zcrawl.coord.ports import Health, Member, MemberRole, Sighting
from zcrawl.errors import ConfigError, UnreachableError
from zcrawl.model.reasons.cluster import ID_TAKEN

LOOK_AGAIN_S: Final = 0.3
OWN_ID: Final = "a cluster.id of its own"

Look = Callable[[], list[Sighting]]


async def require_free(
    ids: Collection[str],
    role: MemberRole,
    look: Look,
    stop: asyncio.Event,
    patience_s: float = ID_TAKEN_AFTER_S,
) -> None:
    """Raise ConfigError if another living node has the name. `look` reads the catalogue; may block.

    This waits, because the node's own earlier process counts as living until its check expires. If
    Consul does not answer, the name counts as free, because a worker must start without Consul.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while not stop.is_set():
        try:
            seen = await asyncio.to_thread(look)
        except UnreachableError:
            return
        other = _living(seen, ids)
        if other is None:
            return
        if loop.time() >= deadline:
            raise id_taken(role, other)
        await asyncio.sleep(LOOK_AGAIN_S)


def _living(seen: list[Sighting], ids: Collection[str]) -> Member | None:
    for sighting in seen:
        if sighting.member.id in ids and sighting.health is Health.PASSING:
            return sighting.member
    return None


def id_taken(role: MemberRole, other: Member) -> ConfigError:
    own = "an id of its own (ZCRAWL_NODE_ID)" if role is MemberRole.STANDALONE else OWN_ID
    return ConfigError(
        f"another living {role.value} is registered as {other.id}: pid {other.pid} on "
        f"{other.hostname}; give this one {own}",
        code=ID_TAKEN,
    )
