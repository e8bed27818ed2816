"""Leadership on a real Consul while Consul, the network or the neighbours misbehave."""

from __future__ import annotations

import asyncio
import time

from tests.contract.coord_backends import (
    ConsulBackend,
    Node,
    all_see_the_one_leader,
    one_leads,
    sees,
    three_masters,
)
from tests.servers.consul import (
    ConsulServer,
    consul_cluster,
    free_ports,
    wait_for,
)
from zcrawl.coord.agents.consul_client import ConsulSettings
from zcrawl.coord.ports import (
    CoordAway,
    CoordBack,
    Deposed,
    Elected,
    MastersChanged,
    MemberRole,
)

ROUNDS = 200


# ------------------------------------------------------------ how fast


async def test_a_silent_leader_is_replaced_within_seconds(backend: ConsulBackend) -> None:
    """Its check runs out after 3 s and the session with it; the 20 s of the session's own TTL
    are not waited for. The old leader hears that it leads no more."""
    masters = await three_masters(backend)
    began = time.monotonic()
    backend.kill(masters[0])
    assert await backend.until(lambda: one_leads(masters[1:]), 30)
    assert time.monotonic() - began < 15  # about 5: 2 s until the loop counts as dead, 3 s TTL
    assert await backend.until(lambda: not masters[0].leads)
    assert masters[0].last(Deposed) is not None


async def test_a_resignation_takes_no_time(backend: ConsulBackend) -> None:
    """The watch of the lock returns when it is free; nobody polls for it."""
    masters = await three_masters(backend)
    began = time.monotonic()
    masters[0].coordinator.resign()
    assert await backend.until(lambda: one_leads(masters[1:]))
    assert time.monotonic() - began < 1.0  # about 0.03


async def test_closing_hands_over_in_no_time(backend: ConsulBackend) -> None:
    """Released before it is destroyed: no lock-delay, no TTL."""
    masters = await three_masters(backend)
    began = time.monotonic()
    await masters[0].coordinator.close()
    assert await backend.until(lambda: one_leads(masters[1:]))
    assert time.monotonic() - began < 1.5


async def test_two_hundred_rounds_have_one_leader_each(backend: ConsulBackend) -> None:
    """Masters race for a lock that is given back again and again: nobody is elected before the
    last one was deposed, and the numbers rise."""
    masters = await three_masters(backend)
    # Who resigned stands back for a second: enough others shall be there to race.
    masters += [backend.begin(MemberRole.MASTER, f"m{n}") for n in range(4, 9)]
    story: list[tuple[str, Elected | Deposed]] = [("m1", masters[0].all(Elected)[0])]

    for node in masters:
        plain = node.wake

        def wake(node: Node = node, plain: object = plain) -> None:
            event = node.events[-1]
            if isinstance(event, Elected | Deposed):
                story.append((node.me.id, event))
            assert callable(plain)
            plain()

        node.wake = wake
    for _ in range(ROUNDS):
        (leader,) = [node for node in masters if node.leads]
        before = len(story)
        leader.coordinator.resign()
        assert await backend.until(lambda before=before: len(story) >= before + 2)
    kinds = [type(event) for _, event in story]
    assert kinds == [Elected, Deposed] * ROUNDS + [Elected]
    for (winner, _), (loser, _) in zip(story[::2], story[1::2], strict=False):
        assert winner == loser
    hints = [event.hint for _, event in story if isinstance(event, Elected)]
    assert hints == sorted(set(hints))
    assert len(hints) == ROUNDS + 1


# ------------------------------------------------------------ Consul misbehaves


async def test_a_paused_consul_deposes_nobody_by_itself(
    own_consul: ConsulServer, own_backend: ConsulBackend
) -> None:
    """While Consul sleeps the leader stays; it is told that Consul is away, once. When Consul
    wakes up its checks have run out: there is one leader again, and no second one at any time."""
    masters = await three_masters(own_backend)
    own_consul.pause()
    assert await own_backend.until(lambda: all(node.last(CoordAway) for node in masters))
    await asyncio.sleep(10)  # three times what a check lives without a sign
    assert masters[0].leads
    assert one_leads(masters)
    assert [len(node.all(CoordAway)) for node in masters] == [1, 1, 1]
    own_consul.resume()
    assert await own_backend.until(lambda: all(node.last(CoordBack) for node in masters), 60)
    assert await own_backend.until(lambda: all_see_the_one_leader(masters), 120)


