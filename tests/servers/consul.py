"""Real Consul servers in temporary folders on free loopback ports: one, or a cluster of three.

They can be stopped, killed, paused, started again and robbed of their data. Taken from PATH, else
from the cache that `install_consul.sh` fills. Without one tests are skipped, but not in CI.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.certificates import Certificates

INSTALL = Path(__file__).with_name("install_consul.sh")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
ADMIN_TOKEN = "00000000-1111-2222-3333-444444444444"
LOOPBACK = "127.0.0.1"
# All nodes of all tests come from one address; those that were killed count on for a while.
MAX_CONNECTIONS = 4000
PORTS = ("http", "https", "server", "serf_lan", "serf_wan")
CERTIFICATE = (
    "openssl req -x509 -nodes -days 2 -subj /CN=localhost -newkey ec"
    " -pkeyopt ec_paramgen_curve:prime256v1 -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
)

POLICY = """
service_prefix "zcrawl-" { policy = "write" }
key_prefix "zcrawl/" { policy = "write" }
session_prefix "" { policy = "write" }
node_prefix "" { policy = "read" }
"""


class ConsulFailed(RuntimeError):
    """Consul did not start or does not answer. Tests fail with it."""


@functools.cache
def consul_binary() -> str:
    """The path of a Consul, installed if need be; skips the test without one (fails in CI)."""
    done = subprocess.run([str(INSTALL)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout.strip()
    reason = f"no Consul: {done.stderr.strip()}"
    if os.environ.get("CI") == "true":
        raise ConsulFailed(reason)
    pytest.skip(reason)


@functools.cache
def consul_version() -> tuple[int, int]:
    words = subprocess.run([consul_binary(), "version"], capture_output=True, text=True, check=True)
    major, minor = words.stdout.split()[1].lstrip("v").split(".")[:2]
    return int(major), int(minor)


@dataclasses.dataclass
class ConsulServer:
    """One server. Its ports and its folder stay the same over restarts."""

    name: str
    folder: Path
    ports: dict[str, int]
    acl: bool = False
    mutual: Certificates | None = None  # https only, for clients with a certificate of this CA
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['http']}"

    @property
    def tls_url(self) -> str:
        return f"https://{LOOPBACK}:{self.ports['https']}"

    @property
    def ca_file(self) -> Path:
        """Signs itself, so it is its own authority."""
        return self.mutual.ca if self.mutual else self.folder / "cert.pem"

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = [consul_binary(), "agent", "-config-file", str(self.folder / "config.json")]
            if shutil.which("setpriv"):  # no orphan when the tests are killed
                command = ["setpriv", "--pdeathsig", "KILL", *command]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait_ready(self) -> None:
        """It knows a leader and the leader knows it: sessions can be made."""

        def ready() -> bool:
            if self.process is None or self.process.poll() is not None:
                raise ConsulFailed(f"Consul ended: {self.log()}")
            checks = self.get(f"/v1/health/node/{self.name}")
            return any(check["Status"] == "passing" for check in checks or [])

        wait_for(ready, START_TIMEOUT_S, lambda: f"Consul is not ready: {self.log()}")

    def limit_connections(self, most: int) -> None:
        """From one address, after its next start."""
        path = self.folder / "config.json"
        config = json.loads(path.read_text())
        config["limits"]["http_max_conns_per_client"] = most
        path.write_text(json.dumps(config))

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()
        self.wait_ready()

    def wipe(self) -> None:
        """Only when stopped."""
        assert self.process is None
        shutil.rmtree(self.folder / "data")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # ------------------------------------------------------------ its HTTP interface, by hand

    def get(self, path: str) -> Any:
        """None while it does not answer as it should."""
        return self._call("GET", path, None)

    def put(self, path: str, body: object = None) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
        return self._call("PUT", path, data)

    def _call(self, method: str, path: str, data: bytes | None) -> Any:
        url = self.tls_url if self.mutual else self.url
        request = urllib.request.Request(url + path, data, method=method)
        if self.acl:
            request.add_header("X-Consul-Token", ADMIN_TOKEN)
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._context()) as answer:
                return json.loads(answer.read() or b"null")
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def _context(self) -> ssl.SSLContext | None:
        if self.mutual is None:
            return None
        context = ssl.create_default_context(cafile=self.mutual.ca)
        context.load_cert_chain(self.mutual.client_cert, self.mutual.client_key)
        return context

    def make_token(self, rules: str = POLICY) -> str:
        """A token with these rules and no others."""
        name = f"policy-{random.randrange(1 << 40)}"
        assert self.put("/v1/acl/policy", {"Name": name, "Rules": rules}) is not None
        return str(self.put("/v1/acl/token", {"Policies": [{"Name": name}]})["SecretID"])


@contextlib.contextmanager
def consul_server(acl: bool = False, mutual: Certificates | None = None) -> Iterator[ConsulServer]:
    """One server, ready; with the UI, and with data that survives a restart."""
    with consul_cluster(1, acl=acl, mutual=mutual) as servers:
        yield servers[0]


@contextlib.contextmanager
def consul_cluster(
    size: int = 3, acl: bool = False, mutual: Certificates | None = None
) -> Iterator[list[ConsulServer]]:
    """Servers that elect a leader among themselves, all ready."""
    consul_binary()
    with tempfile.TemporaryDirectory(prefix="zcrawl-consul-") as folder:
        servers: list[ConsulServer] = []
        try:
            servers += _started(Path(folder), size, acl, mutual)
            yield servers
        finally:
            for server in servers:
                server.kill()


def _started(folder: Path, size: int, acl: bool, mutual: Certificates | None) -> list[ConsulServer]:
    """Somebody may take a port between choosing and binding it: then others are chosen."""
    for trial in range(3):
        servers = [
            ConsulServer(f"s{n}", folder / f"{trial}-{n}", free_ports(), acl, mutual)
            for n in range(size)
        ]
        for server in servers:
            _configure(server, servers)
            server.start()
        try:
            for server in servers:
                server.wait_ready()
        except ConsulFailed:
            log = "".join(server.log() for server in servers)
            for server in servers:
                server.kill()
            if "address already in use" not in log:
                raise
            continue
        return servers
    raise ConsulFailed("no free ports")


def _configure(server: ConsulServer, servers: list[ConsulServer]) -> None:
    server.folder.mkdir()
    key, certificate = str(server.folder / "key.pem"), str(server.folder / "cert.pem")
    command = [*CERTIFICATE.split(), "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    config: dict[str, Any] = {
        "node_name": server.name,
        "server": True,
        "ui": True,
        "bootstrap_expect": len(servers),
        "data_dir": str(server.folder / "data"),
        "bind_addr": LOOPBACK,
        "client_addr": LOOPBACK,
        "ports": {**server.ports, "dns": -1, "grpc": -1},
        "cert_file": certificate,
        "key_file": key,
        "retry_join": [f"{LOOPBACK}:{peer.ports['serf_lan']}" for peer in servers],
        "retry_interval": "1s",
        "performance": {"raft_multiplier": 1},
        "disable_update_check": True,
        "limits": {"http_max_conns_per_client": MAX_CONNECTIONS},
        "log_level": "warn",
    }
    if server.mutual is not None:
        config["ports"]["http"] = -1
        config |= {
            "ca_file": str(server.mutual.ca),
            "cert_file": str(server.mutual.server_cert),
            "key_file": str(server.mutual.server_key),
            "verify_incoming_https": True,
        }
    if server.acl:
        admin = "initial_management" if consul_version() >= (1, 11) else "master"
        tokens = {admin: ADMIN_TOKEN, "agent": ADMIN_TOKEN}
        config["acl"] = {"enabled": True, "default_policy": "deny", "tokens": tokens}
    (server.folder / "config.json").write_text(json.dumps(config))


def free_ports() -> dict[str, int]:
    """Below the range from which the kernel gives ports to outgoing connections."""
    ports: list[int] = []
    while len(ports) < len(PORTS):
        port = random.SystemRandom().randrange(15_000, 32_000)
        if port not in ports and _is_free(port):
            ports.append(port)
    return dict(zip(PORTS, ports, strict=True))


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return False
    return True


def wait_for(
    condition: Callable[[], object], timeout_s: float, complaint: Callable[[], str]
) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise ConsulFailed(complaint())
        time.sleep(0.05)
