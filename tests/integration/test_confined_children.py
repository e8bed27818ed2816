"""What a spider can get of its worker's secrets: nothing of those that the system can close."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import ZCRAWL, items
from tests.integration.keyed import keyed
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from tests.web.echo_site import echo_site
from zcrawl.model.spec import Fetch
from zcrawl.parse.children.content import ContentReader
from zcrawl.runtime.confine import landlock_version
from zcrawl.runtime.loop import run_async
from zcrawl.submit.code import code_of
from zcrawl.worker import spider_protocol as wire
from zcrawl.worker.extensions.spiders import SpiderProcess

SECRET = "hunter2-of-the-worker"
NOBODY = 65534
SPIDER = """
import os
from pathlib import Path
from zcrawl.spider import Spider

def attempt(path):
    try:
        return Path(path).read_bytes().decode("latin-1")
    except OSError as error:
        return type(error).__name__

def ancestors():
    pid = os.getppid()
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

class Test(Spider):
    def __init__(self, paths=()):
        self.paths = paths

    def parse(self, page):
        fds = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                fds.append(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError:
                pass  # the listing's own
        (worker, *others) = ancestors()
        own = [pid for pid in (worker, *others) if b"zcrawl" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        yield {
            "environ": dict(os.environ),
            "fds": fds,
            "memory": {str(pid): attempt(f"/proc/{pid}/environ") for pid in own},
            "mem": attempt(f"/proc/{worker}/mem"),
            "paths": {path: attempt(path) for path in self.paths},
            "etc": attempt("/etc/hostname"),
        }
"""  # noqa: E501
# Run by a process that is nobody: a parent with a secret, and a child that looks for it.
AS_NOBODY = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from zcrawl.runtime.confine import confine, hide_memory
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # becoming somebody else had closed it already
if "hide" in sys.argv: hide_memory()
list(os.scandir("/dev/fd")); open("/proc/self/statm").read()  # what a worker needs of itself
parent = os.getpid()
if os.fork() == 0:
    if "hide" in sys.argv: ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as exec does
    if "confine" in sys.argv: assert confine([sys.argv[2]]) == ""
    for path in (f"/proc/{{parent}}/environ", f"/proc/{{parent}}/mem", sys.argv[2]):
        try:
            open(path, "rb", buffering=0)
            print("read", end=" ")
        except OSError as error:
            print(type(error).__name__, end=" ")
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""


def environment() -> dict[str, str]:
    return {**os.environ, "ZCRAWL_SECRET_PW": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET}


def test_a_spider_has_no_secret_of_its_worker(tmp_path: Path) -> None:
    """Neither in its environment nor in that of the processes above it, in no descriptor, and not
    in the worker's memory. `crawl` itself, its workers, and `test`, which has none."""
    (tmp_path / "s.py").write_text(SPIDER)
    with echo_site() as site:
        site.pages = {"/": b"<title>t</title>"}
        (tmp_path / "j.toml").write_text(
            f'name = "j"\nseeds = ["{site.origin}/"]\nspider = "s.py:Test"\n'
            "[fetch]\nallow_private = true\n"
        )
        for args in (
            ["crawl", "--job", "j.toml", "--workers", "1", "--out", "out.jsonl"],
            ["test", "j.toml", f"{site.origin}/", "--json"],
        ):
            done = subprocess.run(
                [*ZCRAWL, *args],
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            if args[0] == "crawl":
                (item,) = items(tmp_path / "out.jsonl")
            else:
                (item,) = json.loads(done.stdout)["items"]
            check(item)


def check(item: dict[str, Any]) -> None:
    assert not [name for name in item["environ"] if name.startswith(("ZCRAWL", "AWS"))]
    assert SECRET not in json.dumps(item)
    assert item["memory"]
    assert set(item["memory"].values()) == {"PermissionError"}
    assert item["mem"] == "PermissionError"
    files = [fd for fd in item["fds"] if fd.startswith("/")]
    assert all(fd.endswith(("workers.err", "null")) for fd in files), files


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_a_spider_of_a_cluster_cannot_read_the_workers_key(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Nor the configuration, which may hold passwords; all other files it can."""
    keys = tmp_path / "keyed"
    keys.mkdir()
    with (
        page_site(tmp_path, 1) as site,
        keyed(keys, consul, mysql, cluster__allow_code=True) as made,
    ):
        secret = [*keys.glob("*.key"), *keys.glob("w*.toml")]
        assert len(secret) >= 2
        paths = [str(path) for path in secret if path.name.startswith("w")]
        source = code_of(SPIDER.encode(), "s.py")
        args: dict[str, Any] = {
            "code": source,
            "spider": "s.py:Test",
            "spider_args": {"paths": paths},
        }
        _, run = made.made.submit(site, fetch=Fetch(allow_private=True), **args)
        made.made.wait_done(run)
        rows = made.made.rows("SELECT data FROM items")
        item = json.loads(rows[0][0])
        assert set(item["paths"].values()) == {"PermissionError"}, item["paths"]
        assert item["etc"] not in ("", "PermissionError")
        assert set(item["memory"].values()) == {"PermissionError"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("means", "seen"),
    [
        ([], "read read read"),
        (["hide"], "PermissionError PermissionError read"),
        (["confine"], "PermissionError PermissionError PermissionError"),
        (["hide", "confine"], "PermissionError PermissionError PermissionError"),
    ],
)
def test_each_means_works_for_a_plain_user(tmp_path: Path, means: list[str], seen: str) -> None:
    """Without either of them the secret is read: that is what they close."""
    if "confine" in means and not landlock_version():
        pytest.skip("this kernel has no Landlock")
    key = Path("/dev/shm") / f"zcrawl-test-{os.getpid()}" / "key"  # where nobody gets
    key.parent.mkdir()
    try:
        key.write_text(SECRET)
        key.parent.chmod(0o755)
        key.chmod(0o644)
        source = Path(__file__).parents[2]
        command = [sys.executable, "-c", AS_NOBODY.format(nobody=NOBODY)]
        done = subprocess.run(
            [*command, str(source), str(key), *means],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
        )
    finally:
        key.unlink()
        key.parent.rmdir()
    assert done.stdout.strip() == seen, done.stderr


async def test_the_reader_of_main_content_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads foreign pages with a large library: it gets the same small environment."""
    monkeypatch.setenv("ZCRAWL_SECRET_PW", SECRET)
    reader = ContentReader()
    try:
        await reader.read(b"<p>text</p>", "text/html", "http://x.test/")
        assert reader._child is not None
        environ, status = about(reader._child.pid)
        assert b"PATH=" in environ
        assert SECRET.encode() not in environ
        assert "NoNewPrivs:\t1" in status
    finally:
        await reader.close()


def about(pid: int) -> tuple[bytes, str]:
    """The environment and the state of a process."""
    folder = Path(f"/proc/{pid}")
    return (folder / "environ").read_bytes(), (folder / "status").read_text()


def test_no_descriptor_of_the_worker_reaches_its_spider(tmp_path: Path) -> None:
    """Not even one that the worker itself was given to hand on, on either event loop."""
    (tmp_path / "secret").write_text(SECRET)
    descriptor = os.open(tmp_path / "secret", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    load = wire.Load("s.py:Test", SPIDER.encode(), {}, 1_000_000_000, 0)
    page = wire.Handle("http://x.test/", "http://x.test/", 200, [], b"", "", {}, 0, None, 2)

    async def ask() -> dict[str, Any]:
        process = SpiderProcess(load, 30.0)
        try:
            (item,) = (await process.ask(page)).items
        finally:
            await process.close()
        fields: dict[str, Any] = json.loads(item)
        return fields

    try:
        for run in (run_async, asyncio.run):
            assert not [fd for fd in run(ask())["fds"] if "secret" in fd]
    finally:
        os.close(descriptor)
