"""A master whose event loop hangs: SIGTERM ends it, `cancel --offline` goes past it, and stored
jobs that would have hung it end by name. Real processes, a real data folder.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import cluster
from tests.integration.crawling import command, start, wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import PageSite, page_site

# A zcrawl whose leader hangs inside `re`, with the interpreter's lock, as soon as a file is there.
HANGING = """
import pathlib, re, sys
from zcrawl.cli.main import main
from zcrawl.master.leader import Leader
real = Leader._on_tick
def tick(self, now, effects):
    if pathlib.Path({flag!r}).exists():
        pathlib.Path({flag!r} + ".hangs").touch()
        re.match(r"(a+)+$", "a" * 80 + "!")
    real(self, now, effects)
Leader._on_tick = tick
sys.exit(main())
"""


@contextlib.contextmanager
def site(folder: Path) -> Iterator[PageSite]:
    with page_site(folder, 100_000, 0.05) as made:
        yield made


def rows(data: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(data / "zcrawl.db", timeout=10)) as database:
        return database.execute(sql).fetchall()


@contextlib.contextmanager
def up(folder: Path, program: str = "") -> Iterator[subprocess.Popen[str]]:
    """`zcrawl up` with one worker, of which `d` is the data folder."""
    arguments = ["up", "--workers", "1", "--data", str(folder / "d")]
    if program:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    else:
        process = start(*arguments, cwd=folder)
    try:
        mesh = folder / "d" / "mesh.json"
        wait_until(lambda: mesh.exists() or process.poll() is not None)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def submit(folder: Path, url: str, name: str = "slow") -> None:
    wait_until(
        lambda: (
            command(
                *("submit", url, "--name", name, "--rate", "20", "--no-robots"),
                *("--data", folder / "d"),
                cwd=folder,
            ).returncode
            == 0
        )
    )


def test_sigterm_ends_a_master_whose_loop_hangs(tmp_path: Path) -> None:
    """It says where it hangs, and the data folder can be used at once."""
    flag = tmp_path / "hang"
    with up(tmp_path, HANGING.format(flag=str(flag))) as process:
        flag.touch()
        wait_until(Path(f"{flag}.hangs").exists)
        process.terminate()
        _, stderr = process.communicate(timeout=40)
    assert process.returncode == 1, stderr
    assert "Timeout" in stderr
    assert "most recent call first" in stderr
    assert "in tick" in stderr
    assert command("jobs", "--data", tmp_path / "d", cwd=tmp_path).returncode == 0


def test_sigterm_lets_a_master_that_reacts_end_in_order(tmp_path: Path) -> None:
    """The watchdog is for those that hang: this one takes its time, and ends with 0."""
    with up(tmp_path) as process:
        process.terminate()
        _, stderr = process.communicate(timeout=40)
    assert process.returncode == 0
    assert "most recent call first" not in stderr


@pytest.mark.parametrize("how", ["hung", "stopped", "well"])
def test_an_offline_cancel_needs_no_leader_and_fences_one(tmp_path: Path, how: str) -> None:
    """Beside a master that hangs, sleeps or works; one that goes on loads anew, and the run stays
    cancelled."""
    flag = tmp_path / "hang"
    data = tmp_path / "d"
    with site(tmp_path) as made, up(tmp_path, HANGING.format(flag=str(flag))) as process:
        submit(tmp_path, made.seed)
        wait_until(lambda: rows(data, "SELECT done FROM runs")[0][0] > 5)
        if how == "hung":
            flag.touch()
            wait_until(Path(f"{flag}.hangs").exists)
        elif how == "stopped":
            process.send_signal(signal.SIGSTOP)
        ((before,),) = rows(data, "SELECT epoch FROM leaders")
        done = command("cancel", "slow", "--offline", "--data", data, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["state"] == "cancelled"
        ((pages, items),) = rows(data, "SELECT done, items FROM runs")
        if how == "stopped":
            process.send_signal(signal.SIGCONT)
        if how != "hung":
            wait_until(lambda: rows(data, "SELECT epoch FROM leaders")[0][0] > before + 1)
            log = (data / "zcrawl.log").read_text()
            assert "a newer leader wrote" in log or "fenced" in log
        assert rows(data, "SELECT state, done, items FROM runs") == [("cancelled", pages, items)]
        again = command("cancel", "slow", "--offline", "--data", data, cwd=tmp_path)
        assert again.returncode == 0
        assert "as it was before" in again.stderr


def test_an_offline_cancel_of_an_idle_folder(tmp_path: Path) -> None:
    """Nobody runs there; a name that does not exist, and a folder, are errors."""
    data = tmp_path / "d"
    with site(tmp_path) as made, up(tmp_path):
        submit(tmp_path, made.seed)
        wait_until(lambda: rows(data, "SELECT done FROM runs")[0][0] > 2)
    done = command("cancel", "1", "--offline", "--data", data, cwd=tmp_path)
    assert done.returncode == 0
    assert "cancelled" in done.stderr
    assert rows(data, "SELECT state, reason, pending FROM runs") == [("cancelled", "cancelled", 0)]
    view = json.loads(command("job", "1", "--data", data, "--json", cwd=tmp_path).stdout)
    assert view["last_actions"][0]["what"] == "cancel --offline"
    assert command("cancel", "x", "--offline", "--data", data, cwd=tmp_path).returncode == 1
    nowhere = tmp_path / "nowhere"
    assert command("cancel", "1", "--offline", "--data", nowhere, cwd=tmp_path).returncode == 2
    tagged = command("cancel", "--tag", "a", "--offline", "--data", data, cwd=tmp_path)
    assert tagged.returncode == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ('"exclude":["(?=(a+)+$)"]', "bad_expression: scope.exclude[1]"),
        ('"exclude":[],"colour":"red"', "bad_spec: "),
    ],
)
def test_a_stored_run_that_would_hang_the_leader_ends_by_name(
    tmp_path: Path, change: str, reason: str
) -> None:
    """A folder of an older version: the leader loads, other jobs go on, and nothing runs again."""
    data = tmp_path / "d"
    with site(tmp_path) as made:
        with up(tmp_path):
            submit(tmp_path, made.seed)
            submit(tmp_path, made.url(1), "other")
            wait_until(lambda: rows(data, "SELECT MIN(done) FROM runs")[0][0] > 2)
        with contextlib.closing(sqlite3.connect(data / "zcrawl.db")) as database:
            for table, key in (("runs", "job"), ("jobs", "id")):
                (spec,) = database.execute(f"SELECT spec FROM {table} WHERE {key} = 1").fetchone()
                changed = bytes(spec).decode().replace('"exclude":[]', change)
                assert changed != bytes(spec).decode()
                update = f"UPDATE {table} SET spec = ? WHERE {key} = 1"
                database.execute(update, (changed.encode(),))
            database.commit()
        ((before,),) = rows(data, "SELECT done FROM runs WHERE id = 2")
        with up(tmp_path):
            wait_until(lambda: rows(data, "SELECT state FROM runs WHERE id = 1")[0][0] != "running")
            wait_until(lambda: rows(data, "SELECT done FROM runs WHERE id = 2")[0][0] > before)
            view = json.loads(command("job", "slow", "--data", data, "--json", cwd=tmp_path).stdout)
            assert view["state"] == "failed"
            assert view["reason"].startswith(reason)
            shown = command("job", "slow", "--data", data, cwd=tmp_path)
            assert shown.returncode == 1
            assert reason.strip() in shown.stdout
            again = command(
                *("submit", made.seed, "--name", "slow", "--again", "--data", data), cwd=tmp_path
            )
            assert again.returncode != 0
            assert reason.partition(":")[0] in again.stderr
            assert len(rows(data, "SELECT 1 FROM runs")) == 2


def test_an_offline_cancel_on_a_cluster_with_a_leader_that_hangs(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """The next leader sees the run cancelled; SIGTERM ends the one that hangs."""
    flag = tmp_path / "hang"
    with (
        site(tmp_path) as made,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as nodes,
    ):
        hanging = nodes.add_master("m1", program=HANGING.format(flag=str(flag)))
        nodes.add_worker("w1")
        nodes.wait_ready(1)
        _, run = nodes.submit(made)
        nodes.wait_pages(run, 5)
        flag.touch()
        wait_until(Path(f"{flag}.hangs").exists)
        config = tmp_path / "client.toml"
        done = command("cancel", "site", "--offline", "--config", config, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        flag.unlink()
        nodes.add_master("m2")
        nodes.wait_ready(1)
        began = time.monotonic()
        assert hanging.stop() == 1
        assert time.monotonic() - began < 30
        assert nodes.job(1)["state"] == "cancelled"
        counted = nodes.counters(run)
        assert counted["state"] == "cancelled"
        assert counted["pending"] == 0
