"""Leadership on a real Consul while Consul, the network or the neighbours misbehave."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.contract.coord_backends import ConsulBackend, Node, member
from tests.servers.consul import (
    ADMIN_TOKEN,
    ConsulServer,
    consul_cluster,
    consul_server,
    free_ports,
    wait_for,
)
from zcrawl.coord.calls import CallDone, DeregisterDead
from zcrawl.coord.client_consul import ConsulClient, ConsulSettings
from zcrawl.coord.ports import (
    Condition,
    CoordAway,
    CoordBack,
    Deposed,
    Elected,
    Health,
    IdTaken,
    LeaderSeen,
    MastersChanged,
    Role,
    WorkersChanged,
)
from zcrawl.coord.records import meta_of, service_id

ROUNDS = 200


@pytest.fixture(scope="module")
def shared() -> Iterator[ConsulServer]:
    """For tests that do nothing to the server itself."""
    with consul_server() as server:
        yield server


@pytest.fixture
async def quiet(shared: ConsulServer) -> AsyncIterator[ConsulBackend]:
    backend = ConsulBackend(ConsulSettings(shared.url))
    yield backend
    await backend.end()


@pytest.fixture
def own() -> Iterator[ConsulServer]:
    """For tests that stop it."""
    with consul_server() as server:
        yield server


@pytest.fixture
async def hurt(own: ConsulServer) -> AsyncIterator[ConsulBackend]:
    backend = ConsulBackend(ConsulSettings(own.url))
    yield backend
    await backend.end()


async def three_masters(backend: ConsulBackend) -> list[Node]:
    """The first one leads, and all know it."""
    first = backend.begin(Role.MASTER, "m1")
    assert await backend.until(lambda: first.leads)
    masters = [first, backend.begin(Role.MASTER, "m2"), backend.begin(Role.MASTER, "m3")]
    assert await backend.until(lambda: all(sees(node, "m1") for node in masters))
    assert await backend.until(
        lambda: (seen := first.last(MastersChanged)) and len(seen.masters) == 3
    )
    return masters


def sees(node: Node, leader: str) -> bool:
    seen = node.last(LeaderSeen)
    return seen is not None and seen.master_id == leader


def one_leads(masters: list[Node]) -> bool:
    return sum(node.leads for node in masters) == 1


# ------------------------------------------------------------ how fast


async def test_a_silent_leader_is_replaced_within_seconds(quiet: ConsulBackend) -> None:
    """Its check runs out after 3 s and the session with it; the 20 s of the session's own TTL
    are not waited for. The old leader hears that it leads no more."""
    masters = await three_masters(quiet)
    began = time.monotonic()
    quiet.kill(masters[0])
    assert await quiet.until(lambda: one_leads(masters[1:]), 30)
    assert time.monotonic() - began < 15  # about 5: 2 s until the loop counts as dead, 3 s TTL
    assert await quiet.until(lambda: not masters[0].leads)
    assert masters[0].last(Deposed) is not None


async def test_a_resignation_takes_no_time(quiet: ConsulBackend) -> None:
    """The watch of the lock returns when it is free; nobody polls for it."""
    masters = await three_masters(quiet)
    began = time.monotonic()
    masters[0].coordinator.resign()
    assert await quiet.until(lambda: one_leads(masters[1:]))
    assert time.monotonic() - began < 1.0  # about 0.03


async def test_closing_hands_over_in_no_time(quiet: ConsulBackend) -> None:
    """Released before it is destroyed: no lock-delay, no TTL."""
    masters = await three_masters(quiet)
    began = time.monotonic()
    await masters[0].coordinator.close()
    assert await quiet.until(lambda: one_leads(masters[1:]))
    assert time.monotonic() - began < 1.5


async def test_two_hundred_rounds_have_one_leader_each(quiet: ConsulBackend) -> None:
    """Masters race for a lock that is given back again and again: nobody is elected before the
    last one was deposed, and the numbers rise."""
    masters = await three_masters(quiet)
    # Who resigned stands back for a second: enough others shall be there to race.
    masters += [quiet.begin(Role.MASTER, f"m{n}") for n in range(4, 9)]
    story: list[tuple[str, Elected | Deposed]] = [("m1", masters[0].all(Elected)[0])]

    for node in masters:
        plain = node.wake

        def wake(node: Node = node, plain: object = plain) -> None:
            event = node.told[-1]
            if isinstance(event, Elected | Deposed):
                story.append((node.me.id, event))
            assert callable(plain)
            plain()

        node.wake = wake
    for _ in range(ROUNDS):
        (leader,) = [node for node in masters if node.leads]
        before = len(story)
        leader.coordinator.resign()
        assert await quiet.until(lambda before=before: len(story) >= before + 2)
    kinds = [type(event) for _, event in story]
    assert kinds == [Elected, Deposed] * ROUNDS + [Elected]
    for (winner, _), (loser, _) in zip(story[::2], story[1::2], strict=False):
        assert winner == loser
    hints = [event.hint for _, event in story if isinstance(event, Elected)]
    assert hints == sorted(set(hints)) and len(hints) == ROUNDS + 1


# ------------------------------------------------------------ Consul misbehaves


async def test_a_paused_consul_deposes_nobody_by_itself(
    own: ConsulServer, hurt: ConsulBackend
) -> None:
    """While Consul sleeps the leader stays; it is told that Consul is away, once. When Consul
    wakes up its checks have run out: there is one leader again, and no second one at any time."""
    masters = await three_masters(hurt)
    own.pause()
    assert await hurt.until(lambda: all(node.last(CoordAway) for node in masters))
    await asyncio.sleep(20)
    assert masters[0].leads and one_leads(masters)
    assert [len(node.all(CoordAway)) for node in masters] == [1, 1, 1]
    own.resume()
    assert await hurt.until(lambda: all(node.last(CoordBack) for node in masters), 30)
    await asyncio.sleep(5)
    assert await hurt.until(lambda: one_leads(masters), 30)
    (leader,) = [node for node in masters if node.leads]
    assert await hurt.until(lambda: all(sees(node, leader.me.id) for node in masters), 30)


async def test_a_restarted_agent_is_waited_for(own: ConsulServer, hurt: ConsulBackend) -> None:
    """All register again, and one leads; a leader that stays was never told otherwise."""
    masters = await three_masters(hurt)
    await asyncio.to_thread(own.restart)
    assert await hurt.until(lambda: all(node.last(CoordBack) for node in masters), 30)
    await asyncio.sleep(5)
    assert await hurt.until(lambda: one_leads(masters), 30)
    (leader,) = [node for node in masters if node.leads]
    assert await hurt.until(lambda: all(sees(node, leader.me.id) for node in masters), 30)
    assert leader.last(Elected) is not None


async def test_lost_data_elects_anew_with_a_number_that_is_only_a_hint(
    own: ConsulServer, hurt: ConsulBackend
) -> None:
    """Without data there is no session: the leader is deposed, all register again, LockIndex
    begins at 1 once more."""
    masters = await three_masters(hurt)
    for _ in range(2):
        (leader,) = [node for node in masters if node.leads]
        leader.coordinator.resign()
        assert await hurt.until(lambda leader=leader: not leader.leads and one_leads(masters))
    (leader,) = [node for node in masters if node.leads]
    assert leader.all(Elected)[-1].hint == 3
    elections = sum(len(node.all(Elected)) for node in masters)
    own.kill()
    own.wipe()
    own.start()
    assert await hurt.until(lambda: sum(len(node.all(Elected)) for node in masters) > elections, 40)
    assert await hurt.until(lambda: one_leads(masters), 30)
    (new,) = [node for node in masters if node.leads]
    assert new.all(Elected)[-1].hint < 3
    assert leader.all(Deposed)[-1].reason == "the session is gone"
    assert await hurt.until(
        lambda: all(
            (seen := node.last(MastersChanged)) and len(seen.masters) == 3 for node in masters
        ),
        30,
    )


async def test_a_new_leader_among_the_servers_is_survived() -> None:
    """Three servers, the leading one killed: whoever talks to the others goes on leading."""
    with consul_cluster(3) as servers:
        address = servers[0].get("/v1/status/leader")
        led = next(one for one in servers if address.endswith(f":{one.ports['server']}"))
        agent = next(one for one in servers if one is not led)
        backend = ConsulBackend(ConsulSettings(agent.url))
        try:
            masters = await three_masters(backend)
            led.kill()
            wait_for(
                lambda: agent.get("/v1/status/leader") not in (None, "", address),
                30,
                lambda: "the servers elect no leader",
            )
            await asyncio.sleep(5)
            assert await backend.until(lambda: one_leads(masters), 30)
            assert masters[0].leads and not masters[0].all(Deposed)
            masters[0].coordinator.resign()
            assert await backend.until(lambda: one_leads(masters[1:]), 30)
        finally:
            await backend.end()


async def test_an_absent_consul_is_waited_for(own: ConsulServer) -> None:
    """At the start nobody is there: that is said with the address, and all goes on by itself."""
    own.stop()
    backend = ConsulBackend(ConsulSettings(own.url))
    try:
        master, worker = backend.begin(Role.MASTER, "m1"), backend.begin(Role.WORKER, "w1")
        assert await backend.until(lambda: master.last(CoordAway) and worker.last(CoordAway))
        away = master.last(CoordAway)
        assert away is not None and own.url in away.reason and "refused" in away.reason
        await asyncio.sleep(2)
        assert len(master.all(CoordAway)) == 1
        own.start()
        assert await backend.until(lambda: master.leads and sees(worker, "m1"), 40)
        assert await backend.until(lambda: master.last(CoordBack) and worker.last(CoordBack), 30)
    finally:
        await backend.end()


async def test_closing_does_not_wait_for_a_dead_consul(
    own: ConsulServer, hurt: ConsulBackend
) -> None:
    """SIGTERM must end a process although Consul hangs."""
    master = hurt.begin(Role.MASTER, "m1")
    assert await hurt.until(lambda: master.leads)
    own.pause()
    try:
        began = time.monotonic()
        await master.coordinator.close()
        assert time.monotonic() - began < 3  # about 1
    finally:
        own.resume()


async def test_a_server_that_is_no_consul_is_named() -> None:
    """A port where nobody listens, or somebody else, is a reason in words and no crash."""
    url = f"http://127.0.0.1:{free_ports()['http']}"
    backend = ConsulBackend(ConsulSettings(url))
    try:
        master = backend.begin(Role.MASTER, "m1")
        assert await backend.until(lambda: master.last(CoordAway))
        away = master.last(CoordAway)
        assert away is not None and url in away.reason
    finally:
        await backend.end()


# ------------------------------------------------------------ rights


async def test_a_wrong_token_is_named_with_the_rights_it_needs() -> None:
    """403 is told with the token's beginning and the rights; with the right token it works."""
    with consul_server(acl=True) as server:
        good = await asyncio.to_thread(server.make_token)
        poor = await asyncio.to_thread(server.make_token, 'node_prefix "" { policy = "read" }')
        for token in (poor, "", "ffffffff-0000-0000-0000-000000000000"):
            backend = ConsulBackend(ConsulSettings(server.url, token=token))
            try:
                master = backend.begin(Role.MASTER, "m1")
                assert await backend.until(
                    lambda master=master: any(
                        "denies" in one.reason for one in master.all(CoordAway)
                    )
                )
                reason = next(one.reason for one in master.all(CoordAway) if "denies" in one.reason)
                assert 'key_prefix "zcrawl/' in reason and "session_prefix" in reason
                assert token[:4] in reason if token else "no token" in reason, reason
                assert token not in reason or not token
                assert ADMIN_TOKEN not in reason
                assert not master.leads
            finally:
                await backend.end()
        backend = ConsulBackend(ConsulSettings(server.url, token=good))
        try:
            master, worker = backend.begin(Role.MASTER, "m1"), backend.begin(Role.WORKER, "w1")
            assert await backend.until(lambda: master.leads and sees(worker, "m1"))
            assert master.all(CoordAway) == []
        finally:
            await backend.end()


