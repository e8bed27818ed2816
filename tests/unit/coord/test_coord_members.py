"""What a member makes of the catalogue."""

from __future__ import annotations

from zcrawl.coord import calls as c
from zcrawl.coord.members import ID_TAKEN_AFTER_S, REMOVE_DEAD_AFTER_S, Members
from zcrawl.coord.ports import (
    Condition,
    Health,
    IdTaken,
    MastersChanged,
    Member,
    MemberRole,
    Sighting,
    WorkersChanged,
)
from zcrawl.coord.records import service_id

T = 500.0
ME = Member(MemberRole.MASTER, "m1", "prod", "1", "host", 1, 7)


def row(
    role: MemberRole, id: str, health: Health = Health.PASSING, incarnation: int = 1
) -> c.CatalogueRow:
    member = Member(role, id, "prod", "1", "host", 1, incarnation)
    return c.CatalogueRow(
        "node-2", service_id(member), Sighting(member, health, False, Condition())
    )


def test_the_catalogue_is_told_when_it_changes() -> None:
    """Sorted by id, whatever order Consul has; the same once more is no news."""
    members = Members(ME)
    a, b = row(MemberRole.WORKER, "a"), row(MemberRole.WORKER, "b")
    expected = [c.Tell(WorkersChanged((a.sighting, b.sighting)))]
    assert members.read(MemberRole.WORKER, (b, a), T) == expected
    assert members.read(MemberRole.WORKER, (a, b), T + 1) == []
    assert members.read(MemberRole.MASTER, (), T) == [c.Tell(MastersChanged(()))]


def test_the_dead_are_removed_after_a_while() -> None:
    """Only who was dead all the time; masters and workers are counted apart."""
    members = Members(ME)
    dead = row(MemberRole.WORKER, "a", Health.CRITICAL)
    members.read(MemberRole.WORKER, (dead, row(MemberRole.WORKER, "b")), T)
    members.read(MemberRole.MASTER, (), T + 1)
    assert members.dead(T + REMOVE_DEAD_AFTER_S) == []
    (call,) = members.dead(T + REMOVE_DEAD_AFTER_S + 1)
    assert call == c.DeregisterDead("node-2", dead.service_id)
    members.removed("node-2", dead.service_id)
    assert members.dead(T + REMOVE_DEAD_AFTER_S + 1) == []


def test_who_came_back_to_life_is_not_removed() -> None:
    """Its time begins anew when it dies again."""
    members = Members(ME)
    members.read(MemberRole.WORKER, (row(MemberRole.WORKER, "a", Health.CRITICAL),), T)
    members.read(MemberRole.WORKER, (row(MemberRole.WORKER, "a"),), T + 100)
    members.read(MemberRole.WORKER, (row(MemberRole.WORKER, "a", Health.CRITICAL),), T + 101)
    assert members.dead(T + REMOVE_DEAD_AFTER_S + 50) == []


def test_our_own_past_is_no_rival() -> None:
    """The entry of a killed process stays passing for three seconds; a rival's stays longer."""
    members = Members(ME)
    rival = row(MemberRole.MASTER, "m1", incarnation=99)
    members.read(MemberRole.MASTER, (row(MemberRole.MASTER, "m1", incarnation=7), rival), T)
    assert members.doubles(T + ID_TAKEN_AFTER_S - 1) == []
    assert members.doubles(T + ID_TAKEN_AFTER_S) == [c.Tell(IdTaken(rival.sighting.member))]
    assert members.doubles(T + ID_TAKEN_AFTER_S + 1) == []


def test_a_past_that_ended_is_forgotten() -> None:
    """Critical in time: it was our earlier life."""
    members = Members(ME)
    members.read(MemberRole.MASTER, (row(MemberRole.MASTER, "m1", incarnation=99),), T)
    members.read(MemberRole.MASTER, (row(MemberRole.MASTER, "m1", Health.CRITICAL, 99),), T + 3)
    assert members.doubles(T + ID_TAKEN_AFTER_S + 1) == []
