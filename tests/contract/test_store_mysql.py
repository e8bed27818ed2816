"""What only the MySQL store can show: its types and limits, its schema, set-up errors, TLS."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.contract.store_world import World, link, links, page, timeless
from tests.servers.certificates import Certificates, make_certificates
from tests.servers.mariadb import PASSWORD, QUOTED_PASSWORD, Mariadb, mariadb
from zcrawl.errors import (
    CommitUnknown,
    StoreCorrupt,
    StoreDataError,
    StoreError,
    StoreUnavailable,
)
from zcrawl.model import RequestState, RunState
from zcrawl.store import schema_peewee
from zcrawl.store.commands import CountCrash, CrashCounted, Loaded, Retried, RetryDead, TakeOver
from zcrawl.store.queries import (
    Items,
    JobList,
    LaneWant,
    ListJobs,
    Outputs,
    ReadItems,
    ReadOutputs,
    Refill,
    Refilled,
)
from zcrawl.store.session_mysql_peewee import MysqlSession
from zcrawl.store.store_peewee import PeeweeStore, open_mysql

A, B, C = (f"https://a.test/{name}" for name in "abc")
DONE, QUEUED = RequestState.DONE, RequestState.QUEUED


@pytest.fixture
def store(mariadb_server: Mariadb, database: str) -> Iterator[PeeweeStore]:
    store = open_mysql([mariadb_server.url(database)])
    yield store
    store.close()


# ---------------------------------------------------------------- values


def test_data_that_cannot_be_stored_is_a_data_error(store: PeeweeStore) -> None:
    """A lone surrogate, a number out of range, a wrong type, too long a text: bisect and drop."""
    world = World(store)
    row = world.submit(A).admitted[0]
    before = world.reload()
    good = world.change(row, DONE)
    assert good.page is not None
    surrogate = msgspec.structs.replace(link(B), url="https://a.test/\udfff")
    long = msgspec.structs.replace(link(B), url="https://a.test/" + "x" * 9_000)
    for bad in (
        msgspec.structs.replace(good, reason="\ud800"),
        msgspec.structs.replace(good, reason="x" * 256),
        msgspec.structs.replace(good, links=(surrogate,)),
        msgspec.structs.replace(good, links=(long,)),
        msgspec.structs.replace(good, status=1 << 64),
        msgspec.structs.replace(good, due_at=float("inf")),
        msgspec.structs.replace(good, page=msgspec.structs.replace(good.page, size=1 << 63)),
        msgspec.structs.replace(good, page=msgspec.structs.replace(good.page, title=["x"])),
        msgspec.structs.replace(good, items=(None,)),
        msgspec.structs.replace(good, items=(b"x" * 17_000_000,)),
    ):
        with pytest.raises(StoreDataError):
            world.apply(bad)
    assert world.reload() == before
    assert world.apply(good).runs[0].counters.done == 1


def test_what_looks_like_sql_is_only_data(store: PeeweeStore) -> None:
    """Quotes, backslashes, percent signs, marks, braces and zero bytes come back as they were."""
    world = World(store)
    nasty = "a'b\"c\\d%s{}?\0\n\r\x1a'; DROP TABLE jobs; -- \\'"
    rows = world.submit(A, B, name=nasty).admitted
    data = bytes(range(256)) + nasty.encode()
    world.finish(rows[0], DONE, items=(data,), page=msgspec.structs.replace(page(A), title=nasty))
    world.finish(rows[1], RequestState.DEAD, reason=nasty)
    assert world.run_row(rows[0].run).name == nasty
    assert world.failures(rows[0].run) == [(B, RequestState.DEAD, nasty)]
    assert world.tallies(rows[0].run).failed == {nasty: 1}
    assert world.ask(ReadItems(rows[0].run, 0, 9), Items).rows[0].data == data
    (title,) = store._writer.one("SELECT title FROM pages")
    assert title == nasty


def test_names_are_compared_byte_by_byte(store: PeeweeStore) -> None:
    """Neither case, nor accents, nor a space at the end make two names one."""
    world = World(store)
    names = ["job", "Job", "job ", "jöb", "job\u0301"]
    for name in names:
        assert world.submit(A, name=name).refused == ""
    assert world.submit(A, name="job").refused == "name_exists"
    rows = world.submit(A, B, C).admitted
    for row, reason in zip(rows, ("dns", "dns ", "DNS"), strict=True):
        world.finish(row, RequestState.DEAD, reason=reason)
    assert world.tallies(rows[0].run).failed == {"dns": 1, "dns ": 1, "DNS": 1}


def test_times_come_back_exactly(store: PeeweeStore) -> None:
    """Also when many rows with different values are updated by one statement."""
    world = World(store)
    rows = world.submit(*(f"https://a.test/{i}" for i in range(40))).admitted
    due = [1_763_286_000.123457 + i / 7 for i in range(40)]
    world.apply(
        *(
            world.change(row, QUEUED, due_at=at, attempts=i, reason=f"r{i}", status=500 + i)
            for i, (row, at) in enumerate(zip(rows, due, strict=True))
        )
    )
    lane = LaneWant(rows[0].run, rows[0].host, None, 50)
    ((_, found, _),) = world.ask(Refill((lane,)), Refilled).lanes
    assert [(row.due_at, row.attempts) for row in found] == [(at, i) for i, at in enumerate(due)]


def test_a_batch_above_the_packet_limit_is_split(store: PeeweeStore) -> None:
    """40 MB of items in one command: several statements, one transaction."""
    world = World(store)
    rows = world.submit(*(f"https://a.test/{i}" for i in range(10))).admitted
    changes = [world.change(row, DONE, items=(b"x" * 4_000_000,)) for row in rows]
    assert world.apply(*changes).runs[0].counters.items == 10
    found = world.ask(ReadItems(rows[0].run, 0, 20), Items).rows
    assert [len(item.data) for item in found] == [4_000_000] * 10


def test_many_lanes_and_keys_take_few_statements(store: PeeweeStore) -> None:
    """A refill of 250 lanes and a batch of 600 results are a handful of round trips."""
    world = World(store)
    urls = [f"https://h{i % 250}.test/{i}" for i in range(600)]
    admitted = world.submit(*urls).admitted
    lanes = tuple(LaneWant(admitted[0].run, host, None, 5) for host in range(1, 251))
    counted = count_statements(store)
    refilled = world.ask(Refill(lanes), Refilled).lanes
    assert [row.url for _, rows, _ in refilled for row in rows] == sorted(
        urls, key=lambda url: (int(url[9:].split(".")[0]), urls.index(url))
    )
    assert counted() <= 5
    world.apply(
        *(world.change(row, DONE, host_next_at=float(row.seq), links=links(A)) for row in admitted)
    )
    assert counted() <= 30


def count_statements(store: PeeweeStore) -> CountStatements:
    return CountStatements([store._writer, store._reader])


class CountStatements:
    """Questions that the server counted on these connections since the last call."""

    def __init__(self, sessions: list[object]) -> None:
        self._sessions = [session for session in sessions if isinstance(session, MysqlSession)]
        self._last = self._questions()

    def _questions(self) -> int:
        status = "SHOW SESSION STATUS LIKE 'Questions'"
        return sum(int(session.one(status)[1]) for session in self._sessions)

    def __call__(self) -> int:
        before, self._last = self._last, self._questions()
        return self._last - before - len(self._sessions)


def test_an_update_counts_the_rows_it_finds(store: PeeweeStore) -> None:
    """Also those that have the value already, as SQLite counts."""
    world = World(store)
    world.submit(A)
    session = store._writer
    for _ in range(2):
        assert session.run("UPDATE jobs SET created_at = 5") == 1
    assert session.update_many("jobs", ("created_at",), "id", [(5.0, 1), (5.0, 99)]) == 1


def test_a_duplicate_key_makes_the_leader_reload(store: PeeweeStore) -> None:
    """The fenced leader is the only writer: a key that is there already is never ignored."""
    world = World(store)
    world.submit(A)
    store._writer.run("UPDATE sequences SET value = 0")
    with pytest.raises(CommitUnknown) as caught:
        world.submit(B)
    assert caught.value.code == "duplicate_key"
    assert len(world.ask(ListJobs(), JobList).jobs) == 1


def test_no_statement_scans_a_big_table(
    store: PeeweeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every statement of a run's life finds its requests, pages and items by an index."""
    statements: list[str] = []
    send = MysqlSession._send

    def spy(self: MysqlSession, sql: str) -> int:
        statements.append(sql)
        return send(self, sql)

    world = World(store)
    first = world.submit(*(f"https://b.test/{i}" for i in range(300)))
    for row in first.admitted[:250]:  # a table this small would be scanned whatever its indexes
        world.finish(row, DONE)
    monkeypatch.setattr(MysqlSession, "_send", spy)
    a, b, c = world.submit(A, B, C, output=("/x", "jsonl")).admitted
    world.finish(a, DONE, links=links("https://b.test/"))
    world.finish(b, RequestState.DEAD, reason="dns")
    for lane in (LaneWant(2, a.host, None, 5), LaneWant(2, a.host, (0, 0, 1), 5)):
        world.ask(Refill((lane,)), Refilled)
    world.do(RetryDead(1, a.run, 0, 5, 1.0), Retried)
    world.do(CountCrash(1, c.seq, 3, True, 1.0), CrashCounted)
    world.failures(a.run)
    world.ask(ReadItems(a.run, 0, 5), Items)
    world.ask(ReadOutputs(), Outputs)
    world.reload()
    for state in (RunState.CANCELLED, RunState.DELETED):
        world.change_run(a.run, state)
        world.sweep(a.run)
    monkeypatch.undo()
    explained = 0
    session = store._writer
    assert isinstance(session, MysqlSession)
    for sql in list(statements):
        if sql.startswith(("SELECT", "(SELECT", "UPDATE", "DELETE")):
            explained += 1
            rows = session.all(f"EXPLAIN FORMAT=TRADITIONAL {sql}")
            names = [column[0] for column in session._cursor.description]
            for row in rows:
                table, access = row[names.index("table")], row[names.index("type")]
                if table in ("requests", "q", "p", "pages", "items", "i"):
                    assert access != "ALL", (sql, row)
    assert explained > 50