async def test_https_needs_the_authority_that_signed(shared: ConsulServer) -> None:
    """With its CA file all works over TLS; without it the reason names TLS, and we keep trying."""
    backend = ConsulBackend(ConsulSettings(shared.tls_url, ca_file=str(shared.ca_file)))
    distrustful = ConsulBackend(ConsulSettings(shared.tls_url))
    try:
        master = backend.begin(Role.MASTER, "m1")
        assert await backend.until(lambda: master.leads)
        other = distrustful.begin(Role.MASTER, "m1")
        assert await distrustful.until(lambda: other.last(CoordAway))
        away = other.last(CoordAway)
        assert away is not None and "TLS" in away.reason and shared.tls_url in away.reason
    finally:
        await backend.end()
        await distrustful.end()


async def test_a_wrong_datacenter_is_named(shared: ConsulServer) -> None:
    """Consul's own words, with the address; the right one by name works like none."""
    wrong = ConsulBackend(ConsulSettings(shared.url, datacenter="mars"))
    right = ConsulBackend(ConsulSettings(shared.url, datacenter="dc1"))
    try:
        master = wrong.begin(Role.MASTER, "m1")
        assert await wrong.until(lambda: master.last(CoordAway))
        away = master.last(CoordAway)
        assert away is not None and "No path to datacenter" in away.reason
        good = right.begin(Role.MASTER, "m1")
        assert await right.until(lambda: good.leads)
    finally:
        await wrong.end()
        await right.end()


