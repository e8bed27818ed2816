"""Who may point a cluster at private addresses: real masters that other machines could reach.

Encrypted sockets on all addresses of the machine, keys with roles, commands of people who are
elsewhere. The site is on loopback, which is as private as can be.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.keyed import Keyed, keyed
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.web.server import WebThread

OUTSIDE: dict[str, Any] = {"mesh__bind": "0.0.0.0", "mesh__advertise": "127.0.0.1"}
BLOCKED = "blocked_address: loopback (127.0.0.1)"
JOB = """
name = "{name}"
seeds = ["{seed}"]
[politeness]
rate = 0
[fetch]
retries = 0
{fetch}
"""


def submit(cluster: Keyed, who: str, name: str, seed: str, fetch: str = "", *more: str) -> Any:
    """The exit code, the answer, and the code of the refusal."""
    (cluster.folder / f"{name}.toml").write_text(JOB.format(name=name, seed=seed, fetch=fetch))
    code, text, errors = cluster.run(who, "submit", f"{name}.toml", "--wait", "--json", *more)
    assert text, errors
    answer = json.loads(text.splitlines()[-1])
    return code, answer, answer.get("error", {}).get("code")


def reasons(cluster: Keyed, name: str) -> tuple[int, dict[str, int]]:
    """Pages of the job's last run, and why others failed."""
    view = cluster.made.ask("job", {"ref": name})
    return view["pages"], view["failed_reasons"]


def restart(cluster: Keyed, *, allow_private: bool) -> None:
    """All masters, with or without the right."""
    made = cluster.made
    made.values["cluster.allow_private"] = allow_private
    for node in made.masters.values():
        node.stop()
    for name in list(made.masters):
        allowed = str(cluster.folder / "allowed")
        made.add_master(name, mesh__allow_file=allowed, **cluster.mine("masters"))
    made.wait_ready(1)


def test_a_job_reaches_private_addresses_only_where_its_masters_say_so(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Without their word a job that asks is refused, by name, whoever submits it and whichever way
    it asks; a typed URL opens nothing, and the server sees no connection. With it a typed URL opens
    nothing either; jobs that ask crawl, except for those who may only watch. When it is taken back,
    a job that was submitted meanwhile opens nothing when it runs again."""
    away = {"cluster__allow_private": False, **OUTSIDE}
    with WebThread() as web, keyed(tmp_path, consul, mysql, **away) as cluster:
        seed = web.url("/good/3/0")
        asking = {
            "all": "allow_private = true",
            "one": f'private_hosts = ["127.0.0.1:{web.port}"]',
        }
        for name, fetch in asking.items():
            code, _, why = submit(cluster, "bob", name, seed, fetch)
            assert (code, why) == (1, "private_not_allowed")
        code, _, why = submit(cluster, "bob", "flag", seed, "", "--allow-private")
        assert (code, why) == (1, "private_not_allowed")
        assert cluster.made.ask("jobs", {})["jobs"] == []
        submit(cluster, "bob", "typed", seed)
        assert reasons(cluster, "typed") == (0, {BLOCKED: 1})
        assert web.connections == 0

        restart(cluster, allow_private=True)
        submit(cluster, "bob", "typed there", seed)
        assert reasons(cluster, "typed there") == (0, {BLOCKED: 1})
        assert web.connections == 0
        for name, fetch in asking.items():
            code, _, why = submit(cluster, "ann", name, seed, fetch)
            assert (code, why) == (1, "forbidden")
            assert web.hits("/good/3/0") == (name == "one")
            code, summary, _ = submit(cluster, "bob", name, seed, fetch)
            assert (code, summary["pages"]) == (0, 3)

        restart(cluster, allow_private=False)
        before = len(web.log)
        for name in asking:
            code, _, why = submit(cluster, "bob", name, seed, "", "--again")
            assert (code, why) == (1, "private_not_allowed"), "the stored job asks for it"
        assert len(web.log) == before
