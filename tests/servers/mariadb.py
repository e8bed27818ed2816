"""A real MariaDB or MySQL in a temporary folder on a free loopback port, for tests and benchmarks.

It shares nothing with a server that the machine may run: own folder, own socket, own port.
`mariadbd` is preferred; ZCRAWL_TEST_MYSQLD names another server, such as Oracle's mysqld.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql

START_TIMEOUT_S = 60.0
MEMORY_BYTES = 1 << 30
STOP_TIMEOUT_S = 20.0
USER, PASSWORD = "zcrawl", "s3cret/@:word"
QUOTED_PASSWORD = "s3cret%2F%40%3Aword"
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/usr/libexec"
_names = itertools.count(1)

SETTINGS = (
    "--innodb-buffer-pool-size=64M",
    "--key-buffer-size=1M",
    "--skip-name-resolve",
    "--max-connections=60",
    "--max-allowed-packet=16M",
    "--character-set-server=latin1",  # the worst default: ours must not depend on it
)
MARIADB_SETTINGS = ("--innodb-log-file-size=32M",)
# Loose: releases before 8.0.30 do not know it, and start without.
MYSQL_SETTINGS = ("--mysqlx=OFF", "--secure-file-priv=", "--loose-innodb-redo-log-capacity=64M")
# Each commit is written, none waits for the disk: it survives kill -9 of the server all the same.
FAST = ("--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--skip-innodb-doublewrite")
FAST_MARIADB = ("--innodb-flush-method=nosync", "--sync-frm=0")


class MariadbFailed(RuntimeError):
    """The server is missing or did not start. With CI=true tests fail with it."""


def find_server() -> str | None:
    path = os.environ.get("ZCRAWL_TEST_MYSQLD")
    if path:
        return path
    return shutil.which("mariadbd", path=_PATH) or shutil.which("mysqld", path=_PATH)


def is_mariadb(binary: str) -> bool:
    """And not MySQL, whose options and words for replication differ."""
    return "MariaDB" in _output([binary, "--version"])


@dataclasses.dataclass
class Mariadb:
    """A server that may be stopped, paused and started again on the same port and data."""

    binary: str
    folder: Path
    port: int
    server_id: int
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    is_mariadb: bool = True

    # ------------------------------------------------------------ life

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                # setpriv: the server ends with the test process, even when that is killed.
                [
                    *("setpriv", "--pdeathsig", "KILL", self.binary, "--no-defaults"),
                    f"--user={pwd.getpwuid(os.geteuid()).pw_name}",
                    f"--datadir={self.folder / 'data'}",
                    f"--socket={self.socket}",
                    f"--pid-file={self.folder / 'pid'}",
                    f"--tmpdir={self.folder}",  # a server that starts empties its own
                    f"--port={self.port}",
                    "--bind-address=127.0.0.1",
                    f"--server-id={self.server_id}",
                    f"--log-bin={self.folder / 'binlog'}",
                    *SETTINGS,
                    *(MARIADB_SETTINGS if self.is_mariadb else MYSQL_SETTINGS),
                    *self.options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as probe:  # PyMySQL would leave it open
                    probe.connect(str(self.socket))
                self.admin().close()
                return
            except (OSError, pymysql.err.MySQLError) as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / "server.log").read_text(errors="replace")
                    raise MariadbFailed(f"{self.binary} did not start:\n{log[-3000:]}") from error
                time.sleep(0.05)

    def stop(self, kill: bool = False) -> None:
        """Takes down exactly the process that was started."""
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self, kill: bool = False) -> None:
        self.stop(kill)
        self.start()

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    # ------------------------------------------------------------ access

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    def admin(self, database: str | None = None) -> pymysql.Connection[Any]:
        """As root over the socket; every statement commits by itself."""
        return pymysql.connect(
            unix_socket=str(self.socket),
            user="root",
            database=database,
            autocommit=True,
            connect_timeout=5,
            ssl_disabled=True,
        )

    def do(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as root; the rows of the last."""
        rows: list[tuple[Any, ...]] = []
        with contextlib.closing(self.admin()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def set_readonly(self, readonly: bool) -> None:
        self.do(f"SET GLOBAL read_only = {int(readonly)}")

    def url(self, database: str, port: int | None = None, **parameters: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        address = f"{USER}:{QUOTED_PASSWORD}@127.0.0.1:{port or self.port}/{database}"
        return f"mysql://{address}{'?' if query else ''}{query}"

    def new_database(self) -> str:
        """The name of an empty database that nobody else uses."""
        name = f"z{os.getpid()}_{next(_names)}"
        self.do(f"CREATE DATABASE {name}")
        return name

    def drop(self, database: str) -> None:
        self.do("SET lock_wait_timeout = 20", f"DROP DATABASE IF EXISTS {database}")

    def grant(self, user: str = USER, password: str = PASSWORD, scope: str = "*.*") -> None:
        """A plain user: it may use databases, and neither KILL others nor write when read-only."""
        grants = (
            "ALL PRIVILEGES"
            if scope != "*.*"
            else ("SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES")
        )
        self.do(
            f"CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}'",
            f"GRANT {grants} ON {scope} TO '{user}'@'%'",
        )

    # ------------------------------------------------------------ replication

    def replicate_from(self, primary: Mariadb) -> None:
        """Follow the primary from its newest event on; writes by others are refused."""
        primary.do(
            f"CREATE USER IF NOT EXISTS 'copy'@'%' IDENTIFIED BY '{PASSWORD}'",
            "GRANT REPLICATION SLAVE ON *.* TO 'copy'@'%'",
        )
        file, position = primary.position()
        source = {
            "HOST": "'127.0.0.1'",
            "PORT": primary.port,
            "USER": "'copy'",
            "PASSWORD": f"'{PASSWORD}'",
            "CONNECT_RETRY": 1,
            "LOG_FILE": f"'{file}'",
            "LOG_POS": position,
        }
        # MySQL 8.4 knows the old words no more, MariaDB has no others.
        to, word = ("MASTER", "MASTER") if self.is_mariadb else ("REPLICATION SOURCE", "SOURCE")
        values = [f"{word}_{name}={value}" for name, value in source.items()]
        if not self.is_mariadb:
            values.append("GET_SOURCE_PUBLIC_KEY=1")  # its passwords want that, or TLS
        self.do(f"CHANGE {to} TO {', '.join(values)}")
        self.start_replica()
        self.set_readonly(True)

    def start_replica(self) -> None:
        self.do("START SLAVE" if self.is_mariadb else "START REPLICA")

    def stop_replica(self) -> None:
        self.do("STOP SLAVE" if self.is_mariadb else "STOP REPLICA")

    def position(self) -> tuple[str, int]:
        """How far its binary log has come: file and byte."""
        statement = "SHOW MASTER STATUS" if self.is_mariadb else "SHOW BINARY LOG STATUS"
        ((file, position, *_),) = self.do(statement)
        return str(file), int(position)

    def catch_up(self, primary: Mariadb, timeout_s: float = 30.0) -> None:
        """Wait until everything that the primary has logged is applied here."""
        file, position = primary.position()
        word = "MASTER" if self.is_mariadb else "SOURCE"
        select = f"SELECT {word}_POS_WAIT('{file}', {position}, {timeout_s:.0f})"
        ((result,),) = self.do(select)
        if result is None or result < 0:
            raise MariadbFailed(f"the replica did not catch up: {result}")


@contextlib.contextmanager
def mariadb(*options: str, server_id: int = 1, durable: bool = False) -> Iterator[Mariadb]:
    """A server with an own user; it and its folder are gone after the block."""
    binary = find_server()
    if binary is None:
        raise MariadbFailed(
            "no mariadbd or mysqld: `make test` installs it, or `apt install mariadb-server`"
        )
    place = None if durable else _memory()
    with tempfile.TemporaryDirectory(prefix="zcrawl-db-", dir=place) as temporary:
        folder = Path(temporary)
        server = Mariadb(binary, folder, _free_port(), server_id, options)
        server.is_mariadb = is_mariadb(binary)
        if not durable:
            server.options = (*FAST, *(FAST_MARIADB if server.is_mariadb else ()), *options)
        _install(server)
        try:
            server.start()
            server.grant()
            yield server
        finally:
            server.stop(kill=True)  # nobody needs its data any more


def _install(server: Mariadb) -> None:
    """Fill the data folder, as the server's own script does it."""
    data = server.folder / "data"
    user = pwd.getpwuid(os.geteuid()).pw_name
    if server.is_mariadb:
        script = shutil.which("mariadb-install-db", path=_PATH) or "mysql_install_db"
        # fmt: off
        command = [
            script, "--no-defaults", f"--datadir={data}", f"--user={user}", "--skip-test-db",
            f"--tmpdir={server.folder}",
            "--auth-root-authentication-method=normal", "--innodb-log-file-size=32M",
        ]
        # fmt: on
    else:
        # fmt: off
        command = [
            server.binary, "--no-defaults", "--initialize-insecure", f"--datadir={data}",
            f"--user={user}", "--secure-file-priv=", f"--tmpdir={server.folder}",
        ]
        # fmt: on
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode != 0:
        raise MariadbFailed(f"{command[0]} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def _memory() -> str | None:
    """A folder in memory, if there is one with room: making tables is four times as fast there."""
    shared = "/dev/shm"
    with contextlib.suppress(OSError):
        if shutil.disk_usage(shared).free > MEMORY_BYTES and os.access(shared, os.W_OK):
            return shared
    return None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
