"""The store on MySQL or MariaDB: find the writable server, make sessions, take over the lock.

`leaders` has one row per shard. Every transaction of a leader begins with SELECT … FOR UPDATE on
it. A shared lock would fence as well, but then a leader's new connection could read while the
COMMIT of its old one is still running, and ExtendLease would have to upgrade the lock, which can
deadlock with a takeover. There is one writer, so the exclusive lock costs nothing.

A leader that is paused inside a transaction keeps that lock. So the row also has the connection of
its writer, and the next leader KILLs that connection first. Isolation is READ COMMITTED for the
writer (the lock excludes others; gap locks would only cost time) and REPEATABLE READ for the reader
(one query may be several SELECTs).
"""

from __future__ import annotations

import contextlib
import hashlib
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import peewee
import pymysql
from pymysql.constants import CLIENT

from zcrawl.errors import StoreError, StoreUnavailable
from zcrawl.model.reasons.storage import STORE_READONLY, STORE_TLS
from zcrawl.store.sql.dialects import mysql_errors
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.dialects.mysql_session import MysqlSession, Seat
from zcrawl.store.urls import MysqlUrl

CONNECT_TIMEOUT_S: Final = 3.0
WRITE_TIMEOUT_S: Final = 8.0
LOCK_WAIT_S: Final = 2
SCHEMA_LOCK_WAIT_S: Final = 60
peewee.mysql = pymysql  # type: ignore[attr-defined] # it may have been loaded without (sql.light)
SQL_MODE: Final = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"


