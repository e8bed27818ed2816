"""Keys with roles on a whole cluster: who may watch sees everything and changes nothing.

Real masters, followers included, on a real Consul and a real MariaDB, with encrypted sockets; the
keys are made and listed by the commands of the documentation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import wait_until
from tests.integration.keyed import Keyed, keyed
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from zcrawl.errors import RefusedError, UnreachableError
from zcrawl.master import rights
from zcrawl.submit.spec import Politeness

SLOW = Politeness(rate=1.0, concurrency=1, robots=False)
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
