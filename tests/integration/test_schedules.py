"""Jobs that run by themselves on one machine, by the commands and processes of a user."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command, start, wait_until
from tests.servers.page_site import page_site

EVERY_S = 2
SLOW_S = 10.0  # a page: time for the commands beside its run, also on a busy machine
LISTS = 100
LINKS = 1_000  # of each list
SEEDS = LISTS * LINKS
GROWTH = 40_000_000  # bytes; 100,000 seeds in memory would need more
PAGES = """
name = "pages"
seeds_from = {{ job = "lists", field = "url" }}
[scope]
max_depth = 0
[politeness]
rate = 0.01
concurrency = 1
robots = false
[fetch]
allow_private = true
{more}
"""


@contextlib.contextmanager
def up(data: Path) -> Iterator[int]:
    """`zcrawl up` in a folder, until it is killed; its process id."""
    process = start("up", "--workers", "1", "--data", data, cwd=data.parent)
    try:
        wait_until(lambda: (data / "mesh.json").exists(), 30)
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (data / "mesh.json").unlink(missing_ok=True)


def done(*args: object, data: Path) -> str:
    """The output of a command that must work."""
    finished = command(*args, "--data", data, cwd=data.parent)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def rows(data: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(data / "zcrawl.db", timeout=30)) as database:
        return database.execute(sql).fetchall()


def write_job(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


@pytest.mark.timeout(240)
def test_each_due_time_starts_one_run_however_often_the_leader_is_killed(tmp_path: Path) -> None:
    """kill -9 around due times; what was due while nobody led is caught up."""
    data = tmp_path / "d"
    with page_site(tmp_path, 1) as site:
        text = f"""
        name = "beat"
        seeds = ["{site.seed}"]
        [schedule]
        every = "{EVERY_S}s"
        overlap = "allow"
        catch_up = "all"
        [politeness]
        rate = 0.0
        robots = false
        [fetch]
        allow_private = true
        """
        job = write_job(tmp_path, "beat", text)
        with up(data):
            done("submit", job, "--no-run", data=data)
            wait_until(lambda: len(rows(data, "SELECT id FROM runs")) >= 2)
        ((created,),) = rows(data, "SELECT created_at FROM jobs")
        for step in range(6):
            with up(data):
                # A little before the next due time, at it, and a little after.
                now = time.time()
                passed = (now - int(created)) % EVERY_S
                time.sleep((EVERY_S - passed + (step - 3) * 0.02) % EVERY_S)
        with up(data):
            ended = time.time()
            last = int(created) + int((ended - int(created)) // EVERY_S) * EVERY_S
            wait_until(lambda: rows(data, "SELECT MAX(due_at) FROM runs")[0][0] >= last, 60)
            done("schedule", "pause", "beat", data=data)
            live = "SELECT id FROM runs WHERE state IN ('pending', 'running')"
            wait_until(lambda: not rows(data, live), 60)
            views = json.loads(done("runs", "beat", "--limit", 500, "--json", data=data))
            (view,) = json.loads(done("schedule", "list", "--json", data=data))
    assert (view["state"], view["next"]) == ("paused", [])
    due = [at for (at,) in rows(data, "SELECT due_at FROM runs ORDER BY due_at")]
    assert due == [float(at) for at in range(int(due[0]), int(due[-1]) + 1, EVERY_S)]
    assert due[0] == int(created) + EVERY_S
    assert {view["state"] for view in views} == {"completed"}
    assert {view["cause"] for view in views} <= {"cron", "catch-up"}


@pytest.mark.timeout(240)
def test_a_held_submission_starts_once_although_the_leader_is_killed(tmp_path: Path) -> None:
    """The command says which run is held, a second one is refused, and `--wait` waits for its own
    run, not for the one that is alive."""
    data = tmp_path / "d"
    with page_site(tmp_path, 1, SLOW_S) as site:
        text = f"""
        name = "queued"
        seeds = ["{site.seed}"]
        [schedule]
        every = "30d"
        overlap = "queue"
        [politeness]
        rate = 0.0
        robots = false
        [fetch]
        allow_private = true
        """
        job = write_job(tmp_path, "queued", text)
        with up(data):
            done("submit", job, data=data)
            held = command("submit", "queued", "--again", "--data", data, cwd=tmp_path)
            assert (held.returncode, held.stdout) == (0, "1\n")
            assert "run 2 is held until run 1 ends" in held.stderr
            refused = command("submit", "queued", "--again", "--data", data, cwd=tmp_path)
            assert refused.returncode != 0
            assert "start_is_held" in refused.stderr
            assert "zcrawl schedule pause queued" in refused.stderr
            assert "run 2 held" in done("jobs", data=data)
            assert "run 2, submitted" in done("schedule", "list", data=data)
            assert "run 2, submitted" in done("job", "queued", data=data)
        with up(data):
            completed = "SELECT id FROM runs WHERE state = 'completed' ORDER BY id"
            wait_until(lambda: rows(data, completed) == [(1,), (2,)], 60)
            done("submit", "queued", "--again", data=data)
            waited = done("submit", "queued", "--again", "--wait", "--json", data=data)
            assert json.loads(waited.splitlines()[-1])["pages"] == 1
            assert rows(data, completed) == [(1,), (2,), (3,), (4,)]
    assert rows(data, "SELECT held FROM jobs") == [(None,)]
    assert rows(data, "SELECT DISTINCT cause FROM runs") == [("submitted",)]


@pytest.mark.timeout(300)
def test_a_hundred_thousand_items_become_seeds_in_flat_memory(tmp_path: Path) -> None:
    """The master's memory does not grow with them, and a killed one goes on where it was."""
    data, site = tmp_path / "d", tmp_path / "site"
    site.mkdir()
    for number in range(LISTS):
        first = number * LINKS
        anchors = "".join(
            f'<a href="http://127.0.0.2:9/{page}">{page}</a>'
            for page in range(first, first + LINKS)
        )
        (site / f"{number}.html").write_text(f"<title>{number}</title>{anchors}")
    with file_server(site) as url:
        seeds = [f"{url}/{number}.html" for number in range(LISTS)]
        lists = f"""
        name = "lists"
        seeds = {json.dumps(seeds)}
        [scope]
        max_depth = 0
        [politeness]
        rate = 0.0
        robots = false
        [fetch]
        allow_private = true
        [extract]
        item = "a"
        [extract.fields]
        url = {{ attr = "href", type = "url" }}
        """
        more = '[schedule]\nafter = ["lists"]'
        with up(data) as master:
            done("submit", write_job(tmp_path, "lists", lists), "--no-run", data=data)
            done(
                "submit",
                write_job(tmp_path, "pages", PAGES.format(more=more)),
                "--no-run",
                data=data,
            )
            done("submit", "lists", "--again", data=data)
            admitted = "SELECT admitted FROM runs WHERE feed_run > 0"
            wait_until(lambda: (rows(data, admitted) or [(0,)])[0][0] >= SEEDS // 10, 120)
            early = resident(master)
            wait_until(lambda: rows(data, admitted)[0][0] >= SEEDS // 2, 120)
        ((feed_at, before),) = rows(data, "SELECT feed_at, admitted FROM runs WHERE feed_run > 0")
        assert feed_at is not None, "it was killed in the middle"
        with up(data) as master:
            wait_until(lambda: rows(data, admitted)[0][0] >= SEEDS, 120)
            assert resident(master) < early + GROWTH
            view = json.loads(done("job", "pages", "--json", data=data))
            done("cancel", "pages", data=data)
    assert SEEDS // 2 <= before < SEEDS
    assert [(run["name"], run["depth"]) for run in view["chain"]] == [("lists", 0), ("pages", 1)]
    assert rows(data, "SELECT COUNT(*), COUNT(DISTINCT url) FROM requests WHERE run = 2") == [
        (SEEDS, SEEDS)
    ]


def resident(pid: int) -> int:
    """The memory of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4_096


@contextlib.contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """A server of the files in a folder."""
    import functools
    import http.server
    import threading

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_chain_with_a_failure_and_parameters(tmp_path: Path) -> None:
    """By the commands: `--set`, what a failed parent starts, and the tree of `job`."""
    data = tmp_path / "d"
    with page_site(tmp_path, 3) as site, up(data):
        base = f"http://127.0.0.1:{site.port}"
        polite = "[politeness]\nrate = 0.0\nrobots = false\n[scope]\nmax_depth = 0\n"
        fetch = "[fetch]\nallow_private = true\nretries = 0\n"
        agent = 'user_agent = "test of ${params.page}"\n'
        failure = '[schedule]\nafter = [{ job = "a", on = "failure" }]\n'
        jobs = {
            "a": f'seeds = ["{base}/${{params.page}}"]\nparams = {{ page = "p/0" }}\n'
            f"{polite}{fetch}",
            "good": f'seeds = ["{base}/p/1"]\nparams = {{ page = "x" }}\n'
            f'[schedule]\nafter = ["a"]\n{polite}{fetch}{agent}',
            "bad": f'seeds = ["{base}/p/2"]\n{failure}{polite}{fetch}',
        }
        for name, text in jobs.items():
            job = write_job(tmp_path, name, f'name = "{name}"\n{text}')
            done("submit", job, "--no-run", data=data)

        def runs(name: str) -> list[dict[str, Any]]:
            views: list[dict[str, Any]] = json.loads(done("runs", name, "--json", data=data))
            return [view for view in views if view["ended_at"]]

        done("submit", "a", "--again", "--wait", data=data)
        wait_until(lambda: len(runs("good")) == 1)
        refused = command("submit", "a", "--again", "--set", "pge=x", "--data", data, cwd=tmp_path)
        assert refused.returncode == 2
        assert "did you mean 'page'?" in refused.stderr
        failed = command(
            "submit",
            "a",
            "--again",
            "--wait",
            "--set",
            "page=missing",
            "--data",
            data,
            cwd=tmp_path,
        )
        assert failed.returncode == 1
        wait_until(lambda: len(runs("bad")) == 1)
        assert len(runs("good")) == 1
        text = done("job", "good", data=data)
        assert "params          page=p/0" in text
        ((spec,),) = rows(data, "SELECT spec FROM runs WHERE chain = 1")
        assert json.loads(spec)["fetch"]["user_agent"] == "test of p/0"
        assert "a run 1: completed" in text
        assert "good run 2: completed  <- this run" in text
        assert "bad run 4" in done("job", "bad", data=data)