class MysqlDialect:
    lock_epoch = "SELECT epoch, commits FROM leaders WHERE shard = ? FOR UPDATE"
    field_types: ClassVar[dict[str, str]] = {
        "ZC_ID": "BIGINT",
        "ZC_BYTES": "VARBINARY",
        "BLOB": "LONGBLOB",
        "TEXT": "MEDIUMTEXT",
    }
    # MySQL has no partial indexes. The state is an early column, so a lane and a sweep still read
    # queued rows only. Failed rows are found by it too and then sorted; a separate index (run, seq)
    # would cost 8 % of the server's time for every new link.
    index_statements: tuple[str, ...] = (
        "CREATE INDEX requests_queued ON requests (run, state, host, prio, depth, seq)",
    )

    def __init__(self, urls: Sequence[MysqlUrl], readonly: bool) -> None:
        self.readonly = readonly
        self.where = ", ".join(url.shown for url in urls)
        self._urls = list(urls)
        self._current: MysqlUrl | None = None  # server of the writer; the reader uses the same
        self._writer_seat: Seat | None = None
        self._kill_refused = ""

    # ------------------------------------------------------------ connecting

    def connect(self, role: str) -> MysqlSession:
        """Connect to the first writable server; a read-only store accepts any server."""
        failures: list[StoreError] = []
        spare: tuple[MysqlUrl, MysqlSession] | None = None
        for url in self._in_order():
            try:
                session = self._connect_to(url, role)
                writable = not self._is_readonly(session)
            except Exception as error:
                failures.append(self._named_at(url, error))
                continue
            if writable:
                if spare is not None:
                    spare[1].close()
                return self._settle(url, session, role)
            if self.readonly and spare is None:
                spare = (url, session)
                continue
            session.close()
            failures.append(StoreUnavailable(f"{url.shown} is read only", code=STORE_READONLY))
        if spare is not None:
            return self._settle(*spare, role)
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(str(failure) for failure in failures)
        raise StoreUnavailable(f"no server in database.urls accepts writes: {reasons}")

    def _in_order(self) -> list[MysqlUrl]:
        """Return the URLs, the one in use first: most lost connections are restarts."""
        return sorted(self._urls, key=lambda url: url is not self._current)

    def _connect_to(self, url: MysqlUrl, role: str) -> MysqlSession:
        place: dict[str, Any] = {"host": url.host, "port": url.port}
        if url.socket is not None:
            place = {"unix_socket": url.socket}
        database = peewee.MySQLDatabase(
            url.database,
            user=url.user,
            password=url.password,
            thread_safe=False,
            autoconnect=False,
            field_types=self.field_types,
            sql_mode=SQL_MODE,
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=CONNECT_TIMEOUT_S,  # of the handshake; the session sets its own
            write_timeout=WRITE_TIMEOUT_S,
            client_flag=CLIENT.FOUND_ROWS,  # an UPDATE counts the rows found, as SQLite does
            program_name=f"zcrawl-{role}",
            **place,
            **tls_options(url),
        )
        database.connect()
        session = MysqlSession(database)
        try:
            self._prepare(session, role)
        except BaseException:
            session.close()
            raise
        return session

    def _prepare(self, session: MysqlSession, role: str) -> None:
        level = "READ COMMITTED" if role == "writer" else "REPEATABLE READ"
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        waits = ("innodb_lock_wait_timeout", "lock_wait_timeout")
        session.run("SET SESSION " + ", ".join(f"{name} = {LOCK_WAIT_S}" for name in waits))
        session.run("SET SESSION time_zone = '+00:00'")  # no hour is told twice in autumn
        (session.max_packet,) = session.fetch_row("SELECT @@max_allowed_packet")
        session.be_patient(False)

    def _is_readonly(self, session: MysqlSession) -> bool:
        return bool(session.fetch_row("SELECT @@global.read_only")[0])

    def _settle(self, url: MysqlUrl, session: MysqlSession, role: str) -> MysqlSession:
        self.where = url.shown
        session.is_current = lambda: self._current is url
        if role == "writer" or self._current is None:
            self._current = url
        if role == "writer" and not self.readonly:
            session.seat = _seat_of(session)
            # This process's last connection may be half open, and the server would keep its
            # transaction and lock for hours. A COMMIT running there ends before its lock.
            if self._writer_seat is not None:
                self._kill(session, self._writer_seat)
            self._writer_seat = session.seat
        return session

    # ------------------------------------------------------------ leaders

    def before_takeover(self, session: Session, shard: int) -> None:
        """KILL the connection of the previous leader, and store ours for the next leader.

        Each statement commits by itself, so a pause here leaves no lock behind.
        """
        assert isinstance(session, MysqlSession)
        held = session.fetch_row(
            "SELECT connection, address FROM leaders WHERE shard = ?", (shard,)
        )
        if held is None:
            with contextlib.suppress(pymysql.err.IntegrityError):  # another master just did it
                session.run(
                    "INSERT INTO leaders (shard, epoch, held_by, taken_at) VALUES (?, 0, '', 0)",
                    (shard,),
                )
        elif held != session.seat:
            self._kill(session, held)
        session.run(
            "UPDATE leaders SET connection = ?, address = ? WHERE shard = ?",
            (*session.seat, shard),
        )

    def committed(self, commits: int) -> None:
        """Do nothing: the server has its own log, and `leaders.commits` shows an old copy."""

    def close(self) -> None:
        """Do nothing: the store closes the connections."""

    def keep_leading(self, session: Session, epoch: int) -> None:
        assert isinstance(session, MysqlSession)
        session.run(
            "UPDATE leaders SET connection = ?, address = ? WHERE shard = 0 AND epoch = ?",
            (*session.seat, epoch),
        )

    def _kill(self, session: MysqlSession, seat: Seat) -> None:
        """Kill a connection, identified by id and address: a restarted server reuses ids."""
        self._kill_refused = ""
        if seat[0] == session.seat[0] or seat not in _seats(session):
            return
        try:
            session.run(f"KILL CONNECTION {seat[0]:d}")
        except pymysql.err.MySQLError as error:
            code = mysql_errors.code_of(error)
            if code == mysql_errors.KILL_DENIED:
                # Shown only if the lock is really held; otherwise it does not matter.
                self._kill_refused = (
                    f"; connection {seat[0]} ({seat[1]}) may hold the lock and could not be "
                    "killed: let all masters use the same database user, or grant CONNECTION ADMIN"
                )
            elif code != mysql_errors.NO_SUCH_THREAD:
                raise

    # ------------------------------------------------------------ schema

    def table_options(self, session: Session) -> str:
        """Use binary collations that respect spaces at the end, as SQLite does."""
        (version,) = session.fetch_row("SELECT VERSION()")
        collation = "utf8mb4_nopad_bin" if "maria" in version.lower() else "utf8mb4_0900_bin"
        return f" ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {collation}"

    @contextlib.contextmanager
    def migration_lock(self, session: Session) -> Iterator[None]:
        """Lock by name, so that masters that start together migrate once; DDL commits by itself."""
        name = "zcrawl." + hashlib.blake2b(self._urls[0].database.encode()).hexdigest()[:32]
        session.be_patient(True)
        if session.fetch_row("SELECT GET_LOCK(?, ?)", (name, SCHEMA_LOCK_WAIT_S))[0] != 1:
            raise StoreUnavailable(f"{self.where}: another master migrates the schema")
        try:
            yield
        finally:
            if not session.lost:
                session.fetch_row("SELECT RELEASE_LOCK(?)", (name,))
                session.be_patient(False)

    # ------------------------------------------------------------ errors

    def error(self, error: BaseException) -> StoreError | None:
        url = self._current or self._urls[0]
        named = mysql_errors.named_error(error, url.shown, url.user, url.database)
        if self._kill_refused and mysql_errors.code_of(error) == mysql_errors.LOCK_WAIT:
            return StoreUnavailable(f"{named}{self._kill_refused}")
        return named

    def commit_error(self, error: Exception, rolled_back: bool) -> StoreError:
        named = self.error(error) or StoreError(str(error))
        return mysql_errors.commit_error(error, named, self.where)

    def _named_at(self, url: MysqlUrl, error: Exception) -> StoreError:
        named = mysql_errors.named_error(error, url.shown, url.user, url.database)
        if named is None:
            raise error
        named.__cause__ = error
        return named


