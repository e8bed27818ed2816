"""Keys with roles on a whole cluster: who may watch sees everything and changes nothing.

Real masters, followers included, on a real Consul and a real MariaDB, with encrypted sockets; the
keys are made and listed by the commands of the documentation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import command, wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.errors import RefusedError, UnreachableError, ZcrawlError
from zcrawl.master import rights
from zcrawl.roles import cluster as roles
from zcrawl.roles.client import MeshClient
from zcrawl.submit.spec import Politeness

SLOW = Politeness(rate=1.0, concurrency=1, robots=False)
REFUSED_S = 4.0
ARGUMENTS: dict[str, Any] = {"ref": "site", "node": "w1", "run": 1}  # enough for any read
CHANGES: dict[str, dict[str, Any]] = {
    "submit": {"spec": {"name": "other"}, "mode": "new", "seeds": []},
    "add_seeds": {"run": 1, "seeds": [], "last": True},
    "act": {"ref": "site", "action": "cancel"},
    "tune": {"ref": "site", "rate": 50},
    "reassign": {"host": "1", "node": "w1"},
    "drain": {"node": "w1"},
    "step_down": {"epoch": 1},
}


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
            found = {one.master: one.control for one in await roles.find_masters(config)}
            keys = roles.client_keys(config)
            async with MeshClient([found[master]], keys=keys, give_up_s=REFUSED_S) as client:
                for op, args in questions.items():
                    try:
                        answers.append((op, await client.ask(op, args)))
                    except ZcrawlError as error:  # told to whoever asked
                        answers.append((op, error))
            return answers

        return asyncio.run(ask())

    def mine(self, who: str) -> dict[str, Any]:
        return {"mesh.key_file": str(self.folder / f"{who}.key")}


@contextlib.contextmanager
def keyed(folder: Path, consul: ConsulServer, mysql: Mariadb) -> Iterator[Keyed]:
    """Two masters and a worker; ann may watch, bob may all, eve is on no list."""
    publics = {}
    for name in ("masters", "w1", "ann", "bob", "eve"):
        done = command("keys", "new", folder / f"{name}.key", cwd=folder)
        assert done.returncode == 0, done.stderr
        publics[name] = done.stdout.strip()
    for name, more in (("w1", ()), ("bob", ()), ("ann", ("--watch",))):
        listed = ("--name", name, "--file", folder / "allowed")
        done = command("keys", "allow", publics[name], *listed, *more, cwd=folder)
        assert done.returncode == 0, done.stderr
    with cluster(folder, consul.url, mysql, masters=0, workers=0) as made:
        made.values["mesh.server_key"] = publics["masters"]
        one = Keyed(made, folder, publics)
        made.config = made.write_config("bob", one.mine("bob"))[1]
        for name in ("ann", "eve"):
            made.write_config(name, one.mine(name))
        allowed = str(folder / "allowed")
        for name in ("m1", "m2"):
            made.add_master(name, mesh__allow_file=allowed, **one.mine("masters"))
        made.add_worker("w1", **one.mine("w1"))
        made.wait_ready(1)
        yield one


def test_who_may_watch_sees_everything_and_changes_nothing(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """By the leader and by a follower that forwards; a refusal names the key and what it lacks.
    Who may all is let do it, and one who is removed or unknown is told what to do."""
    with page_site(tmp_path, 200) as site, keyed(tmp_path, consul, mysql) as one:
        made = one.made
        _, run = made.submit(site, SLOW)
        leader = made.leader().name
        follower = next(name for name in made.masters if name != leader)
        epoch = made.epoch()

        _watches(one, leader, follower)
        for master in (leader, follower):
            assert CHANGES.keys() & rights.READS == set()
            for op, answer in one.ask_all("ann", master, CHANGES):
                assert isinstance(answer, RefusedError), (master, op)
                assert answer.code == "forbidden", (master, op)
                assert "the key of ann may only watch" in str(answer)
        _commands_are_refused(one)
        assert (made.counters(run)["state"], made.epoch()) == ("running", epoch)
        assert [row["name"] for row in made.ask("jobs", {})["jobs"]] == ["site"]
        (worker,) = made.ask("nodes", {})["workers"]
        assert worker["state"] != "draining"

        assert one.ask("bob", follower, "role", {}) == {"role": ""}
        paused = one.ask("bob", follower, "act", {"ref": "site", "action": "pause"})
        assert (paused["state"], paused["changed"]) == ("paused", 1)
        code, text, _ = one.run("ann", "job", "site", "--json")
        last = json.loads(text)["last_actions"]
        assert code == 0 and [(row["what"], row["via"]) for row in last] == [
            ("pause", follower),
            ("submit new", last[1]["via"]),
        ]
        _strangers(one, leader, follower)


def _watches(one: Keyed, leader: str, follower: str) -> None:
    for master in (leader, follower):
        assert one.ask("ann", master, "role", {}) == {"role": "watch"}
        reads = dict.fromkeys(sorted(rights.READS - {"role"}), ARGUMENTS)
        for op, answer in one.ask_all("ann", master, reads):
            assert isinstance(answer, dict), (master, op, answer)
    for args in (("jobs",), ("job", "site"), ("nodes",)):
        code, text, errors = one.run("ann", *args, "--json")
        assert code == 0 and json.loads(text), errors
    code, text, errors = one.run("ann", "console", "--snapshot")
    assert code == 0 and leader in text and "site" in text, errors


def _commands_are_refused(one: Keyed) -> None:
    """Every command that would change something."""
    (one.folder / "job.toml").write_text('name = "mine"\nseeds = ["http://127.0.0.1:9/"]\n')
    for args in (
        *((action, "site") for action in ("pause", "resume", "cancel", "retry", "delete")),
        ("tune", "site", "--rate", 50),
        ("drain", "w1"),
        ("reassign", "http://127.0.0.1:9", "w1"),
        ("step-down",),
        ("submit", "job.toml"),
    ):
        code, _, errors = one.run("ann", *args)
        assert code == 1 and "[forbidden]" in errors, (args, errors)
        assert "the key of ann may only watch" in errors, (args, errors)


def _strangers(one: Keyed, leader: str, follower: str) -> None:
    """Whom no list names, and who is taken off it while the masters run."""
    masters = [one.made.masters[name] for name in (leader, follower)]

    def is_refused(who: str, master: str) -> str:
        with pytest.raises(UnreachableError) as refused:
            one.ask(who, master, "jobs", {})
        return str(refused.value)

    for master in (leader, follower):
        text = is_refused("eve", master)
        assert "do not allow this key" in text and "zcrawl keys allow" in text, text
        assert one.publics["eve"] in text
    read_before = [node.text().count("allow_list_read") for node in masters]
    lines = (one.folder / "allowed").read_text().splitlines(keepends=True)
    (one.folder / "allowed").write_text("".join(line for line in lines if " ann " not in line))
    wait_until(
        lambda: all(
            node.text().count("allow_list_read") > n
            for node, n in zip(masters, read_before, strict=True)
        )
    )
    for master in (leader, follower):
        assert one.publics["ann"] in is_refused("ann", master)
    assert one.ask("bob", follower, "jobs", {})["jobs"]