# ------------------------------------------------------------ strangers


async def test_a_foreign_holder_is_waited_for_and_described(
    shared: ConsulServer, quiet: ConsulBackend
) -> None:
    """Somebody else's session holds our key: nobody is elected, everybody is told why; when it
    lets go, we go on, lock-delay or not."""
    session = shared.put("/v1/session/create", {"Name": "stranger", "LockDelay": "1s"})["ID"]
    key = f"/v1/kv/zcrawl/{quiet.cluster}/leader"
    assert shared.put(f"{key}?acquire={session}", b"mine, says the stranger") is True
    master = quiet.begin(Role.MASTER, "m1")
    assert await quiet.until(lambda: (seen := master.last(LeaderSeen)) and seen.detail)
    seen = master.last(LeaderSeen)
    assert seen is not None and seen.master_id is None
    assert session in seen.detail and "mine, says the stranger" in seen.detail
    await asyncio.sleep(2)
    assert not master.leads
    shared.put(f"/v1/session/destroy/{session}")
    assert await quiet.until(lambda: master.leads)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff\xfe\x00", b"null", b"[]", b"{" * 50_000, b'{"id": 7}', b'{"id": "\\ud800"}'],
    ids=["empty", "bytes", "null", "list", "deep", "type", "surrogate"],
)
async def test_garbage_in_the_key_harms_nobody(
    shared: ConsulServer, quiet: ConsulBackend, garbage: bytes
) -> None:
    """Whether somebody holds the lock or not: the leader writes over it, and leads on."""
    key = f"/v1/kv/zcrawl/{quiet.cluster}/leader"
    shared.put(key, garbage)
    master = quiet.begin(Role.MASTER, "m1")
    worker = quiet.begin(Role.WORKER, "w1")
    assert await quiet.until(lambda: master.leads and sees(worker, "m1"))
    shared.put(key, garbage)  # Consul lets anybody write who has the right, lock or not
    assert await quiet.until(lambda: _is_written_by(shared, key, "m1"))
    assert await quiet.until(lambda: sees(worker, "m1"))
    assert master.leads and master.all(Deposed) == []
    assert len(master.all(Elected)) == 1