# ---------------------------------------------------------------- life


def test_what_was_committed_is_there_after_a_reopen(mariadb_server: Mariadb, database: str) -> None:
    """Another process sees the same."""
    store = open_mysql([mariadb_server.url(database)])
    world = World(store)
    world.finish(world.submit(A).admitted[0], DONE, links=links(B))
    loaded = world.reload()
    store.close()
    store = open_mysql([mariadb_server.url(database)])
    found = store.execute(TakeOver("m2", 0, 1.0))
    assert isinstance(found, Loaded)
    assert timeless(found) == msgspec.structs.replace(loaded, epoch=2)
    store.close()


def test_a_closed_store_is_unavailable(store: PeeweeStore) -> None:
    """A late call after close gets a named error and opens nothing."""
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.execute(TakeOver("m", 0, 1.0))
    with pytest.raises(StoreUnavailable):
        store.query(ListJobs())


def test_a_readonly_store_reads_and_refuses_commands(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """It makes no tables either."""
    World(store).submit(A)
    reader = open_mysql([mariadb_server.url(database)], readonly=True)
    assert reader.query(ListJobs()) == store.query(ListJobs())
    with pytest.raises(StoreError) as caught:
        reader.execute(TakeOver("m", 0, 1.0))
    assert caught.value.code == "readonly"
    reader.close()
    empty = mariadb_server.new_database()
    with pytest.raises(StoreError) as caught:
        open_mysql([mariadb_server.url(empty)], readonly=True)
    assert caught.value.code == "no_database"
    assert mariadb_server.do(f"SHOW TABLES FROM {empty}") == []
    mariadb_server.drop(empty)


# ---------------------------------------------------------------- schema


def shape(server: Mariadb, database: str) -> list[tuple[object, ...]]:
    columns = server.do(
        "SELECT table_name, column_name, column_type, is_nullable, column_default, collation_name "
        f"FROM information_schema.columns WHERE table_schema = '{database}' ORDER BY 1, 2"
    )
    indexes = server.do(
        "SELECT table_name, index_name, seq_in_index, column_name, non_unique "
        f"FROM information_schema.statistics WHERE table_schema = '{database}' ORDER BY 1, 2, 3"
    )
    return [*columns, *indexes]


def test_masters_that_start_together_make_the_schema_once(
    mariadb_server: Mariadb, database: str
) -> None:
    """Each of them gets a working store."""
    stores: list[PeeweeStore] = []
    errors: list[Exception] = []

    together = threading.Barrier(4)

    def start() -> None:
        try:
            together.wait(30.0)
            stores.append(open_mysql([mariadb_server.url(database)]))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(World(store).epoch for store in stores) == [1, 2, 3, 4]
    for store in stores:
        store.close()


def test_an_old_schema_is_migrated_to_what_a_new_one_is(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """Version 1 lacks the leader's connection; its data stays."""
    World(store).submit(A)
    expected = shape(mariadb_server, database)
    mariadb_server.do(
        f"ALTER TABLE {database}.leaders DROP COLUMN connection, DROP COLUMN address, "
        "DROP COLUMN commits",
        f"UPDATE {database}.schema_version SET version = 1",
    )
    again = open_mysql([mariadb_server.url(database)])
    assert shape(mariadb_server, database) == expected
    assert len(World(again).ask(ListJobs(), JobList).jobs) == 1
    again.close()


def test_a_creation_that_was_cut_short_is_done_again(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """DDL is no part of a transaction: version 0 tells that nobody ever used these tables."""
    expected = shape(mariadb_server, database)
    mariadb_server.do(
        f"DROP TABLE {database}.tallies",
        f"DROP INDEX requests_queued ON {database}.requests",
        f"UPDATE {database}.schema_version SET version = 0",
    )
    again = open_mysql([mariadb_server.url(database)])
    assert shape(mariadb_server, database) == expected
    assert World(again).submit(A).refused == ""
    again.close()


def test_a_newer_schema_is_refused(
    store: PeeweeStore, mariadb_server: Mariadb, database: str
) -> None:
    """The error says which versions met."""
    mariadb_server.do(f"UPDATE {database}.schema_version SET version = 999")
    for readonly in (False, True):
        with pytest.raises(StoreError, match=f"999.*{schema_peewee.VERSION}") as caught:
            open_mysql([mariadb_server.url(database)], readonly)
        assert caught.value.code == "schema_newer"


def test_a_database_of_another_program_is_refused(mariadb_server: Mariadb, database: str) -> None:
    """Its tables are named and left alone."""
    mariadb_server.do(f"CREATE TABLE {database}.wp_posts (id INT)")
    with pytest.raises(StoreCorrupt, match="wp_posts"):
        open_mysql([mariadb_server.url(database)])
    assert mariadb_server.do(f"SHOW TABLES FROM {database}") == [("wp_posts",)]


# ---------------------------------------------------------------- set-up errors


def test_wrong_credentials_name_the_user_and_the_key(
    mariadb_server: Mariadb, database: str
) -> None:
    """Who was refused where, and which config key to correct; never the password."""
    url = f"mysql://zcrawl:wr0ng-secret@127.0.0.1:{mariadb_server.port}/{database}"
    with pytest.raises(StoreError, match=r"'zcrawl'.*database.urls") as caught:
        open_mysql([url])
    assert caught.value.code == "store_denied"
    assert f"127.0.0.1:{mariadb_server.port}" in str(caught.value)
    assert "wr0ng-secret" not in str(caught.value)


def test_a_missing_database_is_offered_to_be_created(mariadb_server: Mariadb) -> None:
    """Only when asked is it made."""
    url = mariadb_server.url("not_yet_there")
    with pytest.raises(StoreError, match=r"not_yet_there.*create") as caught:
        open_mysql([url])
    assert caught.value.code == "no_database"
    store = open_mysql([url], create=True)
    assert World(store).epoch == 1
    store.close()
    mariadb_server.drop("not_yet_there")


def test_missing_rights_are_named(mariadb_server: Mariadb, database: str) -> None:
    """A user that may read only cannot make tables."""
    mariadb_server.do(
        "CREATE USER IF NOT EXISTS 'poor'@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT ON {database}.* TO 'poor'@'%'",
    )
    with pytest.raises(StoreError, match=r"'poor'.*grants") as caught:
        open_mysql([f"mysql://poor:x@127.0.0.1:{mariadb_server.port}/{database}"])
    assert caught.value.code == "store_denied"


def test_an_address_where_nobody_listens_is_named() -> None:
    """It may come back: a try-again error."""
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9"):
        open_mysql([f"mysql://zcrawl:{QUOTED_PASSWORD}@127.0.0.1:9/z"])


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_server(certificates: Certificates) -> Iterator[Mariadb]:
    options = (
        f"--ssl-ca={certificates.ca}",
        f"--ssl-cert={certificates.server_cert}",
        f"--ssl-key={certificates.server_key}",
    )
    with mariadb(*options) as server:
        server.do(
            f"CREATE USER 'careful'@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE X509",
            "GRANT ALL PRIVILEGES ON *.* TO 'careful'@'%'",
        )
        yield server


def cipher(store: PeeweeStore) -> str:
    return str(store._writer.one("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[1])


def test_tls_verifies_the_server_when_a_ca_is_given(
    tls_server: Mariadb, certificates: Certificates, tmp_path: Path
) -> None:
    """Encrypted with the right authority, refused with another one."""
    name = tls_server.new_database()
    store = open_mysql([tls_server.url(name, ssl_ca=str(certificates.ca))])
    assert cipher(store) != ""
    assert World(store).epoch == 1
    store.close()
    foreign = make_certificates(tmp_path / "foreign")
    with pytest.raises(StoreError, match="ssl_ca") as caught:
        open_mysql([tls_server.url(name, ssl_ca=str(foreign.ca))])
    assert caught.value.code == "store_tls"
    with pytest.raises(StoreError, match="ssl_ca") as caught:
        open_mysql([tls_server.url(name, ssl_ca=str(tmp_path / "none.pem"))])
    assert caught.value.code == "store_tls"


def test_tls_can_show_a_client_certificate(tls_server: Mariadb, certificates: Certificates) -> None:
    """A user who must have one gets in with it only."""
    name = tls_server.new_database()
    address = f"mysql://careful:{QUOTED_PASSWORD}@127.0.0.1:{tls_server.port}/{name}"
    with pytest.raises(StoreError) as caught:
        open_mysql([f"{address}?ssl_ca={certificates.ca}"])
    assert caught.value.code == "store_denied"
    shown = f"ssl_cert={certificates.client_cert}&ssl_key={certificates.client_key}"
    store = open_mysql([f"{address}?ssl_ca={certificates.ca}&{shown}"])
    assert cipher(store) != ""
    store.close()


def test_tls_is_required_or_off_as_the_url_says(
    tls_server: Mariadb, mariadb_server: Mariadb, database: str
) -> None:
    """`required` refuses a server that has none; `disabled` uses none; the default takes it."""
    name = tls_server.new_database()
    for parameters, encrypted in (
        ({}, True),
        ({"ssl_mode": "required"}, True),
        ({"ssl_mode": "disabled"}, False),
    ):
        store = open_mysql([tls_server.url(name, **parameters)])
        assert (cipher(store) != "") is encrypted
        store.close()
    if mariadb_server.do("SHOW VARIABLES LIKE 'have_ssl'") == [("have_ssl", "DISABLED")]:
        with pytest.raises(StoreError) as caught:
            open_mysql([mariadb_server.url(database, ssl_mode="required")])
        assert caught.value.code == "store_tls"


def test_the_databases_time_is_utc_whatever_the_server_is_set_to(
    mariadb_server: Mariadb, database: str
) -> None:
    """In a zone with summer time one hour of the year is told twice; ours is not of a zone."""
    with contextlib.closing(open_mysql([mariadb_server.url(database)])) as store:
        session = store._sessions["writer"]
        assert session.one("SELECT @@session.time_zone")[0] == "+00:00"
        assert abs(session.utc() - time.time()) < 60
