"""What only the MySQL store can show before it stores anything: its schema, set-up errors, TLS."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_world import A, World
from tests.servers.certificates import Certificates, make_certificates
from tests.servers.mariadb import PASSWORD, QUOTED_PASSWORD, Mariadb, mariadb
from zcrawl.errors import StoreCorrupt, StoreError, StoreUnavailable
from zcrawl.store.queries import JobList, ListJobs
from zcrawl.store.sql import schema
from zcrawl.store.sql.store import PeeweeStore, open_mysql


@pytest.fixture
def store(mysql_store: PeeweeStore) -> PeeweeStore:
    return mysql_store


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
    """DDL has no transaction, so version 0 means that these tables were never used."""
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
        with pytest.raises(StoreError, match=f"999.*{schema.VERSION}") as caught:
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
    """The message has the user, the server and the config key, but never the password."""
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
    return str(store._writer.fetch_row("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[1])


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


@pytest.mark.parametrize(
    ("address", "names", "days", "words"),
    [
        ("127.0.0.1", (), -1, "has expired: renew it on the server"),
        ("127.0.0.9", ("db.example",), 2, "is for another host name"),
    ],
)
def test_a_certificate_that_does_not_hold_is_named_by_its_fault(
    tmp_path: Path, address: str, names: tuple[str, ...], days: int, words: str
) -> None:
    """Expired, or for another host: each has its own remedy, and nothing is sent to the server.
    `verify_ca` accepts another name, but no other authority."""
    made = make_certificates(tmp_path / "server", address, names, days)
    foreign = make_certificates(tmp_path / "foreign")
    options = (f"--ssl-cert={made.server_cert}", f"--ssl-key={made.server_key}")
    with mariadb(*options) as server:
        name = server.new_database()
        with pytest.raises(StoreError, match=words) as caught:
            open_mysql([server.url(name, ssl_ca=str(made.ca))])
        assert caught.value.code == "store_tls"
        assert PASSWORD not in str(caught.value)
        with pytest.raises(StoreError, match=r"ssl_ca in database\.urls is not the authority"):
            open_mysql([server.url(name, ssl_ca=str(foreign.ca), ssl_mode="verify_ca")])
        if days > 0:
            open_mysql([server.url(name, ssl_ca=str(made.ca), ssl_mode="verify_ca")]).close()


def test_a_server_that_requires_tls_refuses_plain_connections_by_name(
    certificates: Certificates,
) -> None:
    """With require_secure_transport=ON, `disabled` is refused with the parameters to check; the
    default, a certificate authority, and a user with REQUIRE X509 are served."""
    options = (
        f"--ssl-ca={certificates.ca}",
        f"--ssl-cert={certificates.server_cert}",
        f"--ssl-key={certificates.server_key}",
        "--require-secure-transport=ON",
    )
    with mariadb(*options) as server:
        server.do(
            f"CREATE USER 'careful'@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE X509",
            "GRANT ALL PRIVILEGES ON *.* TO 'careful'@'%'",
        )
        name = server.new_database()
        with pytest.raises(StoreError, match="ssl_mode") as caught:
            open_mysql([server.url(name, ssl_mode="disabled")])
        # MariaDB refuses the user like one with a wrong password; MySQL has a number for it.
        assert caught.value.code == ("store_denied" if server.is_mariadb else "store_tls")
        for url in (server.url(name), server.url(name, ssl_ca=str(certificates.ca))):
            open_mysql([url]).close()
        careful = f"mysql://careful:{QUOTED_PASSWORD}@127.0.0.1:{server.port}/{name}"
        checked = f"{careful}?ssl_ca={certificates.ca}"
        with pytest.raises(StoreError, match="ssl_cert and ssl_key") as caught:
            open_mysql([checked])
        assert caught.value.code == "store_denied"
        shown = f"&ssl_cert={certificates.client_cert}&ssl_key={certificates.client_key}"
        store = open_mysql([checked + shown])
        assert World(store).epoch == 1
        store.close()


def test_no_demand_for_tls_is_met_by_a_plain_connection() -> None:
    """A server without TLS, as somebody between us and it would pretend: each way to demand TLS is
    refused before user and password are sent; only the default connects without."""
    with mariadb("--skip-ssl") as server:
        name = server.new_database()
        ca = "/etc/ssl/certs/ca-certificates.crt"
        for query in ("ssl_mode=required", f"ssl_ca={ca}", f"ssl_ca={ca}&ssl_mode=verify_ca"):
            with pytest.raises(StoreError, match="no TLS connection") as caught:
                open_mysql([f"{server.url(name)}?{query}"])
            assert caught.value.code == "store_tls"
        store = open_mysql([server.url(name)])
        assert cipher(store) == ""
        store.close()


def test_a_key_with_a_passphrase_is_refused_and_prompts_nobody(
    tls_server: Mariadb, certificates: Certificates, tmp_path: Path
) -> None:
    """OpenSSL would ask for it on the terminal, and a master would wait for ever."""
    locked = tmp_path / "locked.key"
    command = ["openssl", "rsa", "-aes128", "-passout", "pass:x"]
    command += ["-in", str(certificates.client_key), "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    url = tls_server.url("any", ssl_cert=str(certificates.client_cert), ssl_key=str(locked))
    with pytest.raises(StoreError, match="ssl_key") as caught:
        open_mysql([url])
    assert caught.value.code == "store_tls"


def test_tls_is_required_or_off_as_the_url_says(
    tls_server: Mariadb, mariadb_server: Mariadb, database: str
) -> None:
    """`required` refuses a server that has none; `disabled` uses none; the default takes it."""
    name = tls_server.new_database()
    for query, encrypted in (
        ("", True),
        ("?ssl_mode=required", True),
        ("?ssl_mode=disabled", False),
    ):
        store = open_mysql([tls_server.url(name) + query])
        assert (cipher(store) != "") is encrypted
        store.close()
    if mariadb_server.do("SHOW VARIABLES LIKE 'have_ssl'") == [("have_ssl", "DISABLED")]:
        with pytest.raises(StoreError) as caught:
            open_mysql([mariadb_server.url(database, ssl_mode="required")])
        assert caught.value.code == "store_tls"


def test_the_databases_time_is_utc_whatever_the_server_is_set_to(
    mariadb_server: Mariadb, database: str
) -> None:
    """With summer time, one hour of the year occurs twice; the session therefore uses UTC."""
    with contextlib.closing(open_mysql([mariadb_server.url(database)])) as store:
        session = store._sessions["writer"]
        assert session.fetch_row("SELECT @@session.time_zone")[0] == "+00:00"
        assert abs(session.utc() - time.time()) < 60
