"""A cluster that stays up, operated by commands; and crawls that are interrupted and resumed."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import ZCRAWL, children, command, items, start, wait_until
from tests.web.behaviours import BEHAVIOURS, Exchange
from tests.web.server import MisbehavingWeb, WebThread


class Operator:
    """`zcrawl up` in a folder, and the commands for it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "d"

    def __call__(self, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
        return command(*args, "--data", self.data, cwd=self.folder, **options)

    def ok(self, *args: object, **options: Any) -> Any:
        """What the command says with --json; it must succeed."""
        done = self(*args, "--json", **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def refused(self, *args: object) -> tuple[int, str, str]:
        done = self(*args, "--json")
        error = json.loads(done.stdout.splitlines()[-1])["error"]
        return done.returncode, error["code"], error["message"]

    def job(self, ref: object) -> dict[str, Any]:
        view: dict[str, Any] = self.ok("job", ref)
        return view

    def until_job(self, ref: object, key: str, value: object) -> dict[str, Any]:
        wait_until(lambda: self.job(ref)[key] == value, 30)
        return self.job(ref)

    @contextlib.contextmanager
    def up(self, workers: int = 1) -> Iterator[subprocess.Popen[str]]:
        process = start("up", "--workers", workers, "--data", self.data, cwd=self.folder)
        try:
            wait_until(lambda: (self.data / "mesh.json").exists(), 20)
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def web() -> Iterator[MisbehavingWeb]:
    with WebThread() as web:
        yield web


@pytest.fixture
def zcrawl(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_a_job_is_submitted_watched_repeated_and_deleted(
    web: MisbehavingWeb, zcrawl: Operator
) -> None:
    """A name that exists is refused with its id, unless --update or --again says what is meant;
    ids are never used twice."""
    seed = web.url("/good/6/0")
    with zcrawl.up():
        first = zcrawl.ok("submit", seed, "--name", "six", "--rate", 0, "--wait")
        assert (first["job"], first["run"], first["state"], first["pages"]) == (
            1,
            1,
            "completed",
            6,
        )
        code, name, message = zcrawl.refused("submit", seed, "--name", "six")
        assert (code, name) == (1, "name_exists")
        assert "1" in message
        again = zcrawl.ok("submit", seed, "--name", "six", "--again", "--wait")
        assert (again["job"], again["run"], again["pages"]) == (1, 2, 6)
        update = ("submit", seed, "--name", "six", "--update", "--rate", 0, "--depth", 0, "--wait")
        assert (zcrawl.ok(*update)["run"], zcrawl.job("six")["pages"]) == (3, 1)
        assert zcrawl.job("six")["spec"]["scope"]["max_depth"] == 0
        assert [run["pages"] for run in zcrawl.job(1)["runs"]] == [1, 6, 6]
        assert len(zcrawl("export", 1, "--run", 2).stdout.splitlines()) == 6
        assert len(zcrawl("export", "six").stdout.splitlines()) == 1
        printed = zcrawl("submit", seed, "--name", "two", "--rate", 0)
        assert printed.stdout == "2\n"
        zcrawl.until_job("two", "state", "completed")
        assert zcrawl.ok("delete", "two")["state"] == "deleted"
        anew = zcrawl.ok("submit", seed, "--name", "two", "--rate", 0, "--wait")
        assert (anew["job"], anew["run"]) == (3, 5)
        assert zcrawl.refused("job", "nobody")[:2] == (1, "no_such_job")
        assert {view["job"] for view in zcrawl.ok("jobs")} >= {1, 3}
    assert zcrawl.job(1)["pages"] == 1  # without a cluster, from the database
    assert zcrawl.refused("submit", seed)[0] == 3


def test_an_older_run_is_cancelled_and_one_that_nobody_runs_is_told_as_stopped(
    web: MisbehavingWeb, zcrawl: Operator
) -> None:
    """Of two runs of a job that go on, --run takes the older; after a kill -9 `jobs` and `job` say
    that nobody runs the other, `cancel --offline --run` ends it."""
    seed = web.url("/good/900/0")
    with zcrawl.up():
        zcrawl.ok("submit", seed, "--name", "two", "--rate", 1)
        zcrawl.ok("submit", seed, "--name", "two", "--again")
        assert zcrawl.ok("cancel", "two", "--run", 1)["state"] == "cancelled"
        assert zcrawl.ok("job", "two", "--run", 1)["state"] == "cancelled"
        assert zcrawl.job("two")["state"] == "running"
        assert zcrawl.refused("pause", "two", "--run", 7)[:2] == (1, "no_such_run")
    (view,) = zcrawl.ok("jobs")
    assert (view["state"], view["reason"]) == ("stopped", "nobody runs it; --resume")
    assert "stopped: nobody runs it; --resume" in zcrawl("jobs").stdout
    shown = zcrawl("job", "two")
    assert "stopped (nobody runs it; --resume)" in shown.stdout
    assert "zcrawl crawl --resume" in shown.stderr
    assert zcrawl.ok("cancel", "two", "--offline", "--run", 2)["state"] == "cancelled"
    assert zcrawl.ok("delete", "two", "--run", 1)["run"] == 1
    assert [run["run"] for run in zcrawl.job("two")["runs"]] == [2]


def test_a_job_tells_what_it_is_doing_while_it_runs(web: MisbehavingWeb, zcrawl: Operator) -> None:
    """Spec, times, state, percent, workers and URLs in flight, from the running cluster; of a run
    that has ended, nobody works on anything."""
    seeds = [web.url("/status/200"), web.url("/slow/4000")]
    with zcrawl.up(2):
        zcrawl.ok("submit", *seeds, "--name", "slow", "--rate", 0, "--depth", 2)
        wait_until(lambda: zcrawl.job("slow")["pages"] == 1, 30)
        view = zcrawl.job("slow")
        assert (view["state"], view["percent"], view["reason"]) == ("running", 50.0, "")
        assert view["in_flight_urls"] == [seeds[1]]
        assert view["in_flight"] == 1
        assert len(view["workers"]) == 1
        assert view["workers"][0] in ("w1", "w2")
        assert (view["spec"]["seeds"], view["spec"]["scope"]["max_depth"]) == (seeds, 2)
        assert view["created_at"] <= view["started_at"]
        assert view["ended_at"] is None
        shown = zcrawl("job", "slow").stdout
        assert f"fetching 1  {seeds[1]}" in shown
        assert "percent" in shown
        done = zcrawl.until_job("slow", "state", "completed")
        assert (done["percent"], done["workers"], done["in_flight_urls"]) == (100.0, [], [])
        assert done["started_at"] == view["started_at"] < done["ended_at"]


def test_a_job_is_paused_resumed_and_cancelled(web: MisbehavingWeb, zcrawl: Operator) -> None:
    """Paused: nothing is asked of the server, also not by a cluster that starts anew. Resumed: it
    goes on where it was. Cancelled: what was queued is skipped by that name."""
    with zcrawl.up():
        zcrawl.ok("submit", web.url("/good/40/0"), "--name", "long", "--rate", 10)
        wait_until(lambda: len(web.log) >= 5, 30)
        assert zcrawl.ok("pause", "long")["state"] == "paused"
        paused = zcrawl.until_job("long", "in_flight", 0)
        request_count = len(web.log)
        assert zcrawl("pause", "long").stderr.endswith("as it was before\n")
    with zcrawl.up():
        time.sleep(1.5)
        assert len(web.log) == request_count
        assert zcrawl.job("long")["pages"] == paused["pages"]
        assert zcrawl.ok("resume", "long")["state"] == "running"
        done = zcrawl.until_job("long", "state", "completed")
        assert (done["pages"], done["failed"]) == (40, 0)
        assert {web.hits(f"/good/40/{n}") for n in range(40)} == {1}
        zcrawl.ok("submit", web.url("/many-links/50"), "--name", "cut", "--rate", 5)
        wait_until(lambda: zcrawl.job("cut")["admitted"] == 51, 30)
        assert zcrawl.ok("cancel", "cut")["state"] == "cancelled"
        ended = zcrawl.until_job("cut", "queued", 0)
        assert ended["skipped_reasons"].keys() == {"cancelled"}
        assert ended["pages"] + ended["skipped"] == ended["admitted"] == 51
        assert zcrawl.refused("resume", "cut")[0] == 1


def test_failed_urls_are_retried_when_the_server_has_recovered(
    web: MisbehavingWeb, zcrawl: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`retry` takes the failed ones and nothing else; their links are followed then."""
    broken = True

    async def moody(x: Exchange) -> bool:
        if broken:
            return await x.reply(500)
        return await x.reply(200, b'<a href="/status/200?from-moody">x</a>')

    monkeypatch.setitem(BEHAVIOURS, "moody", moody)
    seeds = [web.url("/moody"), web.url("/status/200?good"), web.url("/status/404")]
    flags = ("--rate", 0, "--retries", 0, "--name", "m")
    with zcrawl.up():
        first = zcrawl.ok("submit", *seeds, *flags, "--wait")
        assert (first["pages"], first["failed"]) == (1, 2)
        broken = False
        reply = zcrawl("retry", "m")
        assert "2 URLs queued again" in reply.stderr
        view = zcrawl.until_job("m", "state", "completed")
    assert (view["pages"], view["failed"], view["failed_reasons"]) == (3, 1, {"http_404": 1})
    assert web.hits("/status/200?good") == 1
    rows = [json.loads(line) for line in zcrawl("export", "m").stdout.splitlines()]
    assert len({row["url"] for row in rows}) == len(rows) == 3


def test_nodes_are_shown_and_drained(web: MisbehavingWeb, zcrawl: Operator) -> None:
    """A drained worker finishes and gets nothing, the other one does its work; undrained, it is
    there again."""
    with zcrawl.up(2) as process:
        wait_until(lambda: len(zcrawl.ok("nodes")["workers"]) == 2, 20)
        reply = zcrawl.ok("nodes")
        assert {row["id"] for row in reply["workers"]} == {"w1", "w2"}
        zcrawl.ok("submit", web.url("/good/60/0"), "--rate", 30, "--name", "g")
        assert zcrawl.ok("drain", "w1")["state"] in ("draining", "drained")
        view = zcrawl.until_job("g", "state", "completed")
        assert (view["pages"], view["failed"]) == (60, 0)
        states = {row["id"]: row["state"] for row in zcrawl.ok("nodes")["workers"]}
        assert states["w1"] == "drained"
        assert states["w2"] in ("idle", "busy")
        assert "drained: w1" in zcrawl("nodes").stderr
        assert len(children(process.pid)) == 2
        assert zcrawl.refused("drain", "w9")[:2] == (1, "no_such_node")
        assert zcrawl.ok("undrain", "w1") == {"node": "w1", "state": "idle", "changed": 1}
        assert zcrawl("undrain", "w1").stderr.strip().endswith("w1: idle, as it was before")
        assert zcrawl.ok("drain", "w2")["changed"] == 1
        again = zcrawl.ok("submit", web.url("/good/9/0"), "--name", "h", "--rate", 0, "--wait")
        assert again["pages"] == 9
    assert zcrawl.refused("nodes")[0] == 3


def test_exports_are_whole_files(web: MisbehavingWeb, zcrawl: Operator) -> None:
    """JSON lines and CSV hold the same; an unwritable name is exit 2 and leaves nothing behind."""
    done = zcrawl("crawl", web.url("/good/5/0"), "--rate", 0, "--workers", 1, "--name", "e")
    assert done.returncode == 0, done.stderr
    zcrawl.ok("export", "e", "--out", "a.jsonl")
    zcrawl.ok("export", "e", "--out", "a.csv")
    rows = items(zcrawl.folder / "a.jsonl")
    lines = (zcrawl.folder / "a.csv").read_text().splitlines()
    assert len(rows) == 5 == len(lines) - 1
    assert lines[0].split(",") == list(rows[0])
    assert zcrawl.refused("export", "e", "--out", "/proc/x/a.csv")[:2] == (2, "out_unwritable")
    assert zcrawl.refused("export", "e", "--run", 9)[:2] == (1, "no_such_run")
    assert not list(zcrawl.folder.glob(".*part"))


def test_seeds_come_from_a_file_and_from_stdin(web: MisbehavingWeb, zcrawl: Operator) -> None:
    """Comments and blank lines are ignored; a late bad line is left out and reported."""
    urls = [web.url(f"/status/200?{n}") for n in range(1_200)]
    text = "# seeds\n\n" + "\n".join(urls) + "\n"
    (zcrawl.folder / "seeds.txt").write_text(text)
    flags = ("--rate", 0, "--depth", 0, "--workers", 1, "--concurrency", 32, "--allow-private")
    assert zcrawl.ok("crawl", "--seeds", "seeds.txt", *flags)["pages"] == 1_200
    assert zcrawl.ok("crawl", "--seeds", "-", *flags, input=text)["pages"] == 1_200
    late = zcrawl("crawl", "--seeds", "-", *flags, input=text + "no url\n")
    assert late.returncode == 1
    assert "1203" in late.stderr
    assert "1200 pages" in late.stderr


def peak_kb(pid: int) -> int:
    """0 when the process has ended."""
    with contextlib.suppress(OSError):
        match = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(match[1]) if match else 0
    return 0


def test_seeds_stream_in_flat_memory(web: MisbehavingWeb, zcrawl: Operator) -> None:
    """Ten times the seeds need no more memory, in the client and in the master."""
    peaks = []
    with zcrawl.up() as master:
        for count in (20_000, 200_000):
            file = zcrawl.folder / f"{count}.txt"
            with file.open("w") as lines:
                lines.writelines(f"{web.origin}/status/200?{count}-{n}\n" for n in range(count))
            args = ["submit", "--seeds", file, "--rate", 1, "--name", f"n{count}", "--json"]
            client = subprocess.Popen(
                [*ZCRAWL, *map(str, args), "--data", str(zcrawl.data)], stdout=subprocess.DEVNULL
            )
            highest = 0
            while client.poll() is None:
                highest = max(highest, peak_kb(client.pid))
                time.sleep(0.02)
            assert client.returncode == 0
            assert zcrawl.job(f"n{count}")["admitted"] == count
            peaks.append((highest, peak_kb(master.pid)))
            zcrawl.ok("cancel", f"n{count}")
    (client_few, master_few), (client_many, master_many) = peaks
    assert client_many - client_few < 30_000
    assert master_many - master_few < 30_000


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_tells_how_to_go_on_and_nothing_is_lost_or_doubled(
    web: MisbehavingWeb, zcrawl: Operator, presses: int
) -> None:
    """Once: what is in flight is finished. Twice: now. Exit 130 and the command, both times."""
    out = zcrawl.folder / "o.jsonl"
    seeds = [web.url(f"/slow/{300 + n}") for n in range(60)]
    process = start(
        *("crawl", *seeds, "--rate", 0, "--concurrency", 8, "--workers", 2, "--out", out),
        *("--data", zcrawl.data),
        cwd=zcrawl.folder,
    )
    try:
        wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 10, 30)
        process.send_signal(signal.SIGINT)
        if presses == 2:
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=40)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, stderr
    assert f"zcrawl crawl --resume --data {zcrawl.data}" in stderr
    request_count = len(web.log)
    if presses == 1:
        pages = zcrawl.job(1)["pages"]
        assert pages == len(items(out)) == request_count - web.hits("/robots.txt")
    done = zcrawl.ok("crawl", "--resume", "--workers", 2)
    assert (done["pages"], done["failed"], done["state"]) == (60, 0, "completed")
    assert sorted(item["url"] for item in items(out)) == sorted(seeds)
    assert "nothing to resume" in zcrawl("crawl", "--resume").stderr
