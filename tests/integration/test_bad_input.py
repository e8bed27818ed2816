"""Bad input, end to end by command: a named error, or a skip with its reason, and never silence."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import children, command, items, start, wait_until
from tests.servers.nginx_site import nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL, reference_set
from tests.web.behaviours import BEHAVIOURS, Exchange
from tests.web.server import MisbehavingWeb, WebThread

RESUME = "zcrawl crawl --resume --data {data}"


@pytest.fixture
def web() -> Iterator[MisbehavingWeb]:
    with WebThread(MisbehavingWeb(tls=True)) as web:
        yield web


def crawl(folder: Path, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    base = ("--rate", 0, "--workers", 1, "--data", folder / "d")
    return command("crawl", *args, *base, cwd=folder, **options)


def view(folder: Path) -> dict[str, Any]:
    shown = command("job", 1, "--data", folder / "d", "--json", cwd=folder)
    job: dict[str, Any] = json.loads(shown.stdout)
    return job


def failures(folder: Path) -> list[dict[str, Any]]:
    listed = command("export", 1, "--failed", "--data", folder / "d", cwd=folder)
    assert listed.returncode == 0, listed.stderr
    return [json.loads(line) for line in listed.stdout.splitlines()]


def error_of(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """(code, message) of a command that was called with --json."""
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    return error["code"], error["message"]


# ---------------------------------------------------------------- what a user types


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["example.com"], "bad_url", "https://example.com"),
        (["http://[::1"], "bad_url", "http://[::1"),
        (["ftp://example.com/"], "unsupported_scheme", "ftp"),
        (["http://x.test/" + "a" * 100_000], "url_too_long", "8192"),
        ([""], "bad_url", "not a valid URL"),
        ([], "usage", "nothing to crawl"),
        (["http://x.test/", "--job", "nowhere.toml"], "unreadable", "nowhere.toml"),
        (["http://x.test/", "--job", "typo.toml"], "unknown_key", "scope.max_depth"),
        (["http://x.test/", "--job", "broken.toml"], "bad_toml", "broken.toml"),
        (["--seeds", "nowhere.txt"], "unreadable", "nowhere.txt"),
        (["--seeds", "bad.txt"], "bad_url", "2"),
        (["--seeds", "long.txt"], "url_too_long", "long.txt, line 1"),
        (["--seeds", "noise.txt"], "bad_url", "noise.txt, line 1"),
        (["--seeds", "none.txt"], "usage", "no URL in none.txt"),
        (["--seeds", "-"], "usage", "no URL in stdin"),
        (["http://x.test/", "--out", "/proc/nowhere/o.jsonl"], "out_unwritable", "/proc/nowhere"),
        (["http://x.test/", "--out", "."], "usage", ".jsonl"),
        (["http://x.test/", "--data", "typo.toml"], "data_unwritable", "typo.toml"),
        (["http://x.test/", "--depht", "1"], "usage", "--depth"),
        (["--resume", "--data", "nowhere"], "usage", "nowhere"),
    ],
)
def test_what_is_typed_wrong_is_refused_before_anything_happens(
    tmp_path: Path, args: list[str], code: str, says: str
) -> None:
    """Exit 2, a code, a message that names the culprit or what was meant, and no data folder."""
    (tmp_path / "typo.toml").write_text('name = "x"\n[scope]\nmax_dept = 3\n')
    (tmp_path / "broken.toml").write_text("name = \n")
    (tmp_path / "bad.txt").write_text("http://x.test/\nno url at all\n")
    (tmp_path / "long.txt").write_text("http://x.test/" + "a" * 1_000_000)
    (tmp_path / "noise.txt").write_bytes(b"\xff\xfeh\0t\0t\0p\0")
    (tmp_path / "none.txt").write_text("# nothing yet\n\n")
    done = command("crawl", *args, "--json", cwd=tmp_path, stdin=subprocess.DEVNULL)
    error_code, message = error_of(done)
    assert (done.returncode, error_code) == (2, code), message
    assert says in message
    assert not list(tmp_path.glob("**/zcrawl.db"))
    shown = command("crawl", *args, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert shown.stderr.count("\n") == 1
    assert shown.stderr.endswith(f"[{code}]\n")


# ---------------------------------------------------------------- what servers do


async def nul_title(x: Exchange) -> bool:
    """A page with a NUL byte in its title and in one of its links, and otherwise text."""
    text = b"words " * 100
    links = b'<a href="/status/200?x\0y">x</a><a href="/status/200?z">z</a>'
    return await x.reply(200, b"<html><title>n\0ul</title><p>" + text + links + b"</html>")


async def long_link(x: Exchange) -> bool:
    """A link of 1 MB, and a good one."""
    links = b'<a href="/%b">x</a><a href="/status/200?l">l</a>' % (b"a" * 1_000_000)
    return await x.reply(200, b"<html>" + links + b"</html>")


def test_whatever_a_server_does_ends_with_its_reason(
    tmp_path: Path, web: MisbehavingWeb, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """Each URL ends once, by name, in `export --failed` and summed up in `job --json`."""
    expected = {
        web.url("/drip"): "total_timeout",
        web.url("/drip-header"): "total_timeout",
        web.url("/hang"): "total_timeout",
        web.url("/stall"): "total_timeout",
        web.url("/lies-long"): "truncated",
        web.url("/chunked-cut"): "truncated",
        web.url("/close-at-once"): "reset",
        web.url("/reset"): "reset",
        web.url("/garbage"): "protocol",
        web.url("/huge-header"): "protocol",
        web.url("/endless"): "too_large",
        web.url("/broken-gzip"): "bad_encoding",
        web.url("/hops/100"): "too_many_redirects",
        web.url("/loop/a"): "redirect_loop",
        web.url("/redirect-self"): "redirect_loop",
        web.url("/redirect-file"): "bad_redirect",
        web.url("/redirect-without-location"): "bad_redirect",
        web.url("/binary-as-html"): "binary_content",
        web.url("/nul"): "binary_content",
        web.tls_url("/status/200"): "tls",
        "http://no-such-host.invalid/": "dns",
        f"http://127.0.0.1:{unused_tcp_port}/": "connect",
    }
    good = {"/lies-short", "/retry-after/1", "/flaky/1", "/nul-title", "/status/200?z"}
    monkeypatch.setitem(BEHAVIOURS, "nul-title", nul_title)
    seeds = tmp_path / "seeds.txt"
    pages = [web.url(path) for path in good if "?" not in path]
    seeds.write_text("\n".join([*expected, *pages]))
    flags = ("--depth", 1, "--timeout", 2, "--retries", 1, "--concurrency", 32)
    done = crawl(tmp_path, "--seeds", seeds, *flags, "--out", tmp_path / "o.jsonl", "--json")
    assert done.returncode == 1, done.stderr  # most of its URLs failed
    rows = failures(tmp_path)
    assert {row["url"]: row["reason"] for row in rows} == expected
    assert len(rows) == len(expected)
    shown = view(tmp_path)
    assert shown["reason"].startswith("too_many_failed: ")
    sums = {"dead": shown["failed_reasons"], "skipped": shown["skipped_reasons"]}
    for state, reasons in sums.items():
        assert reasons == Counter(row["reason"] for row in rows if row["state"] == state)
    assert shown["failed"] + shown["skipped"] == len(rows)
    items_by_path = {
        item["url"].removeprefix(web.origin): item for item in items(tmp_path / "o.jsonl")
    }
    # The link with a NUL byte is a good one to a browser: it becomes %EF%BF%BD.
    assert items_by_path.keys() >= good
    assert len(items_by_path) == len(good) + 1
    assert items_by_path["/nul-title"]["title"] in ("nul", "n\ufffdul")
    assert web.hits("/retry-after/1") == 2


@pytest.mark.parametrize("line", [b"Crawl-delay: 1e-310", b"Request-rate: 99999999999999999999/1"])
def test_a_robots_txt_with_a_hostile_delay_stops_nobody(tmp_path: Path, line: bytes) -> None:
    """The leader divides by it; a number like this must not end it, now or after a restart."""
    with WebThread(MisbehavingWeb(robots=b"User-agent: *\n" + line + b"\n")) as web:
        done = crawl(tmp_path, web.url("/good/5/0"), "--json")
        assert done.returncode == 0, done.stdout
        assert view(tmp_path)["pages"] == 5
    assert "machine_error" not in (tmp_path / "d" / "zcrawl.log").read_text()


def test_a_gzip_bomb_costs_no_memory(tmp_path: Path, web: MisbehavingWeb) -> None:
    """10 GB in 10 MB: ended as too_large, and the worker's memory never held it."""
    process = start(
        *("crawl", web.url("/gzip-bomb"), web.url("/slow/3000"), "--rate", 0, "--workers", 1),
        *("--data", tmp_path / "d"),
        cwd=tmp_path,
    )
    try:
        wait_until(lambda: web.hits("/gzip-bomb") == 1, 20)
        (worker,) = children(process.pid)
        peak = 0
        while process.poll() is None:
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{worker}/status").read_text()
                peaks = [line.split()[1] for line in status.splitlines() if "VmHWM" in line]
                peak = max(peak, *map(int, peaks), 0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
    finally:
        process.kill()
        process.communicate()
    assert view(tmp_path)["failed_reasons"] == {"too_large": 1}
    assert 0 < peak < 200_000  # kB


def test_a_page_with_100_000_links_admits_them_all(tmp_path: Path, web: MisbehavingWeb) -> None:
    """Each becomes a request of the run; what max_pages leaves over is skipped by that name."""
    done = crawl(tmp_path, web.url("/many-links/100000"), "--max-pages", 3, "--json")
    assert done.returncode == 0, done.stderr
    shown = view(tmp_path)
    assert (shown["state"], shown["pages"], shown["failed"]) == ("completed", 3, 0)
    assert shown["admitted"] == 100_001
    assert shown["skipped_reasons"] == {"max_pages": 100_001 - 3}
    rows = Counter(row["reason"] for row in failures(tmp_path))
    assert rows == shown["skipped_reasons"]


def test_a_link_of_1_mb_is_told_of(
    tmp_path: Path, web: MisbehavingWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page and its good link are crawled; the other is counted under its reason."""
    monkeypatch.setitem(BEHAVIOURS, "long-link", long_link)
    done = crawl(tmp_path, web.url("/long-link"), "--json")
    assert done.returncode == 0, done.stderr
    shown = view(tmp_path)
    assert (shown["pages"], shown["failed"]) == (2, 0)
    assert "url_too_long" in json.dumps(shown)


# ---------------------------------------------------------------- disks and databases


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """1 MB, a file system of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_stops_the_crawl_and_room_lets_it_go_on(
    tmp_path: Path, small_disk: Path
) -> None:
    """Exit 1, disk_full and the command that goes on; after that nothing is lost or doubled."""
    data, out = small_disk / "d", tmp_path / "o.jsonl"
    with nginx_site(POSTGRES_MANUAL) as site:
        process = start(
            *("crawl", site.url + "index.html", "--rate", 0, "--workers", 1, "--out", out),
            *("--data", data),
            cwd=tmp_path,
        )
        try:
            _, stderr = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 1
        assert "[disk_full]" in stderr
        assert RESUME.format(data=data) in stderr
        subprocess.run(["mount", "-o", "remount,size=100m", small_disk], check=True)
        done = command("crawl", "--resume", "--workers", 1, "--data", data, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    urls = [item["url"] for item in items(out)]
    assert len(urls) == len(set(urls)) == len(reference_set(POSTGRES_MANUAL).pages)


def test_a_disk_without_room_for_anything_is_named_by_every_command(
    tmp_path: Path, small_disk: Path, web: MisbehavingWeb
) -> None:
    """Exit 1 and disk_full where something has to be written, and nothing is left lying there;
    what only reads goes on."""
    data = small_disk / "d"
    seed = web.url("/good/5/0")
    assert command("crawl", seed, "--workers", 1, "--data", data, cwd=tmp_path).returncode == 0
    with contextlib.suppress(OSError), (small_disk / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))
    there = {path.name for path in data.iterdir()}
    for args in (("crawl", seed), ("crawl", "--resume"), ("up",), ("retry", 1), ("delete", 1)):
        done = command(*args, "--data", data, "--json", cwd=tmp_path)
        code, _ = error_of(done)
        assert (done.returncode, code) == (1, "disk_full"), args
    logs = {"zcrawl.db-wal", "zcrawl.db-shm"}
    assert {path.name for path in data.iterdir()} - logs == there - logs
    assert len(command("export", 1, "--data", data, cwd=tmp_path).stdout.splitlines()) == 5
    doctor = command("doctor", "--data", data, cwd=tmp_path)
    assert "fail  disk space" in doctor.stdout
    assert "ok    database" in doctor.stdout


def test_an_output_without_room_is_written_by_resume(
    tmp_path: Path, small_disk: Path, web: MisbehavingWeb
) -> None:
    """The pages are crawled and kept; the last words tell how the file is completed."""
    data, out = tmp_path / "d", small_disk / "o.jsonl"
    (small_disk / "fill").write_bytes(bytes(1_000_000))
    seed = web.url("/good/300/0")
    flags = ("--rate", 0, "--concurrency", 32, "--workers", 1, "--data", data)
    done = command("crawl", seed, "--out", out, *flags, cwd=tmp_path)
    assert done.returncode == 1
    assert "[disk_full]" in done.stderr
    assert RESUME.format(data=data) in done.stderr
    (small_disk / "fill").unlink()
    done = command("crawl", "--resume", "--workers", 1, "--data", data, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    urls = [item["url"] for item in items(out)]
    assert len(urls) == len(set(urls)) == 300


def test_a_data_folder_on_a_read_only_disk_can_be_read(
    tmp_path: Path, small_disk: Path, web: MisbehavingWeb
) -> None:
    """A crawl that was kept: jobs, job and export work, what would write is refused by name, and
    doctor does not call the database damaged."""
    data, seed = small_disk / "d", web.url("/good/5/0")
    assert command("crawl", seed, "--workers", 1, "--data", data, cwd=tmp_path).returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    (listed,) = json.loads(command("jobs", "--json", "--data", data, cwd=tmp_path).stdout)
    assert (listed["job"], listed["pages"]) == (1, 5)
    assert len(command("export", 1, "--data", data, cwd=tmp_path).stdout.splitlines()) == 5
    for args in (("crawl", seed), ("crawl", "--resume"), ("up",), ("retry", 1)):
        done = command(*args, "--data", data, "--json", cwd=tmp_path)
        assert (done.returncode, error_of(done)[0]) == (2, "data_unwritable"), args
    doctor = command("doctor", "--data", data, cwd=tmp_path).stdout
    assert "fail  data folder" in doctor
    assert "is not damaged" in doctor


@pytest.mark.parametrize("damage", ["garbage", "holes"])
def test_a_corrupt_database_is_named_and_left_alone(
    tmp_path: Path, web: MisbehavingWeb, damage: str
) -> None:
    """Exit 1, store_corrupt and the file's name, from every command; doctor says what to do."""
    database = tmp_path / "d" / "zcrawl.db"
    if damage == "garbage":
        database.parent.mkdir()
        database.write_bytes(os.urandom(100_000))
    else:
        assert crawl(tmp_path, web.url("/many-links/300")).returncode == 0
        with database.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(4096)
            file.write(b"\x5a" * (size - 8192))
    before = database.read_bytes()
    for args in (("crawl", web.url("/good/3"), "--workers", 1), ("jobs",), ("export", 1)):
        done = command(*args, "--data", tmp_path / "d", "--json", cwd=tmp_path)
        code, message = error_of(done)
        assert (done.returncode, code) == (1, "store_corrupt"), args
        assert str(database) in message
    doctor = command("doctor", "--data", tmp_path / "d", cwd=tmp_path)
    assert doctor.returncode == 1
    assert "restore it from a backup" in doctor.stdout
    assert database.read_bytes() == before


def test_a_folder_in_use_is_left_to_its_user(tmp_path: Path, web: MisbehavingWeb) -> None:
    """Exit 1, in_use and the process that has it; that one is not disturbed."""
    first = start("up", "--workers", 1, "--data", tmp_path / "d", cwd=tmp_path)
    try:
        wait_until(lambda: (tmp_path / "d" / "mesh.json").exists(), 20)
        for args in (("up",), ("crawl", web.url("/good/3"))):
            done = command(*args, "--workers", 1, "--data", tmp_path / "d", "--json", cwd=tmp_path)
            code, message = error_of(done)
            assert (done.returncode, code) == (1, "in_use")
            assert str(first.pid) in message
        assert first.poll() is None
        done = command("jobs", "--data", tmp_path / "d", "--json", cwd=tmp_path)
        assert json.loads(done.stdout) == []
    finally:
        first.kill()
        first.communicate()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """The only port that the embedded form binds is the browser console's."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        web = ("console", "--web", "--port", port, "--data", tmp_path / "d", "--json")
        done = command(*web, cwd=tmp_path)
    code, message = error_of(done)
    assert (done.returncode, code) == (1, "address_in_use"), done.stderr
    assert f"127.0.0.1:{port}" in message
    assert "--port" in message
    assert "the console is at" not in done.stderr


@pytest.mark.parametrize("ways", [("--snapshot=jobs", "--record=r"), ("--replay=r", "--web")])
def test_two_ways_to_show_the_console_are_refused(tmp_path: Path, ways: tuple[str, str]) -> None:
    """Rather than one of them in silence."""
    done = command("console", *ways, "--data", tmp_path / "d", "--json", cwd=tmp_path)
    names = " and ".join(way.partition("=")[0] for way in ways)
    assert (done.returncode, *error_of(done)) == (
        2,
        "usage",
        f"{names} cannot be used together; give one",
    )


def test_a_deep_data_folder_is_no_problem(tmp_path: Path, web: MisbehavingWeb) -> None:
    """A Unix socket's path is short; a data folder's may be long, and hold spaces."""
    folder = tmp_path / ("deep folder " * 12).strip()
    folder.mkdir()
    done = crawl(folder, web.url("/good/5"), "--json")
    assert done.returncode == 0, done.stderr
    assert view(folder)["failed"] == 0