async def test_a_deleted_key_is_noticed(shared: ConsulServer, quiet: ConsulBackend) -> None:
    """The lock is gone with the key: there is one leader afterwards, and all know it."""
    masters = await three_masters(quiet)
    await asyncio.to_thread(_delete, shared, f"/v1/kv/zcrawl/{quiet.cluster}/leader")
    await asyncio.sleep(1)
    assert await quiet.until(lambda: one_leads(masters))
    (leader,) = [node for node in masters if node.leads]
    assert await quiet.until(lambda: all(sees(node, leader.me.id) for node in masters))


async def test_strange_services_are_no_members(shared: ConsulServer, quiet: ConsulBackend) -> None:
    """What others register under our name, and other clusters' members, are left out."""
    shared.put("/v1/agent/service/register", {"Name": "zcrawl-master", "ID": "strange"})
    bad = {"id": "x", "cluster": quiet.cluster, "pid": "many"}
    shared.put("/v1/agent/service/register", {"Name": "zcrawl-master", "ID": "bad", "Meta": bad})
    master = quiet.begin(Role.MASTER, "m1")
    assert await quiet.until(lambda: (seen := master.last(MastersChanged)) and seen.masters)
    seen = master.last(MastersChanged)
    assert seen is not None and [one.member for one in seen.masters] == [master.me]
    for id in ("strange", "bad"):
        shared.put(f"/v1/agent/service/deregister/{id}")


