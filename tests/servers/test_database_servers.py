"""The database server and the fault proxy of the tests are right themselves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.servers import mariadb as mariadb_module
from tests.servers.mariadb import MariadbFailed, mariadb
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy


class Echo:
    """Answers every chunk with itself, and remembers what it got."""

    def __init__(self) -> None:
        self.got = b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(1024):
                    self.got += data
                    client.sendall(data)
            except OSError:
                return


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.listener.shutdown(socket.SHUT_RDWR)
    echo.listener.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[TcpProxy]:
    with tcp_proxy(echo.port) as proxy:
        yield proxy


def client(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0)


def test_the_proxy_passes_bytes_on(proxy: TcpProxy) -> None:
    """Without a fault it is not there."""
    with client(proxy) as connection:
        connection.sendall(b"hello")
        assert connection.recv(9) == b"hello"


def test_a_cut_resets_what_is_open_and_takes_new_ones(proxy: TcpProxy) -> None:
    """The client hears of it at once."""
    with client(proxy) as connection, client(proxy) as two:
        connection.sendall(b"a")
        assert connection.recv(9) == b"a"
        two.sendall(b"b")
        assert two.recv(9) == b"b"
        proxy.cut()
        for side in (connection, two):
            with pytest.raises(OSError):
                if side.recv(9) == b"":
                    raise ConnectionResetError
    with client(proxy) as connection:
        connection.sendall(b"c")
        assert connection.recv(9) == b"c"


@pytest.mark.parametrize("way", ["both", "up", "down"])
def test_a_stall_keeps_bytes_and_resume_delivers_them(
    proxy: TcpProxy, echo: Echo, way: str
) -> None:
    """One way: the server got it and its answer is held, or the other way round."""
    with client(proxy) as connection:
        connection.sendall(b"a")
        assert connection.recv(9) == b"a"
        if way == "both":
            proxy.stall()
        else:
            proxy.drop_one_way("up" if way == "up" else "down")
        connection.sendall(b"b")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(9)
        assert echo.got == (b"ab" if way == "down" else b"a")
        proxy.resume()
        connection.settimeout(5.0)
        assert connection.recv(9) == b"b"


def test_a_refused_port_has_no_listener_until_it_accepts_again(proxy: TcpProxy) -> None:
    """The same port comes back."""
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        client(proxy)
    proxy.accept_again()
    with client(proxy) as connection:
        connection.sendall(b"a")
        assert connection.recv(9) == b"a"


@pytest.mark.parametrize("applied", [False, True])
def test_a_trap_cuts_before_or_after_the_server_has_it(
    proxy: TcpProxy, echo: Echo, applied: bool
) -> None:
    """The client sees the same; only the server knows."""
    sprung = proxy.cut_at(b"NOW", applied=applied)
    with client(proxy) as connection:
        connection.sendall(b"not yet")
        assert connection.recv(9) == b"not yet"
        connection.sendall(b"NOW")
        with pytest.raises(OSError):
            if connection.recv(9) == b"":
                raise ConnectionResetError
    assert sprung.wait(5.0)
    assert echo.got == (b"not yetNOW" if applied else b"not yet")


def test_a_machine_without_a_database_fails_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the remedy."""
    monkeypatch.setattr(mariadb_module, "find_server", lambda: None)
    with pytest.raises(MariadbFailed, match="apt install"), mariadb():
        pass


def test_a_server_that_cannot_start_tells_its_complaint() -> None:
    """Its own log, not a timeout."""
    if mariadb_module.find_server() is None:
        pytest.skip("no mariadbd or mysqld: `make test` installs it")
    with pytest.raises(MariadbFailed, match="no-such-option"), mariadb("--no-such-option=1"):
        pass
