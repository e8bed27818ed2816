"""On a real Consul: rights, strangers under our key, what its catalogue shows."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import msgspec
import pytest

from tests.contract.coord_backends import (
    ConsulBackend,
    member,
    one_leads,
    sees,
    three_masters,
)
from tests.servers.certificates import make_certificates
from tests.servers.consul import (
    ADMIN_TOKEN,
    ConsulServer,
    consul_server,
    wait_for,
)
from zcrawl.coord.agents.consul_client import ConsulClient, ConsulSettings, check_tls
from zcrawl.coord.calls import CallDone, DeregisterDead
from zcrawl.coord.ports import (
    Condition,
    CoordAway,
    Deposed,
    Elected,
    Health,
    IdTaken,
    LeaderSeen,
    MastersChanged,
    MemberRole,
    WorkersChanged,
)
from zcrawl.coord.records import meta_of, service_id

# ------------------------------------------------------------ rights


async def test_a_wrong_token_is_named_with_the_rights_it_needs() -> None:
    """A 403 is reported with the token's beginning and the rights; the right token works."""
    with consul_server(acl=True) as server:
        good = await asyncio.to_thread(server.make_token)
        poor = await asyncio.to_thread(server.make_token, 'node_prefix "" { policy = "read" }')
        for token in (poor, "", "ffffffff-0000-0000-0000-000000000000"):
            backend = ConsulBackend(ConsulSettings(server.url, token=token))
            try:
                master = backend.begin(MemberRole.MASTER, "m1")
                assert await backend.until(
                    lambda master=master: any(
                        "denies" in event.reason for event in master.all(CoordAway)
                    )
                )
                reason = next(
                    event.reason for event in master.all(CoordAway) if "denies" in event.reason
                )
                assert 'key_prefix "zcrawl/' in reason
                assert "session_prefix" in reason
                assert token[:4] in reason if token else "no token" in reason, reason
                assert token not in reason or not token
                assert ADMIN_TOKEN not in reason
                assert not master.leads
            finally:
                await backend.end()
        backend = ConsulBackend(ConsulSettings(server.url, token=good))
        try:
            master, worker = (
                backend.begin(MemberRole.MASTER, "m1"),
                backend.begin(MemberRole.WORKER, "w1"),
            )
            assert await backend.until(lambda: master.leads and sees(worker, "m1"))
            assert master.all(CoordAway) == []
        finally:
            await backend.end()


async def test_https_needs_the_authority_that_signed(consul: ConsulServer) -> None:
    """With its CA file all works over TLS; without it the reason names TLS, and we keep trying."""
    backend = ConsulBackend(ConsulSettings(consul.tls_url, ca_file=str(consul.ca_file)))
    distrustful = ConsulBackend(ConsulSettings(consul.tls_url))
    try:
        master = backend.begin(MemberRole.MASTER, "m1")
        assert await backend.until(lambda: master.leads)
        other = distrustful.begin(MemberRole.MASTER, "m1")
        assert await distrustful.until(lambda: other.last(CoordAway))
        away = other.last(CoordAway)
        assert away is not None
        assert "TLS" in away.reason
        assert consul.tls_url in away.reason
    finally:
        await backend.end()
        await distrustful.end()


async def test_mutual_tls_with_a_token_needs_the_certificate_and_the_token(tmp_path: Path) -> None:
    """An agent with https only, verify_incoming and ACLs: all three together lead, transactions and
    watches included; without the certificate, or with one of another authority, the reason names
    consul.cert_file; with the certificate and without the token, it names the rights."""
    made = await asyncio.to_thread(make_certificates, tmp_path / "ours", "127.0.0.1")
    foreign = await asyncio.to_thread(make_certificates, tmp_path / "foreign", "127.0.0.1")
    with consul_server(acl=True, mutual=made) as server:
        token = await asyncio.to_thread(server.make_token)
        full = ConsulSettings(
            server.tls_url,
            token,
            ca_file=str(made.ca),
            cert_file=str(made.client_cert),
            key_file=str(made.client_key),
        )
        check_tls(full)
        replace = msgspec.structs.replace
        stranger = {"cert_file": str(foreign.client_cert), "key_file": str(foreign.client_key)}
        for settings, reason in (
            (replace(full, cert_file="", key_file=""), "consul.cert_file"),
            (replace(full, **stranger), "consul.cert_file"),
            (replace(full, ca_file=str(foreign.ca)), "consul.ca_file"),
            (replace(full, token=""), "no token is configured"),
        ):
            backend = ConsulBackend(settings)
            try:
                master = backend.begin(MemberRole.MASTER, "m1")
                assert await backend.until(lambda master=master: master.last(CoordAway))
                away = master.last(CoordAway)
                assert away is not None
                assert reason in away.reason, away.reason
                assert not master.leads
            finally:
                await backend.end()
        backend = ConsulBackend(full)
        try:
            master, worker = (
                backend.begin(MemberRole.MASTER, "m1"),
                backend.begin(MemberRole.WORKER, "w1"),
            )
            assert await backend.until(lambda: master.leads and sees(worker, "m1"))
            assert master.all(CoordAway) == []
        finally:
            await backend.end()


