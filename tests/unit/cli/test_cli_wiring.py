"""Commands from the command line to the cluster and back, with a cluster that the test plays."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from zcrawl.cli import output
from zcrawl.cli.commands.up import describe
from zcrawl.cli.interrupt import Interrupt
from zcrawl.cli.main import run
from zcrawl.dispatch.secret_book import Vault
from zcrawl.errors import RefusedError
from zcrawl.fetch.keyring import JobRights
from zcrawl.model.snapshot import EmbeddedSnapshot
from zcrawl.model.spec import Retention, ScheduleDefaults
from zcrawl.roles import client, embedded, offline
from zcrawl.runtime import loop, nursery

WORKER = {
    "id": "w1",
    "state": "idle",
    "slots": 32,
    "running": 0,
    "waiting": 0,
    "leases": 0,
    "rate": 0.0,
    "outbox": 0,
    "rss_bytes": 47_000_000,
    "lag_ms": 0.1,
    "heard_s_ago": 0.2,
    "pid": 11,
    "hostname": "here",
    "version": "0.1.0",
}


def row(**values: Any) -> dict[str, Any]:
    counts = {"pages": 2, "items": 2, "failed": 0, "skipped": 0, "queued": 0, "in_flight": 0}
    base = {"job": 3, "run": 7, "name": "x", "state": "completed", "reason": "", "admitted": 2}
    more = {"bytes": 10, "seconds": 1.0, "pages_per_second": 2.0, "unchanged": 0}
    return {**base, **counts, **more, **values}


def snapshot() -> EmbeddedSnapshot:
    store = {"state": "ok", "error": None, "since_s": 0.0}
    lists: dict[str, Any] = {"workers": [WORKER], "runs": [row()], "statuses": {}, "failed": {}}
    lists["mishaps"] = {"total": 0, "in_row": 0, "last": ""}
    shot = {"leader": "m1", "epoch": 5, "at": 0.0, **lists, "store": store, "counters": {}}
    return msgspec.convert(shot, EmbeddedSnapshot)


class _Forks:
    """A nursery that forks nobody and tells how many it was asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> int:
        return self.count

    def __exit__(self, *_: object) -> None: ...


def replace(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, substitute: Callable[..., Any]
) -> None:
    """Put `substitute` in the place of a name of `module`; it refuses calls that the real one would
    refuse."""
    signature = inspect.signature(getattr(module, name))

    def checked(*args: Any, **options: Any) -> Any:
        signature.bind(*args, **options)
        return substitute(*args, **options)

    monkeypatch.setattr(module, name, checked)


class World:
    """Stands for the parts that start and reach clusters; records what they are asked."""

    def __init__(self) -> None:
        self.live = False
        self.made: list[tuple[Path, int, dict[str, Any]]] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((op, args))
        match op:
            case "submit" if args["spec"]["name"] == "taken":
                raise RefusedError("a job of this name exists: 3", code="name_exists")
            case "submit":
                return {"job": 3, "run": 7}
            case "job":
                reasons: dict[str, Any] = {"failed_reasons": {}, "skipped_reasons": {}}
                return {**row(), **reasons, "runs": [row()]}
            case "act":
                return {"job": 3, "run": 7, "state": "paused", "changed": 1}
            case "nodes":
                masters = {"masters": [], "differences": [], "catalogue": "ok"}
                return {"leader": {"id": "m1", "epoch": 5}, "workers": [WORKER], **masters}
            case "drain":
                return {"node": args["node"], "state": "draining"}
        raise AssertionError(op)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = self

        class Peer:
            def __init__(self, data: Path, workers: int = -1, **options: Any) -> None:
                world.made.append((data, workers, options))

            async def __aenter__(self) -> Peer:
                return self

            async def __aexit__(self, *_: object) -> None: ...

            ask = staticmethod(world.ask)
            snapshot = staticmethod(snapshot)

            async def drain(self, timeout_s: float) -> None: ...

            async def flush_outputs(self, runs: object = ()) -> None: ...

            def follow_config(self, *_: object) -> None: ...

            def reload(self) -> None: ...

            def log(self, *_: object) -> None: ...

        class Closable:
            def close(self) -> None: ...

        # Only what starts processes or reaches out is replaced; the rest of each module is the
        # real one, and each replacement is called as the real one wants to be called.
        replace(monkeypatch, embedded, "EmbeddedCluster", Peer)
        replace(monkeypatch, client, "MeshClient", lambda controls, keys: Peer(controls[0]))
        replace(monkeypatch, client, "is_live", lambda data: world.live)
        replace(monkeypatch, client, "controls_in", lambda data: [data])
        replace(monkeypatch, offline, "open_readonly", lambda data: Closable())
        replace(monkeypatch, loop, "run_async", asyncio.run)
        replace(monkeypatch, nursery, "Nursery", lambda work, count: _Forks(count))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    made = World()
    made.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return made