async def test_the_entry_of_a_dead_host_can_be_removed(
    shared: ConsulServer, quiet: ConsulBackend
) -> None:
    """No agent is left that would do it: seen as dead, then removed from the catalogue itself."""
    lost = member(Role.WORKER, "w9", quiet.cluster)
    service = {
        "ID": service_id(lost),
        "Service": "zcrawl-worker",
        "Tags": [quiet.cluster],
        "Meta": meta_of(lost, Condition()),
    }
    check = {"CheckID": "x", "Name": "x", "Status": "critical", "ServiceID": service_id(lost)}
    entry = {"Node": "lost-host", "Address": "127.0.0.9", "Service": service, "Check": check}
    assert shared.put("/v1/catalog/register", entry) is True
    master = quiet.begin(Role.MASTER, "m1")
    assert await quiet.until(lambda: (seen := master.last(WorkersChanged)) and seen.workers)
    seen = master.last(WorkersChanged)
    assert seen is not None and seen.workers[0].health is Health.CRITICAL
    client = ConsulClient(ConsulSettings(shared.url), master.me)
    call = DeregisterDead("lost-host", service_id(lost))
    assert await asyncio.to_thread(client.perform, call) == CallDone(call)
    assert await quiet.until(lambda: (seen := master.last(WorkersChanged)) and not seen.workers)


async def test_a_second_process_with_our_id_is_told(quiet: ConsulBackend) -> None:
    """Two living masters of one name: the one whose entry was overwritten hears of the other."""
    first = quiet.begin(Role.MASTER, "m1")
    assert await quiet.until(lambda: first.leads)
    second = quiet.begin(Role.MASTER, "m1")
    assert await quiet.until(lambda: first.last(IdTaken) or second.last(IdTaken), 45)


# ------------------------------------------------------------ what the Consul UI shows


async def test_the_catalogue_tells_the_whole_membership(
    shared: ConsulServer, quiet: ConsulBackend
) -> None:
    """Who leads, on which host, with which version and addresses, and how it feels."""
    master = quiet.begin(Role.MASTER, "m1")
    assert await quiet.until(lambda: master.leads)
    note = "leader, epoch 12, 4 workers"
    master.coordinator.update(Condition(note, (), {"epoch": "12"}))

    def shown() -> bool:
        rows = shared.get("/v1/health/service/zcrawl-master") or []
        for row in rows:
            if row["Service"]["Meta"].get("cluster") != quiet.cluster:
                continue
            service, check = row["Service"], row["Checks"][-1]
            return (
                service["Tags"] == [quiet.cluster, "leader"]
                and service["Meta"]["version"] == "0.2.0"
                and service["Meta"]["host"] == "host-1"
                and service["Meta"].get("epoch") == "12"
                and service["Port"] == 10011
                and note in check["Notes"]
            )
        return False

    await asyncio.to_thread(
        wait_for, shown, 40, lambda: json.dumps(shared.get("/v1/health/service/zcrawl-master"))
    )


def _is_written_by(server: ConsulServer, path: str, id: str) -> bool:
    value = base64.b64decode(server.get(path)[0]["Value"] or "")
    return value.startswith(b'{"id":"' + id.encode())


def _delete(server: ConsulServer, path: str) -> None:
    assert server._call("DELETE", path, None) is True
