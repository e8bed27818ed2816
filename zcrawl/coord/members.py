"""Track the catalogue: report changes, dead entries, and other members with our id.

Part of the election machine; pure.
"""

from __future__ import annotations

from typing import Final, assert_never

from zcrawl.coord import calls as c
from zcrawl.coord.ports import (
    Health,
    IdTaken,
    MastersChanged,
    Member,
    MemberRole,
    NodesChanged,
    Sighting,
    WorkersChanged,
)

# A dead member's own agent removes it after a minute or two. When the whole host died nobody does,
# for three days: the leader helps. An agent that comes back enters what it still has again.
REMOVE_DEAD_AFTER_S: Final = 180.0
ID_TAKEN_AFTER_S: Final = 6.0  # our earlier life counts as living until its check has run out


def watched_by(role: MemberRole) -> tuple[MemberRole, ...]:
    """Return the roles whose members a member of this role watches. Who watches masters watches
    the lock, too."""
    match role:
        case MemberRole.MASTER:
            return (MemberRole.MASTER, MemberRole.WORKER)
        case MemberRole.WORKER:
            return (MemberRole.MASTER,)
        case MemberRole.STANDALONE:
            return (MemberRole.STANDALONE,)
        case _:
            assert_never(role)


def _changed(
    role: MemberRole, seen: tuple[Sighting, ...]
) -> MastersChanged | WorkersChanged | NodesChanged:
    match role:
        case MemberRole.MASTER:
            return MastersChanged(seen)
        case MemberRole.WORKER:
            return WorkersChanged(seen)
        case MemberRole.STANDALONE:
            return NodesChanged(seen)
        case _:
            assert_never(role)


class Members:
    def __init__(self, me: Member) -> None:
        self._me = me
        self._told: dict[MemberRole, tuple[Sighting, ...]] = {}
        self._dead_since: dict[tuple[str, str], float] = {}
        self._doubles: dict[int, tuple[Member, float]] = {}
        self._double_told: set[int] = set()

    def read(
        self, role: MemberRole, rows: tuple[c.CatalogueRow, ...], now: float
    ) -> c.ElectionEffects:
        self._note_dead(role, rows, now)
        effects: c.ElectionEffects = []
        ordered = sorted(rows, key=lambda row: (row.sighting.member.id, row.node))
        sightings = tuple(row.sighting for row in ordered)
        if self._told.get(role) != sightings:
            self._told[role] = sightings
            effects.append(c.Tell(_changed(role, sightings)))
        if role is self._me.role:
            self._note_doubles(sightings, now)
        return effects

    def doubles(self, now: float) -> c.ElectionEffects:
        """Report members that have had our id too long to be our earlier process; once each."""
        effects: c.ElectionEffects = []
        for incarnation, (other, since) in self._doubles.items():
            if now - since >= ID_TAKEN_AFTER_S and incarnation not in self._double_told:
                self._double_told.add(incarnation)
                effects.append(c.Tell(IdTaken(other)))
        return effects

    def dead(self, now: float) -> list[c.Call]:
        """Return calls that remove entries which nobody else removes, oldest first."""
        return [
            c.DeregisterDead(node, service_id)
            for (node, service_id), since in self._dead_since.items()
            if now - since > REMOVE_DEAD_AFTER_S
        ]

    def removed(self, node: str, service_id: str) -> None:
        """Forget a dead entry; if it is read as dead again, its time starts again."""
        self._dead_since.pop((node, service_id), None)

    def _note_dead(self, role: MemberRole, rows: tuple[c.CatalogueRow, ...], now: float) -> None:
        dead = {
            (row.node, row.service_id) for row in rows if row.sighting.health is Health.CRITICAL
        }
        prefix = f"zcrawl:{role.value}:"
        for key in [key for key in self._dead_since if key[1].startswith(prefix)]:
            if key not in dead:
                del self._dead_since[key]
        for key in sorted(dead):
            self._dead_since.setdefault(key, now)

    def _note_doubles(self, sightings: tuple[Sighting, ...], now: float) -> None:
        others = [
            seen.member
            for seen in sightings
            if seen.member.id == self._me.id
            and seen.member.incarnation != self._me.incarnation
            and seen.health is Health.PASSING
        ]
        before = self._doubles
        self._doubles = {
            other.incarnation: (other, before.get(other.incarnation, (other, now))[1])
            for other in others
        }
