"""A cluster with keys for tests: a worker, a viewer, an operator, and one who is on no list.

The keys are made and listed by the commands of the documentation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.contract.border_tools import RawPeer
from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import command
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from zcrawl.errors import ZcrawlError
from zcrawl.roles import cluster as roles
from zcrawl.roles.client import MeshClient

REFUSED_S = 4.0


class Keyed:
    """A cluster with keys, and a configuration for each person."""

    def __init__(self, made: Cluster, folder: Path, publics: dict[str, str]) -> None:
        self.made, self.folder, self.publics = made, folder, publics

    def run(self, who: str, *args: object) -> tuple[int, str, str]:
        done = command(*args, "--config", self.folder / f"{who}.toml", cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def ask(self, who: str, master: str, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """Of this very master."""
        ((_, answer),) = self.ask_all(who, master, {op: args})
        if isinstance(answer, ZcrawlError):
            raise answer
        return answer

    def ask_all(
        self, who: str, master: str, questions: Mapping[str, dict[str, Any]]
    ) -> list[tuple[str, dict[str, Any] | ZcrawlError]]:
        """One after the other over one line; each with its answer, or the error."""

        async def ask() -> list[tuple[str, dict[str, Any] | ZcrawlError]]:
            answers: list[tuple[str, dict[str, Any] | ZcrawlError]] = []
            config = self.made.write_config(who, self.mine(who))[1]
            controls = {
                endpoints.master: endpoints.control
                for endpoints in await roles.find_masters(config)
            }
            keys = roles.client_keys(config)
            async with MeshClient([controls[master]], keys=keys, give_up_s=REFUSED_S) as client:
                for op, args in questions.items():
                    try:
                        answers.append((op, await client.ask(op, args)))
                    except ZcrawlError as error:  # told to whoever asked
                        answers.append((op, error))
            return answers

        return asyncio.run(ask())

    def raw(self, who: str, master: str) -> RawPeer:
        """Sockets with this one's key that send whatever the test wants."""
        config = self.made.write_config(who, self.mine(who))[1]
        masters = {
            endpoints.master: endpoints for endpoints in asyncio.run(roles.find_masters(config))
        }
        return RawPeer(who, roles.client_keys(config), masters[master])

    def mine(self, who: str) -> dict[str, Any]:
        return {"mesh.key_file": str(self.folder / f"{who}.key")}


@contextlib.contextmanager
def keyed(folder: Path, consul: ConsulServer, mysql: Mariadb, **changes: Any) -> Iterator[Keyed]:
    """Two masters and the worker w1; ann is a viewer, bob an operator, eve is on no list.
    `changes`: other values in everybody's configuration."""
    publics = {}
    for name in ("masters", "w1", "ann", "bob", "eve"):
        done = command("keys", "new", folder / f"{name}.key", cwd=folder)
        assert done.returncode == 0, done.stderr
        publics[name] = done.stdout.strip()
    for name, role in (("w1", "worker"), ("bob", "operator"), ("ann", "viewer")):
        listed = ("--name", name, "--role", role, "--file", folder / "allowed")
        done = command("keys", "allow", publics[name], *listed, cwd=folder)
        assert done.returncode == 0, done.stderr
    with cluster(folder, consul.url, mysql, masters=0, workers=0, **changes) as made:
        made.values["mesh.server_key"] = publics["masters"]
        keyed_cluster = Keyed(made, folder, publics)
        made.config = made.write_config("bob", keyed_cluster.mine("bob"))[1]
        for name in ("ann", "eve", "w1"):
            made.write_config(name, keyed_cluster.mine(name))
        allowed = str(folder / "allowed")
        for name in ("m1", "m2"):
            made.add_master(name, mesh__allow_file=allowed, **keyed_cluster.mine("masters"))
        made.add_worker("w1", **keyed_cluster.mine("w1"))
        made.wait_ready(1)
        yield keyed_cluster