async def test_a_wrong_datacenter_is_named(consul: ConsulServer) -> None:
    """Consul's own words, with the address; the right one by name works like none."""
    wrong = ConsulBackend(ConsulSettings(consul.url, datacenter="mars"))
    right = ConsulBackend(ConsulSettings(consul.url, datacenter="dc1"))
    try:
        master = wrong.begin(MemberRole.MASTER, "m1")
        assert await wrong.until(lambda: master.last(CoordAway))
        away = master.last(CoordAway)
        assert away is not None
        assert "No path to datacenter" in away.reason
        good = right.begin(MemberRole.MASTER, "m1")
        assert await right.until(lambda: good.leads)
    finally:
        await wrong.end()
        await right.end()


# ------------------------------------------------------------ strangers


async def test_too_many_connections_are_named(own_consul: ConsulServer) -> None:
    """Consul only cuts them; the reason is in no answer."""
    own_consul.limit_connections(2)
    own_consul.restart()
    backend = ConsulBackend(ConsulSettings(own_consul.url))
    reasons: list[str] = []
    # A node tells the first reason only, and on a crowded machine that may be that Consul is slow.
    while len(reasons) < 5 and "http_max_conns_per_client" not in "".join(reasons):
        node = backend.begin(MemberRole.MASTER, f"m{len(reasons) + 1}")
        assert await backend.until(lambda node=node: node.last(CoordAway), 60)
        away = node.last(CoordAway)
        assert away is not None
        reasons.append(away.reason)
    assert "http_max_conns_per_client" in reasons[-1], reasons
    await backend.end()


async def test_a_foreign_holder_is_waited_for_and_described(
    consul: ConsulServer, backend: ConsulBackend
) -> None:
    """Somebody else's session holds our key: nobody is elected, everybody is told why; when it
    lets go, we go on, lock-delay or not."""
    session = consul.put("/v1/session/create", {"Name": "stranger", "LockDelay": "1s"})["ID"]
    key = f"/v1/kv/zcrawl/{backend.cluster}/leader"
    assert consul.put(f"{key}?acquire={session}", b"mine, says the stranger") is True
    master = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: (seen := master.last(LeaderSeen)) and seen.detail)
    seen = master.last(LeaderSeen)
    assert seen is not None
    assert seen.master_id is None
    assert session in seen.detail
    assert "mine, says the stranger" in seen.detail
    await asyncio.sleep(2)
    assert not master.leads
    consul.put(f"/v1/session/destroy/{session}")
    assert await backend.until(lambda: master.leads)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff\xfe\x00", b"null", b"[]", b"{" * 50_000, b'{"id": 7}', b'{"id": "\\ud800"}'],
    ids=["empty", "bytes", "null", "list", "deep", "type", "surrogate"],
)
async def test_garbage_in_the_key_harms_nobody(
    consul: ConsulServer, backend: ConsulBackend, garbage: bytes
) -> None:
    """Whether somebody holds the lock or not: the leader writes over it, and leads on."""
    key = f"/v1/kv/zcrawl/{backend.cluster}/leader"
    consul.put(key, garbage)
    master = backend.begin(MemberRole.MASTER, "m1")
    worker = backend.begin(MemberRole.WORKER, "w1")
    assert await backend.until(lambda: master.leads and sees(worker, "m1"))
    consul.put(key, garbage)  # Consul lets anybody write who has the right, lock or not
    assert await backend.until(lambda: _is_written_by(consul, key, "m1"))
    assert await backend.until(lambda: sees(worker, "m1"))
    assert master.leads
    assert master.all(Deposed) == []
    assert len(master.all(Elected)) == 1


