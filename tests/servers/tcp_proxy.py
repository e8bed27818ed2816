"""A TCP proxy on a free loopback port whose links can fail in every way that a network has.

Between any client and any server of the tests: `cut` (reset what is open), `stall` (half open:
nothing arrives, nobody is told), `drop_one_way`, `refuse` (nobody listens), and `cut_at`, which
waits for given bytes of the client. Threads, so that it serves blocking and asyncio clients alike.
Bytes that are held arrive after `resume`, as TCP would send them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Literal

Direction = Literal["up", "down"]  # up: from the client to the server
POLL_S = 0.05
CHUNK = 65_536


@dataclasses.dataclass(eq=False)
class _Pair:
    client: socket.socket
    server: socket.socket

    def reset(self) -> None:
        """RST in both directions: no orderly goodbye."""
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


@dataclasses.dataclass
class _Trap:
    pattern: bytes
    applied: bool  # the server gets the bytes; only its answer is lost
    sprung: threading.Event = dataclasses.field(default_factory=threading.Event)
    pair: _Pair | None = None


class TcpProxy:
    def __init__(self, target: tuple[str, int], listen: str = "127.0.0.1") -> None:
        self.target = target
        self.host = listen
        self.connections = 0  # accepted so far
        self._open = {"up": threading.Event(), "down": threading.Event()}
        self._closed = threading.Event()
        self._pairs: set[_Pair] = set()
        self._trap: _Trap | None = None
        self._lock = threading.Lock()
        self._listener: socket.socket | None = socket.create_server((listen, 0))
        self.port: int = self._listener.getsockname()[1]
        self.resume()
        self._threads: list[threading.Thread] = []
        self._run(self._accept, self._listener)

    # ------------------------------------------------------------ faults

    def cut(self) -> None:
        """Reset every open connection; new ones are taken."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.reset()

    def stall(self) -> None:
        """Stop all bytes in both directions without closing; new connections stall too."""
        self._open["up"].clear()
        self._open["down"].clear()

    def drop_one_way(self, direction: Direction) -> None:
        self._open[direction].clear()

    def resume(self) -> None:
        self._open["up"].set()
        self._open["down"].set()

    def refuse(self) -> None:
        """Nobody listens on the port; what is open is reset."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            listener.close()
        self.cut()

    def accept_again(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port))
            self._run(self._accept, self._listener)

    def cut_at(self, pattern: bytes, *, applied: bool) -> threading.Event:
        """Cut the connection on which the client next sends `pattern`: before the server gets it,
        or after the server answered. The event tells that it happened."""
        self._trap = _Trap(pattern, applied)
        return self._trap.sprung

    def close(self) -> None:
        self._closed.set()
        self.resume()
        self.refuse()
        for thread in self._threads:
            thread.join(5.0)

    # ------------------------------------------------------------ threads

    def _run(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # refuse() closed it
            try:
                server = socket.create_connection(self.target, 5.0)
            except OSError:
                client.close()  # as a machine whose port is closed
                continue
            server.settimeout(None)
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(client, server)
            with self._lock:
                self.connections += 1
                self._pairs.add(pair)
            self._run(self._pump, pair, "up")
            self._run(self._pump, pair, "down")

    def _pump(self, pair: _Pair, direction: Direction) -> None:
        source, sink = (
            (pair.client, pair.server) if direction == "up" else (pair.server, pair.client)
        )
        try:
            while data := source.recv(CHUNK):
                while not self._open[direction].wait(POLL_S):
                    if pair not in self._pairs:
                        return
                if self._trapped(pair, direction, data):
                    return
                sink.sendall(data)
            self._end(pair)
        except OSError:
            self._end(pair)

    def _trapped(self, pair: _Pair, direction: Direction, data: bytes) -> bool:
        """Whether the connection was cut here."""
        trap = self._trap
        if trap is None or trap.sprung.is_set():
            return False
        if direction == "up" and trap.pattern in data:
            if trap.applied:
                trap.pair = pair
                return False
        elif not (direction == "down" and trap.pair is pair):
            return False
        trap.sprung.set()
        self._end(pair)
        return True

    def _end(self, pair: _Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)
        pair.reset()


@contextlib.contextmanager
def tcp_proxy(port: int, host: str = "127.0.0.1", listen: str = "127.0.0.1") -> Iterator[TcpProxy]:
    proxy = TcpProxy((host, port), listen)
    try:
        yield proxy
    finally:
        proxy.close()
