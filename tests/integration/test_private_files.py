"""Files that zcrawl makes are closed to other users, whatever the umask."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import cluster
from tests.integration.crawling import ZCRAWL, command, wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import page_site
from tests.web.echo_site import EchoSite, echo_site
from zcrawl.model.spec import OutputSpec
from zcrawl.roles.client import is_live

UMASKS = [0o022, 0o000]
SPIDER = """
from pathlib import Path
from zcrawl.spider import Spider

class Test(Spider):
    def parse(self, page):
        Path("spider-was-here").write_text("x")
        yield {"url": page.url}
"""


@pytest.fixture
def site() -> Iterator[EchoSite]:
    with echo_site() as server:
        server.pages = {"/": b"<title>t</title><a href=/b>b</a>", "/b": b"<title>b</title>"}
        yield server


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(folder: Path) -> dict[str, str]:
    """Everything in the folder, and itself, that others may read, write or enter."""
    modes = {}
    for path in [folder, *folder.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            if mode(path) & 0o77:
                modes[str(path.relative_to(folder.parent))] = f"{mode(path):o}"
    return modes


def job(folder: Path, site: EchoSite, more: str = "", top: str = "") -> str:
    (folder / "j.toml").write_text(
        f'name = "j"\nseeds = ["{site.origin}/"]\n{top}\n[politeness]\nrate = 0.0\n'
        f"[fetch]\nallow_private = true\n{more}"
    )
    return "j.toml"


def crawl(folder: Path, umask: int, *args: object, **options: Any) -> str:
    done = command("crawl", *args, "--data", "d", cwd=folder, umask=umask, **options)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_a_data_folder_is_closed_to_others(tmp_path: Path, umask: int, site: EchoSite) -> None:
    """Database, log, bodies, and outputs of every format, also with parts and folders."""
    to = '["jsonl", "csv", "parquet", "warc", "sub/{name}-{part}.jsonl"]'
    output = f"[output]\nto = {to}\nrotate_bytes = 1\nkeep_html = true\n"
    crawl(tmp_path, umask, "--job", job(tmp_path, site, output))
    crawl(tmp_path, umask, f"{site.origin}/", "--allow-private", "--name", "plain")
    names = {path.suffix for path in (tmp_path / "d").rglob("*")}
    assert {".db", ".log", ".jsonl", ".csv", ".parquet", ".gz"} <= names
    assert (tmp_path / "d" / "blobs").is_dir()
    assert (tmp_path / "d" / "sub").is_dir()
    assert open_to_others(tmp_path / "d") == {}
    assert {mode(path) for path in (tmp_path / "d").rglob("*") if path.is_file()} == {0o600}


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_what_a_user_names_is_the_users(tmp_path: Path, umask: int, site: EchoSite) -> None:
    """`--out` of crawl and export outside the data folder, and `init`, follow the user's umask;
    a file that was there keeps its mode, and `--out` into the data folder is private."""
    usual = 0o666 & ~umask
    (tmp_path / "kept.jsonl").touch()
    (tmp_path / "kept.jsonl").chmod(0o640)
    start = [f"{site.origin}/", "--allow-private"]
    for name in ("a.jsonl", "a.csv", "a.parquet", "a.warc.gz", "kept.jsonl"):
        crawl(tmp_path, umask, *start, "--out", name)
    crawl(tmp_path, umask, *start, "--out", "d/within.jsonl")
    for args in (
        ["export", "1", "--data", "d", "--out", "e.jsonl"],
        ["export", "1", "--data", "d", "--out", "e.parquet"],
        ["export", "1", "--data", "d", "--out", "d/e.jsonl"],
        ["init", "mine", "--spider"],
    ):
        done = command(*args, cwd=tmp_path, umask=umask)
        assert done.returncode == 0, done.stderr
    names = ["a.jsonl", "a.csv", "a.parquet", "a.warc.gz", "e.jsonl", "e.parquet"]
    names += ["mine.toml", "mine.py", "test_mine.py"]
    assert {name: f"{mode(tmp_path / name):o}" for name in names} == dict.fromkeys(
        names, f"{usual:o}"
    )
    assert mode(tmp_path / "kept.jsonl") == 0o640
    assert open_to_others(tmp_path / "d") == {}


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_keys_lists_recordings_and_demos_are_private(tmp_path: Path, umask: int) -> None:
    """Whatever command makes them."""
    public = command("keys", "new", "k.key", cwd=tmp_path, umask=umask).stdout.strip()
    for args in (
        ["keys", "allow", public, "--name", "w", "--file", "allowed"],
        ["demo", "--workers", "1"],
    ):
        done = command(*args, cwd=tmp_path, umask=umask)
        assert done.returncode == 0, done.stderr
    assert (mode(tmp_path / "k.key"), mode(tmp_path / "allowed")) == (0o600, 0o600)
    assert open_to_others(tmp_path / "zcrawl-demo") == {}


def test_a_running_cluster_is_closed_to_others(tmp_path: Path, site: EchoSite) -> None:
    """Sockets, the file that names them, the lock, what a submitted job makes, and a recording of
    the console."""
    up = subprocess.Popen(
        [*ZCRAWL, "up", "--workers", "1", "--data", "d"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        umask=0,
    )
    try:
        wait_until(lambda: is_live(tmp_path / "d"))
        submit = ["submit", f"{site.origin}/", "--allow-private", "--wait", "--data", "d"]
        done = command(*submit, "--out", "mine.jsonl", cwd=tmp_path, umask=0)
        assert done.returncode == 0, done.stderr
        assert open_to_others(tmp_path / "d") == {}
        assert list((tmp_path / "d" / "run").iterdir())
        # The file comes a moment after the end of the run, and its mode a moment after the file.
        mine = tmp_path / "mine.jsonl"
        wait_until(lambda: mine.exists() and mode(mine) == 0o666)
        tape = ["console", "--data", "d", "--record", "tape"]
        console = subprocess.Popen(
            [*ZCRAWL, *tape],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TEXTUAL_DRIVER": "textual.drivers.headless_driver:HeadlessDriver"},
            umask=0,
        )
        try:
            wait_until(lambda: (tmp_path / "tape").exists())
            assert mode(tmp_path / "tape") == 0o600
        finally:
            console.kill()
            console.wait(30)
    finally:
        up.terminate()
        up.wait(30)
    assert open_to_others(tmp_path / "d") == {}


def test_spiders_and_browsers_make_private_files(tmp_path: Path, site: EchoSite) -> None:
    """They inherit the umask: a screenshot in the blobs, and a file that a spider writes."""
    (tmp_path / "s.py").write_text(SPIDER)
    crawl(tmp_path, 0, "--job", job(tmp_path, site, top='spider = "s.py:Test"'))
    assert mode(tmp_path / "spider-was-here") == 0o600
    more = 'engine = "browser"\n[browser]\nscreenshot = "view"\n'
    crawl(tmp_path, 0, "--job", job(tmp_path, site, more), "--max-pages", "1")
    assert [path for path in (tmp_path / "d" / "blobs").rglob("*") if path.is_file()]
    assert open_to_others(tmp_path / "d") == {}


def test_a_folder_that_was_open_before_is_warned_of_and_its_files_are_closed(
    tmp_path: Path, site: EchoSite
) -> None:
    """The folder may be open for a reason; the database in it, which is ours, is closed."""
    data = tmp_path / "d"
    start = [f"{site.origin}/", "--allow-private"]
    crawl(tmp_path, 0, *start)
    assert "is open to other users" not in command("doctor", "--data", "d", cwd=tmp_path).stdout
    data.chmod(0o755)
    for name in ("zcrawl.db", "zcrawl.log"):
        (data / name).chmod(0o644)
    warned = crawl(tmp_path, 0, *start)
    assert "is open to other users (mode 755)" in warned
    assert "chmod 700" in warned
    assert open_to_others(data) == {"d": "755"}
    assert "is open to other users" in command("doctor", "--data", "d", cwd=tmp_path).stdout
    assert "data_folder_open" in (data / "zcrawl.log").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_warned_of(tmp_path: Path, site: EchoSite) -> None:
    """Its owner can replace what lies there; the folder stays as it is."""
    data = tmp_path / "d"
    data.mkdir(0o700)
    os.chown(data, 65534, 65534)
    assert "belongs to another user (uid 65534)" in crawl(
        tmp_path, 0, f"{site.origin}/", "--allow-private"
    )
    assert (data.stat().st_uid, mode(data)) == (65534, 0o700)
    assert open_to_others(data) == {}


def test_masters_and_workers_of_a_cluster_make_private_files(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Their data folders, with what workers and masters remember, and the bodies."""
    before = os.umask(0)
    try:
        with (
            page_site(tmp_path, 20) as pages,
            cluster(tmp_path, consul.url, mysql, masters=1, workers=1) as made,
        ):
            _, run = made.submit(pages, output=OutputSpec(keep_html=True, to=("jsonl",)))
            made.complete(run)
            data = [tmp_path / "m1", tmp_path / "w1"]
            wait_until(lambda: list(data[0].glob("outputs/*.jsonl")) != [])
            assert (data[1] / "lives.json").exists()
            assert (data[1] / "pulses").is_dir()
            assert [open_to_others(folder) for folder in data] == [{}, {}]
    finally:
        os.umask(before)
