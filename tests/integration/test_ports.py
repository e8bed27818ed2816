"""The table of ports in docs/security.md is what really listens, process by process.

A cluster (Consul, MariaDB, a master, a worker) and `zcrawl up`, each with a crawl that has run; the
kernel says which sockets their processes and all children of these listen on.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
from pathlib import Path

from tests.integration.cluster import cluster
from tests.integration.crawling import ZCRAWL, children, command, wait_until
from tests.servers.consul import ConsulServer, free_ports
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.config import resolve

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
LISTEN = "0A"
KEYS = ("mesh.control_port", "mesh.reports_port", "mesh.events_port")


def documented() -> dict[str, dict[str, str]]:
    """process → key of the configuration that has the port → default, from the table."""
    table: dict[str, dict[str, str]] = {}
    rows = PAGE.read_text().partition("## Ports")[2].partition("\n## ")[0].splitlines()
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if not row.startswith("| `"):
            continue
        ports = table.setdefault(cells[0].strip("`"), {})
        if cells[1] != "none":
            key, port = cells[2].strip("`"), cells[1].removeprefix("TCP ")
            ports[key] = port
    return table


def tree(pid: int) -> set[int]:
    """A process and everything that it has started."""
    return {pid, *(below for child in children(pid) for below in tree(child))}


def inodes(pids: set[int]) -> set[str]:
    """The sockets that these processes hold."""
    held = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
            except FileNotFoundError:  # closed meanwhile
                continue
            if match:
                held.add(match[1])
    return held


def listeners(pids: set[int]) -> set[tuple[str, int]]:
    """Address and port of each TCP socket of these processes that listens, and of each UDP socket
    that takes datagrams from anybody."""
    mine, open_places = inodes(pids), set()
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            listens = words[3] == LISTEN if kind.startswith("tcp") else words[2].endswith(":0000")
            if listens and words[9] in mine:
                address, port = words[1].split(":")
                open_places.add((_text(address), int(port, 16)))
    return open_places


def _text(address: str) -> str:
    """The kernel writes words in the machine's own order."""
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)


def test_the_defaults_in_the_table_are_those_of_the_configuration() -> None:
    """A port that is changed in the code must be changed in firewalls, too."""
    config = resolve(None, "", {}).config
    assert documented()["zcrawl master"] == {
        key: str(getattr(config.mesh, key.partition(".")[2])) for key in KEYS
    }


def test_the_processes_of_a_cluster_listen_where_the_table_says_and_nowhere_else(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """A master has its three ports, on the address of mesh.bind only; a worker has none, not in its
    supervising process and not in its children, while it crawls."""
    table = documented()
    chosen = dict(zip(KEYS, free_ports().values(), strict=False))
    changes = {key.replace(".", "__"): port for key, port in chosen.items()}
    with (
        page_site(tmp_path, 60) as site,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=1, **changes) as made,
    ):
        _, run = made.submit(site)
        made.wait_pages(run, 10)
        ports = {chosen[key] for key in table["zcrawl master"]}
        assert len(ports) == 3
        assert listeners(tree(made.masters["m1"].pid)) == {("127.0.0.1", port) for port in ports}
        assert table["zcrawl worker"] == {}
        processes = tree(made.workers["w1"].pid)
        assert len(processes) >= 2
        assert listeners(processes) == set()
        made.complete(run)
        assert listeners(tree(made.workers["w1"].pid)) == set()


def test_up_listens_on_no_port(tmp_path: Path) -> None:
    """Its masters, workers and clients meet on Unix sockets in a folder of mode 700."""
    process = subprocess.Popen(
        [*ZCRAWL, "up", "--workers", "2", "--data", "data"], cwd=tmp_path, stderr=subprocess.PIPE
    )
    try:
        mesh = tmp_path / "data" / "mesh.json"
        wait_until(mesh.exists, 30)
        wait_until(lambda: len(tree(process.pid)) >= 3, 30)
        assert command("jobs", "--data", "data", cwd=tmp_path).returncode == 0
        assert documented()["zcrawl up"] == {}
        assert listeners(tree(process.pid)) == set()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=40)
    assert process.returncode == 0


def test_a_listening_socket_is_seen() -> None:
    """The tests above would hold for a search that sees nothing: it sees one of this process, over
    both protocols, and none that is connected."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as sixth,
        socket.create_connection(server.getsockname()) as client,
    ):
        seen = listeners({os.getpid()})
        assert {server.getsockname()[:2], sixth.getsockname()[:2]} <= seen
        assert client.getsockname()[:2] not in seen