def test_a_crawl_starts_a_cluster_in_the_data_folder(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the asked number of workers, pausing what others left unfinished."""
    arguments = ["crawl", "https://x/", "--workers", "2", "--rate", "0", "--depth", "3", "--json"]
    assert run(arguments) == 0
    data, workers, options = world.made[0]
    assert (data, workers) == (tmp_path / "zcrawl-data", 2)
    limits = {
        "slots": 32,
        "task_slots": 0,
        "labels": (),
        "rate": 0.0,
        "bandwidth": 0.0,
        "stuck_after": 30.0,
    }
    blobs = str(tmp_path / "zcrawl-data" / "blobs")
    rights = {"rights": JobRights(owner=True), "outputs": options["outputs"]}
    assert rights["outputs"].owner
    more = {"pause_unfinished": True, "nursery": 2, "blobs": blobs, "retention": Retention()}
    more |= {"label_limits": {}, "schedule_defaults": ScheduleDefaults()}
    more |= {"vault": Vault(private=True)}
    assert options == {**limits, **rights, **more}
    spec = world.requests[0][1]["spec"]
    assert spec["scope"]["max_depth"] == 3
    assert (spec["politeness"]["rate"], spec["politeness"]["spread"]) == (0.0, True)
    assert json.loads(capsys.readouterr().out)["pages"] == 2


def test_submit_without_a_cluster_is_exit_3(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """And tells how to start one, instead of starting one in a folder that was mistyped."""
    assert run(["submit", "https://x/"]) == 3
    assert "zcrawl up --data" in capsys.readouterr().err
    assert not world.made


def test_submit_prints_the_id_and_nothing_else_on_stdout(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ID=$(zcrawl submit …)` works, also with --wait."""
    world.live = True
    assert run(["submit", "https://x/"]) == 0
    assert capsys.readouterr().out == "3\n"
    assert run(["submit", "https://x/", "--wait"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "3\n"
    assert "2 pages" in captured.err
    assert run(["submit", "https://x/", "--wait", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "completed"


@pytest.mark.parametrize(
    ("flags", "mode"), [([], "new"), (["--update"], "update"), (["--again"], "again")]
)
def test_submit_says_what_a_known_name_means(world: World, flags: list[str], mode: str) -> None:
    """Without a flag the cluster is asked to refuse it."""
    world.live = True
    assert run(["submit", "https://x/", *flags]) == 0
    assert world.requests[0][1]["mode"] == mode


def test_a_refusal_reaches_the_user_with_its_code(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, and the id of the job that has the name."""
    world.live = True
    assert run(["submit", "https://x/", "--name", "taken", "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == {"code": "name_exists", "message": "a job of this name exists: 3"}


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "delete", "retry"])
@pytest.mark.parametrize("live", [True, False])
def test_actions_reach_the_running_cluster_or_one_of_their_own(
    world: World, action: str, live: bool
) -> None:
    """Without a running cluster a master without workers does it."""
    world.live = live
    assert run([action, "x"]) == 0
    assert world.requests == [("act", {"ref": "x", "action": action})]
    assert [workers for _, workers, _ in world.made] == [-1 if live else 0]


@pytest.mark.parametrize(
    ("flags", "sent"),
    [([], {"ref": "3", "runs": [7]}), (["--run", "7"], {"ref": "3", "run": 7})],
)
def test_a_deletion_is_confirmed_on_a_terminal_and_names_the_runs_that_were_shown(
    world: World,
    flags: list[str],
    sent: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Anything but a yes deletes nothing, exit 1. The question names job, run, state and loss."""
    world.live = True
    monkeypatch.setattr(output, "can_confirm", lambda: True)
    for typed in ("\n", "n\n", "", "yy\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert run(["delete", "x", *flags]) == 1
        assert [op for op, _ in world.requests] == ["job"]
        world.requests.clear()
    question = capsys.readouterr().err
    assert "job 3 x" in question
    assert "run 7 completed" in question
    assert "2 pages and 2 items" in question
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert run(["delete", "x", *flags]) == 0
    assert world.requests[-1] == ("act", {"action": "delete", **sent})


@pytest.mark.parametrize("flags", [["--yes"], ["--json"]])
def test_a_deletion_asks_nothing_where_nobody_can_or_wants_to_answer(
    world: World, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--json` is for programs."""
    world.live = True
    monkeypatch.setattr(output, "can_confirm", lambda: True)
    assert run(["delete", "x", *flags]) == 0
    assert world.requests == [("act", {"ref": "x", "action": "delete"})]


def test_nodes_and_drain_need_a_running_cluster(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The database does not store which nodes are alive: exit 3 without a cluster."""
    assert run(["nodes"]) == 3
    assert run(["drain", "w1"]) == 3
    world.live = True
    capsys.readouterr()
    assert run(["nodes"]) == 0
    assert "w1" in capsys.readouterr().out
    assert run(["drain", "w1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"node": "w1", "state": "draining"}


def test_up_stays_until_it_is_told_to_stop(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells what runs where; SIGTERM ends it in an orderly way, exit 0."""
    waiting = Interrupt.__enter__

    def stop_soon(interrupt: Interrupt) -> Interrupt:
        waiting(interrupt)
        os.kill(os.getpid(), signal.SIGTERM)
        return interrupt

    monkeypatch.setattr(Interrupt, "__enter__", stop_soon)
    assert run(["up", "--workers", "1"]) == 0
    messages = capsys.readouterr().err
    assert "leader m1" in messages
    assert "finishing 0 requests" in messages


def test_up_tells_leader_workers_runs_and_the_next_step() -> None:
    """All that somebody needs who has just started it."""
    lines = describe(snapshot(), "/a b")
    assert lines[0] == "leader m1, epoch 5, data in /a b"
    assert lines[1] == "worker w1: idle, pid 11, 32 slots"
    assert "zcrawl submit URL --data '/a b'" in lines[-1]


def test_the_second_interrupt_ends_at_once_and_still_says_how_to_go_on() -> None:
    """Exit 130, whatever the loop is doing."""
    code = (
        "import asyncio\nfrom zcrawl.cli.interrupt import Interrupt\n"
        "async def main():\n"
        "    with Interrupt(lambda: 'go on with: this') as interrupt:\n"
        "        interrupt.press(); assert interrupt.requested.is_set()\n"
        "        interrupt.press(); print('never')\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "go on with: this\n")
