"""The guarantees of every coordinator for masters and workers: Consul, files, and the fake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.contract.coord_backends import Backend, ConsulBackend, Node, SimBackend
from tests.servers.consul import ConsulServer, consul_server
from zcrawl.coord.agents.consul_client import ConsulSettings
from zcrawl.coord.ports import (
    Condition,
    Deposed,
    Elected,
    Health,
    LeaderSeen,
    MastersChanged,
    MemberRole,
    NodesChanged,
    WorkersChanged,
)


@pytest.fixture(scope="module")
def server() -> Iterator[ConsulServer]:
    with consul_server() as server:
        yield server


@pytest.fixture(params=["fake", "consul"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    backend: Backend
    if request.param == "fake":
        backend = SimBackend()
    else:
        server: ConsulServer = request.getfixturevalue("server")
        backend = ConsulBackend(ConsulSettings(server.url))
    yield backend
    await backend.end()


async def two_masters(backend: Backend) -> tuple[Node, Node]:
    """The first one leads."""
    leader = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: leader.leads)
    other = backend.begin(MemberRole.MASTER, "m2")
    assert await backend.until(lambda: (seen := other.last(LeaderSeen)) and seen.master_id == "m1")
    return leader, other


async def test_one_is_elected_and_the_others_wait(backend: Backend) -> None:
    """Of three masters one leads; the others learn its name and addresses."""
    masters = [backend.begin(MemberRole.MASTER, f"m{n}") for n in range(3)]

    def all_know() -> bool:
        seen = [node.last(LeaderSeen) for node in masters]
        return all(event is not None and event.master_id for event in seen)

    assert await backend.until(lambda: any(node.leads for node in masters))
    assert await backend.until(all_know)
    (leader,) = [node for node in masters if node.leads]
    for node in masters:
        seen = node.last(LeaderSeen)
        assert seen is not None
        assert seen.master_id == leader.me.id
        assert seen.endpoints == leader.me.endpoints
        assert len(node.all(Elected)) == (1 if node is leader else 0)


async def test_resigning_hands_the_lock_over(backend: Backend) -> None:
    """A leader that resigns is deposed at once, and another is elected with a higher number."""
    leader, other = await two_masters(backend)
    leader.coordinator.resign()
    assert await backend.until(lambda: other.leads)
    assert leader.all(Deposed) == [Deposed("resigned")]
    assert other.all(Elected)[0].hint > leader.all(Elected)[0].hint
    assert await backend.until(lambda: (seen := leader.last(LeaderSeen)) and seen.master_id == "m2")
    assert not leader.leads


async def test_who_resigned_stands_again_when_nobody_else_does(backend: Backend) -> None:
    """A cluster of one master does not stay without a leader."""
    master = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: master.leads)
    master.coordinator.resign()
    assert await backend.until(lambda: not master.leads)
    assert await backend.until(lambda: master.leads)
    first, second = master.all(Elected)
    assert second.hint > first.hint


async def test_the_lock_of_a_killed_master_passes_on(backend: Backend) -> None:
    """Without a word of farewell another leads, and the dead one is seen as dead or not at all."""
    leader, other = await two_masters(backend)
    assert await backend.until(lambda: _health(other, "m1") is Health.PASSING)
    backend.kill(leader)
    assert await backend.until(lambda: other.leads)
    assert await backend.until(lambda: _health(other, "m1") is not Health.PASSING)


async def test_everybody_sees_masters_and_masters_see_workers(backend: Backend) -> None:
    """Members appear with all that they said of themselves; the leader is marked."""
    leader, other = await two_masters(backend)
    worker = backend.begin(MemberRole.WORKER, "w1")

    def complete() -> bool:
        masters = [node.last(MastersChanged) for node in (leader, other, worker)]
        workers = [node.last(WorkersChanged) for node in (leader, other)]
        return all(
            seen is not None and [sighting.leads for sighting in seen.masters] == [True, False]
            for seen in masters
        ) and all(seen is not None and len(seen.workers) == 1 for seen in workers)

    assert await backend.until(complete)
    seen, workers = worker.last(MastersChanged), other.last(WorkersChanged)
    assert seen is not None
    assert workers is not None
    assert [sighting.member for sighting in seen.masters] == [leader.me, other.me]
    assert [sighting.member for sighting in workers.workers] == [worker.me]
    assert {sighting.health for sighting in (*seen.masters, *workers.workers)} == {Health.PASSING}
    assert worker.last(WorkersChanged) is None
    assert not worker.leads


async def test_standalone_nodes_see_each_other_and_nobody_else(backend: Backend) -> None:
    """They elect nobody; one that falls silent is seen as dead, and masters are not told."""
    master = backend.begin(MemberRole.MASTER, "m1")
    first, second = (backend.begin(MemberRole.STANDALONE, id) for id in ("n1", "n2"))

    def seen_by(node: Node) -> dict[str, Health]:
        seen = node.last(NodesChanged)
        return {row.member.id: row.health for row in seen.nodes} if seen is not None else {}

    both = dict.fromkeys(("n1", "n2"), Health.PASSING)
    assert await backend.until(lambda: seen_by(first) == seen_by(second) == both)
    backend.kill(second)
    assert await backend.until(lambda: seen_by(first).get("n2") is not Health.PASSING)
    assert seen_by(first)["n1"] is Health.PASSING
    assert await backend.until(lambda: master.leads)
    assert {type(event) for event in first.events} == {NodesChanged}
    assert master.last(NodesChanged) is None


async def test_a_condition_is_shown(backend: Backend) -> None:
    """Tags, meta and the line for people reach the others."""
    master = backend.begin(MemberRole.MASTER, "m1")
    worker = backend.begin(MemberRole.WORKER, "w1")
    assert await backend.until(lambda: (seen := master.last(WorkersChanged)) and seen.workers)
    condition = Condition("busy, 7 of 8 slots", ("draining",), {"load": "0.9"})
    worker.coordinator.update(condition)

    def shown() -> bool:
        seen = master.last(WorkersChanged)
        return seen is not None and seen.workers[0].condition == condition

    assert await backend.until(shown)


async def test_closing_leaves_nothing_behind(backend: Backend) -> None:
    """The lock is free and the entry gone as soon as a leader has closed; it hears no more."""
    leader, other = await two_masters(backend)
    heard = len(leader.events)
    await leader.coordinator.close()
    leader.beats = False
    heard = len(leader.events)
    assert await backend.until(lambda: other.leads)
    assert await backend.until(lambda: _health(other, "m1") is None)
    assert len(leader.events) == heard


def _health(viewer: Node, id: str) -> Health | None:
    seen = viewer.last(MastersChanged)
    states = [
        sighting.health for sighting in (seen.masters if seen else ()) if sighting.member.id == id
    ]
    return states[0] if states else None
