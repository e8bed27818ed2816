"""What is read from a catalogue in which everybody with a token can write."""

from __future__ import annotations

import pytest

from zcrawl.coord.ports import Condition, Member, MemberRole
from zcrawl.coord.records import meta_of, read_row
from zcrawl.mesh.ports import Endpoints


def entry(control: str) -> dict[str, object]:
    endpoints = Endpoints("m1", control, "tcp://10.0.0.1:2", "tcp://10.0.0.1:3")
    member = Member(MemberRole.MASTER, "m1", "c", "1", "here", 7, 9, endpoints=endpoints)
    meta = meta_of(member, Condition())
    return {
        "Node": {"Node": "n"},
        "Service": {"ID": "s", "Tags": [], "Meta": meta},
        "Checks": [],
    }


def test_a_master_is_read_back_as_it_was_written() -> None:
    """With its three addresses."""
    row = read_row(MemberRole.MASTER, "c", entry("tcp://10.0.0.1:1"))
    assert row is not None
    assert row.sighting.member.endpoints == Endpoints(
        "m1", "tcp://10.0.0.1:1", "tcp://10.0.0.1:2", "tcp://10.0.0.1:3"
    )


@pytest.mark.parametrize("bad", ["", "nonsense", "tcp://my host:7", "tcp://*:7", "tcp://h:99999"])
def test_a_master_where_nobody_can_connect_is_shown_without_addresses(bad: str) -> None:
    """It is there, and `nodes` shows it; workers, masters and commands leave it alone."""
    row = read_row(MemberRole.MASTER, "c", entry(bad))
    assert row is not None
    assert row.sighting.member.id == "m1"
    assert row.sighting.member.endpoints is None