def _seats(session: MysqlSession) -> set[Seat]:
    """Return all connections of our user, or of all users with the PROCESS privilege."""
    return {(int(row[0]), str(row[2])) for row in session.all("SHOW PROCESSLIST")}


def _seat_of(session: MysqlSession) -> Seat:
    mine = session.seat[0]
    return next((seat for seat in _seats(session) if seat[0] == mine), (mine, ""))


def tls_options(url: MysqlUrl) -> dict[str, Any]:
    if url.ssl_mode == "disabled":
        return {"ssl_disabled": True}
    if url.ssl_mode == "preferred" and url.ssl_cert is None:
        return {}
    verify = url.ssl_mode in ("verify_ca", "verify_identity")
    try:
        context = ssl.create_default_context(cafile=url.ssl_ca if verify else None)
        context.check_hostname = url.ssl_mode == "verify_identity"
        context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
        if url.ssl_cert is not None:
            # A key with a passphrase is refused; OpenSSL would ask for it on the terminal.
            context.load_cert_chain(url.ssl_cert, url.ssl_key, lambda: "")
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{url.shown}: cannot use ssl_ca, ssl_cert or ssl_key: {error}", code=STORE_TLS
        ) from error
    return {"ssl": context}


def tls_in_use(url: MysqlUrl) -> str:
    """Connect once, and return the TLS version and cipher; empty: the connection is plain."""
    try:
        with contextlib.closing(_connection(url)) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_cipher','Ssl_version')"
            )
            values = dict(cursor.fetchall())
    except pymysql.err.MySQLError as error:
        raise mysql_errors.named_error(error, url.shown, url.user, url.database) or error from error
    version, cipher = values.get("Ssl_version"), values.get("Ssl_cipher")
    return f"{version} {cipher}" if cipher else ""


def create_database(urls: Sequence[MysqlUrl]) -> None:
    """Create the database of these addresses on the first server that accepts it."""
    failure: Exception | None = None
    for url in urls:
        try:
            _create_at(url)
        except pymysql.err.MySQLError as error:
            named = mysql_errors.named_error(error, url.shown, url.user, url.database)
            failure = named or error
        else:
            return
    if failure is not None:
        raise failure


def _create_at(url: MysqlUrl) -> None:
    with contextlib.closing(_connection(url)) as connection, connection.cursor() as cursor:
        name = url.database.replace("`", "``")
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4")


def _connection(url: MysqlUrl) -> pymysql.Connection[Any]:
    """Connect to the server, to no database of it."""
    return pymysql.connect(
        host=url.host,
        port=url.port,
        unix_socket=url.socket,
        user=url.user,
        password=url.password,
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=CONNECT_TIMEOUT_S,
        **tls_options(url),
    )