async def test_a_restarted_agent_is_waited_for(
    own_consul: ConsulServer, own_backend: ConsulBackend
) -> None:
    """All register again, and one leads; a leader that stays was never deposed."""
    masters = await three_masters(own_backend)
    own_consul.stop()
    # A restart that is over before they look would be news to nobody.
    assert await own_backend.until(lambda: all(node.last(CoordAway) for node in masters), 30)
    own_consul.start()
    await asyncio.to_thread(own_consul.wait_ready)
    assert await own_backend.until(lambda: all(node.last(CoordBack) for node in masters), 60)
    assert await own_backend.until(lambda: all_see_the_one_leader(masters), 120)


async def test_lost_data_elects_anew_with_a_number_that_is_only_a_hint(
    own_consul: ConsulServer, own_backend: ConsulBackend
) -> None:
    """Without data there is no session: the leader is deposed, all register again, LockIndex
    begins at 1 once more."""
    masters = await three_masters(own_backend)
    for _ in range(2):
        (leader,) = [node for node in masters if node.leads]
        leader.coordinator.resign()
        assert await own_backend.until(
            lambda leader=leader: not leader.leads and one_leads(masters)
        )
    (leader,) = [node for node in masters if node.leads]
    assert leader.all(Elected)[-1].hint == 3
    elections = sum(len(node.all(Elected)) for node in masters)
    own_consul.kill()
    own_consul.wipe()
    own_consul.start()
    assert await own_backend.until(
        lambda: sum(len(node.all(Elected)) for node in masters) > elections, 40
    )
    assert await own_backend.until(lambda: one_leads(masters), 30)
    (new,) = [node for node in masters if node.leads]
    assert new.all(Elected)[-1].hint < 3
    assert leader.all(Deposed)[-1].reason == "the session is gone"
    assert await own_backend.until(
        lambda: all(
            (seen := node.last(MastersChanged)) and len(seen.masters) == 3 for node in masters
        ),
        30,
    )


async def test_a_new_leader_among_the_servers_is_survived() -> None:
    """Three servers, the leading one killed: a master that uses the others keeps leading."""
    with consul_cluster(3) as servers:
        address = servers[0].get("/v1/status/leader")
        led = next(server for server in servers if address.endswith(f":{server.ports['server']}"))
        agent = next(server for server in servers if server is not led)
        backend = ConsulBackend(ConsulSettings(agent.url))
        try:
            masters = await three_masters(backend)
            led.kill()
            # In a thread: on a loop that stands still nobody leads for long.
            await asyncio.to_thread(
                wait_for,
                lambda: agent.get("/v1/status/leader") not in (None, "", address),
                30,
                lambda: "the servers elect no leader",
            )
            await asyncio.sleep(5)
            assert await backend.until(lambda: one_leads(masters), 30)
            assert masters[0].leads
            assert not masters[0].all(Deposed)
            masters[0].coordinator.resign()
            assert await backend.until(lambda: one_leads(masters[1:]), 30)
        finally:
            await backend.end()


async def test_an_absent_consul_is_waited_for(own_consul: ConsulServer) -> None:
    """At the start nobody is there: that is said with the address, and all goes on by itself."""
    own_consul.stop()
    backend = ConsulBackend(ConsulSettings(own_consul.url))
    try:
        master, worker = (
            backend.begin(MemberRole.MASTER, "m1"),
            backend.begin(MemberRole.WORKER, "w1"),
        )
        assert await backend.until(lambda: master.last(CoordAway) and worker.last(CoordAway))
        away = master.last(CoordAway)
        assert away is not None
        assert own_consul.url in away.reason
        assert "refused" in away.reason
        await asyncio.sleep(2)
        assert len(master.all(CoordAway)) == 1
        own_consul.start()
        assert await backend.until(lambda: master.leads and sees(worker, "m1"), 40)
        assert await backend.until(lambda: master.last(CoordBack) and worker.last(CoordBack), 30)
    finally:
        await backend.end()


async def test_closing_does_not_wait_for_a_dead_consul(
    own_consul: ConsulServer, own_backend: ConsulBackend
) -> None:
    """SIGTERM must end a process although Consul hangs."""
    master = own_backend.begin(MemberRole.MASTER, "m1")
    assert await own_backend.until(lambda: master.leads)
    own_consul.pause()
    try:
        began = time.monotonic()
        await master.coordinator.close()
        assert time.monotonic() - began < 3  # about 1
    finally:
        own_consul.resume()


async def test_a_server_that_is_no_consul_is_named() -> None:
    """A port where nobody listens, or somebody else, is a reason in words and no crash."""
    url = f"http://127.0.0.1:{free_ports()['http']}"
    backend = ConsulBackend(ConsulSettings(url))
    try:
        master = backend.begin(MemberRole.MASTER, "m1")
        assert await backend.until(lambda: master.last(CoordAway))
        away = master.last(CoordAway)
        assert away is not None
        assert url in away.reason
    finally:
        await backend.end()
