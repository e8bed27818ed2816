"""What a real MySQL or MariaDB can do to a leader: paused rivals, lost connections, read-only
servers, failovers. Nothing that was answered is lost and nobody writes twice."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import pymysql
import pytest

from tests.contract.store_world import DONE, A, B, World, links
from tests.servers.mariadb import Mariadb
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy
from zcrawl.errors import CommitUnknown, Fenced, StoreUnavailable
from zcrawl.store.breaker import FREE_ATTEMPTS
from zcrawl.store.queries import JobList, ListJobs
from zcrawl.store.sql.dialects import mysql_session
from zcrawl.store.sql.dialects.mysql import MysqlDialect
from zcrawl.store.sql.dialects.mysql_session import MysqlSession
from zcrawl.store.sql.store import PeeweeStore, open_mysql


@pytest.fixture
def store(mysql_store: PeeweeStore) -> PeeweeStore:
    return mysql_store


@pytest.fixture
def proxy(mariadb_server: Mariadb) -> Iterator[TcpProxy]:
    with tcp_proxy(mariadb_server.port) as proxy:
        yield proxy


@pytest.fixture
def distant(mariadb_server: Mariadb, database: str, proxy: TcpProxy) -> Iterator[PeeweeStore]:
    """A store behind the proxy, without TLS, so that the proxy can read along."""
    open_mysql([mariadb_server.url(database)]).close()  # MySQL wants a password over TLS once
    store = open_mysql([mariadb_server.url(database, proxy.port, ssl_mode="disabled")])
    yield store
    store.close()


def hold_the_lock(store: PeeweeStore) -> MysqlSession:
    """As a leader that is stopped inside a transaction."""
    session = store._writer
    assert isinstance(session, MysqlSession)
    session.begin_write()
    session.fetch_row(MysqlDialect.lock_epoch, (0,))
    return session


# ---------------------------------------------------------------- fencing


def test_a_leader_that_is_paused_in_a_transaction_does_not_delay_a_takeover(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """Its connection is killed; when it wakes up it can neither continue nor start again (G4)."""
    world = World(store)
    world.submit(A)
    paused = hold_the_lock(store)
    second = open_mysql([mariadb_server.url(database)])
    began = time.monotonic()
    assert World(second).epoch == 2
    assert time.monotonic() - began < mysql_session.READ_TIMEOUT_S / 4
    with pytest.raises(pymysql.OperationalError, match=r"2013|2006|1927"):
        paused.run("UPDATE runs SET done = 99")
    with pytest.raises(Fenced):
        world.submit(B)
    second.close()


def test_a_leader_that_reconnected_is_still_found(
    distant: PeeweeStore, proxy: TcpProxy, mariadb_server: Mariadb, database: str
) -> None:
    """After every reconnect the leader tells its new connection, so a takeover kills that one."""
    world = World(distant)
    proxy.cut()
    world.submit(A)
    hold_the_lock(distant)
    second = open_mysql([mariadb_server.url(database)])
    assert World(second).epoch == 2
    second.close()


def test_a_former_leader_whose_connection_was_killed_takes_over_from_a_paused_one(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """It connects again, and must not wait for the paused leader's lock before its KILL."""
    World(store)
    second = open_mysql([mariadb_server.url(database)])
    assert World(second).epoch == 2  # this killed the first one's connection
    hold_the_lock(second)
    assert World(store).epoch == 3
    second.close()