async def test_a_deleted_key_is_noticed(consul: ConsulServer, backend: ConsulBackend) -> None:
    """The lock is gone with the key: there is one leader afterwards, and all know it."""
    masters = await three_masters(backend)
    await asyncio.to_thread(_delete, consul, f"/v1/kv/zcrawl/{backend.cluster}/leader")
    await asyncio.sleep(1)
    assert await backend.until(lambda: one_leads(masters))
    (leader,) = [node for node in masters if node.leads]
    assert await backend.until(lambda: all(sees(node, leader.me.id) for node in masters))


async def test_strange_services_are_no_members(
    consul: ConsulServer, backend: ConsulBackend
) -> None:
    """What others register under our name, and other clusters' members, are left out."""
    consul.put("/v1/agent/service/register", {"Name": "zcrawl-master", "ID": "strange"})
    bad = {"id": "x", "cluster": backend.cluster, "pid": "many"}
    consul.put("/v1/agent/service/register", {"Name": "zcrawl-master", "ID": "bad", "Meta": bad})
    master = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: (seen := master.last(MastersChanged)) and seen.masters)
    seen = master.last(MastersChanged)
    assert seen is not None
    assert [sighting.member for sighting in seen.masters] == [master.me]
    for id in ("strange", "bad"):
        consul.put(f"/v1/agent/service/deregister/{id}")


async def test_the_entry_of_a_dead_host_can_be_removed(
    consul: ConsulServer, backend: ConsulBackend
) -> None:
    """No agent is left that would do it: seen as dead, then removed from the catalogue itself."""
    lost = member(MemberRole.WORKER, "w9", backend.cluster)
    service = {
        "ID": service_id(lost),
        "Service": "zcrawl-worker",
        "Tags": [backend.cluster],
        "Meta": meta_of(lost, Condition()),
    }
    check = {"CheckID": "x", "Name": "x", "Status": "critical", "ServiceID": service_id(lost)}
    entry = {"Node": "lost-host", "Address": "127.0.0.9", "Service": service, "Check": check}
    assert consul.put("/v1/catalog/register", entry) is True
    master = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: (seen := master.last(WorkersChanged)) and seen.workers)
    seen = master.last(WorkersChanged)
    assert seen is not None
    assert seen.workers[0].health is Health.CRITICAL
    client = ConsulClient(ConsulSettings(consul.url), master.me)
    call = DeregisterDead("lost-host", service_id(lost))
    assert await asyncio.to_thread(client.perform, call) == CallDone(call)
    assert await backend.until(lambda: (seen := master.last(WorkersChanged)) and not seen.workers)


async def test_a_second_process_with_our_id_is_told(backend: ConsulBackend) -> None:
    """Two living masters of one name: the one whose entry was overwritten hears of the other."""
    first = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: first.leads)
    second = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: first.last(IdTaken) or second.last(IdTaken), 45)


# ------------------------------------------------------------ what the Consul UI shows


async def test_the_catalogue_tells_the_whole_membership(
    consul: ConsulServer, backend: ConsulBackend
) -> None:
    """Consul shows the leader, its machine, version, addresses and health."""
    master = backend.begin(MemberRole.MASTER, "m1")
    assert await backend.until(lambda: master.leads)
    note = "leader, epoch 12, 4 workers"
    master.coordinator.update(Condition(note, (), {"epoch": "12"}))

    def shown() -> bool:
        rows = consul.get("/v1/health/service/zcrawl-master") or []
        for row in rows:
            if row["Service"]["Meta"].get("cluster") != backend.cluster:
                continue
            service, check = row["Service"], row["Checks"][-1]
            return (
                service["Tags"] == [backend.cluster, "leader"]
                and service["Meta"]["version"] == "0.2.0"
                and service["Meta"]["host"] == "host-1"
                and service["Meta"].get("epoch") == "12"
                and service["Port"] == 10011
                and note in check["Notes"]
            )
        return False

    await asyncio.to_thread(
        wait_for, shown, 40, lambda: json.dumps(consul.get("/v1/health/service/zcrawl-master"))
    )


def _is_written_by(server: ConsulServer, path: str, id: str) -> bool:
    value = base64.b64decode(server.get(path)[0]["Value"] or "")
    return value.startswith(b'{"id":"' + id.encode())


def _delete(server: ConsulServer, path: str) -> None:
    assert server._call("DELETE", path, None) is True