def test_a_second_takeover_in_a_row_finds_the_one_that_was_paused_in_its_takeover(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """The connection is stored before the lock is taken, also on a database without a leader."""
    first = store._writer
    store._dialect.before_takeover(first, 0)
    hold_the_lock(store)
    second = open_mysql([mariadb_server.url(database)])
    assert World(second).epoch == 1
    second.close()


def test_only_the_very_connection_is_killed(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """A connection id of before a server's restart may belong to somebody else now."""
    World(store)
    bystander = open_mysql([mariadb_server.url(database)])
    id = bystander._writer.connection.thread_id()
    mariadb_server.do(f"UPDATE {database}.leaders SET connection = {id}, address = 'gone:1'")
    assert World(store).epoch == 2
    bystander._writer.connection.ping()
    bystander.close()


def test_a_lock_that_cannot_be_freed_is_explained(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """Another database user's connection may not be killed: the error names the remedy."""
    World(store)
    mariadb_server.do(
        "CREATE USER IF NOT EXISTS 'other'@'%' IDENTIFIED BY 'x'",
        f"GRANT ALL PRIVILEGES ON {database}.* TO 'other'@'%'",
        "GRANT PROCESS ON *.* TO 'other'@'%'",
    )
    hold_the_lock(store)
    other = open_mysql([f"mysql://other:x@127.0.0.1:{mariadb_server.port}/{database}"])
    with pytest.raises(StoreUnavailable, match="CONNECTION ADMIN"):
        World(other)
    store._writer.roll_back()
    assert World(other).epoch == 2
    other.close()


def test_a_half_open_connection_of_our_own_does_not_keep_the_lock(store: PeeweeStore) -> None:
    """The server never heard that we left: we kill what we left behind."""
    world = World(store)
    session = hold_the_lock(store)
    still_open = os.dup(session.connection._sock.fileno())
    session.abandon()
    try:
        assert world.submit(A).refused == ""
    finally:
        os.close(still_open)


# ---------------------------------------------------------------- lost connections


def test_an_idle_connection_that_died_is_replaced_without_an_error(
    distant: PeeweeStore, proxy: TcpProxy
) -> None:
    """BEGIN finds it dead; the command and the query go over new ones."""
    world = World(distant)
    proxy.cut()
    assert world.submit(A).refused == ""
    proxy.cut()
    assert len(world.ask(ListJobs(), JobList).jobs) == 1


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_of_the_server_loses_nothing(
    store: PeeweeStore, mariadb_server: Mariadb, kill: bool
) -> None:
    """Stopped or killed: while it is away nothing is applied, then work goes on."""
    world = World(store)
    row = world.submit(A).admitted[0]
    mariadb_server.stop(kill)
    change = world.change(row, DONE, links=links(B))
    for _ in range(FREE_ATTEMPTS + 2):
        with pytest.raises(StoreUnavailable) as caught:
            world.apply(change)
    assert "in a row" in str(caught.value)
    with pytest.raises(StoreUnavailable):
        store.query(ListJobs())
    mariadb_server.start()
    store._breakers["writer"].succeeded()  # its wait is over
    assert world.apply(change).runs[0].counters.done == 1
    assert world.reload().epoch == 1


@pytest.mark.parametrize("applied", [False, True])
def test_a_commit_whose_answer_is_lost_is_unknown(
    distant: PeeweeStore, proxy: TcpProxy, applied: bool
) -> None:
    """Whether the server got it or not, a reload tells the truth."""
    world = World(distant)
    row = world.submit(A).admitted[0]
    sprung = proxy.cut_at(b"COMMIT", applied=applied)
    with pytest.raises(CommitUnknown):
        world.finish(row, DONE)
    assert sprung.is_set()
    assert world.reload().watermarks == ({("w1", 7): 1} if applied else {})


def test_a_connection_lost_before_the_commit_applied_nothing(
    distant: PeeweeStore, proxy: TcpProxy
) -> None:
    """The server rolls back; the same command works on the next connection."""
    world = World(distant)
    before = world.reload()
    sprung = proxy.cut_at(b"INSERT INTO requests", applied=True)
    with pytest.raises(StoreUnavailable):
        world.submit(A, request="r", name="n")
    assert sprung.is_set()
    assert world.reload() == before
    assert world.submit(A, request="r", name="n").repeated is False


@pytest.mark.parametrize("way", ["up", "down", "both"])
def test_a_stalled_connection_is_noticed(
    distant: PeeweeStore, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """If a connection is silent, a timeout ends it, and the next call connects again."""
    world = World(distant)
    monkeypatch.setattr(mysql_session, "READ_TIMEOUT_S", 0.5)
    distant._writer.be_patient(False)
    if way == "both":
        proxy.stall()
    else:
        proxy.drop_one_way("up" if way == "up" else "down")
    with pytest.raises(StoreUnavailable):
        world.submit(A)
    proxy.resume()
    proxy.cut()
    assert world.submit(B).refused == ""


def test_a_server_that_nobody_reaches_is_not_hammered(
    distant: PeeweeStore, proxy: TcpProxy
) -> None:
    """After a few failures calls are refused for a moment, without a connection attempt."""
    world = World(distant)
    proxy.refuse()
    messages = []
    for _ in range(FREE_ATTEMPTS + 3):
        with pytest.raises(StoreUnavailable) as caught:
            world.submit(A)
        messages.append(str(caught.value))
    assert f"127.0.0.1:{proxy.port}" in messages[0]
    assert "not tried" in messages[-1]
    proxy.accept_again()
    distant._breakers["writer"].succeeded()
    assert world.submit(A).refused == ""


# ---------------------------------------------------------------- servers that refuse


def test_a_server_that_turns_read_only_is_named_and_work_goes_on_later(
    store: PeeweeStore, mariadb_server: Mariadb
) -> None:
    """Nothing is applied; the same command works when it takes writes again."""
    world = World(store)
    mariadb_server.set_readonly(True)
    try:
        for _ in range(2):  # on the old connection, then while connecting
            with pytest.raises(StoreUnavailable) as caught:
                world.submit(A, request="r", name="n")
            assert caught.value.code == "store_readonly"
    finally:
        mariadb_server.set_readonly(False)
    assert world.submit(A, request="r", name="n").repeated is False


def test_too_many_connections_are_named(mariadb_server: Mariadb, database: str) -> None:
    """A full server is a named try-again error."""
    others = []
    # Root's connection is open before the server is full. The one place that a full server keeps
    # for root may be taken for a moment by the thread that refuses somebody else.
    with contextlib.closing(mariadb_server.admin()) as root, root.cursor() as cursor:
        cursor.execute("SELECT @@max_connections")
        ((limit,),) = cursor.fetchall()
        cursor.execute("SET GLOBAL max_connections = 10")
        try:
            with pytest.raises(StoreUnavailable) as caught:
                for _ in range(11):
                    others.append(open_mysql([mariadb_server.url(database)]))
        finally:
            cursor.execute(f"SET GLOBAL max_connections = {limit}")
            for other in others:
                other.close()
    assert caught.value.code == "too_many_connections", str(caught.value)
