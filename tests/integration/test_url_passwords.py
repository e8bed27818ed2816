"""A password in a typed URL: sent to its host, and to be found nowhere afterwards."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.crawling import command, start, wait_until
from tests.web import WebThread
from zcrawl.submit.url_logins import typed_secrets

USER, PASSWORD = "crawler-7", "hunter2-secret"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
TRACES = (PASSWORD.encode(), USER.encode(), BASIC.split()[1].encode())


def with_login(url: str) -> str:
    return url.replace("http://", f"http://{USER}:{PASSWORD}@", 1)


def traces_in(folder: Path) -> list[str]:
    """Files that hold the user name or the password, in any form."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if any(word in _content(path) for word in TRACES)]


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


@pytest.mark.parametrize("engine", ["http", "httpx", "browser"])
def test_the_login_goes_to_its_host_and_into_no_file(tmp_path: Path, engine: str) -> None:
    """A page that links and redirects to another port, with logins of its own in the URLs: that
    server gets no Authorization. Database, log, items, archive and views hold no trace of it."""
    with WebThread() as web, WebThread() as other:
        there = f"http://x:y@127.0.0.1:{other.port}/status/200"
        seeds = [web.url(f"/links-to?{there}"), web.url(f"/redirect-to?{there}?moved")]
        job = f'name = "j"\n[fetch]\nengine = "{engine}"\nallow_private = true\n'
        job += '[scope]\nhosts = ["*"]\nmax_depth = 1\n[output]\nto = ["jsonl", "warc"]\n'
        (tmp_path / "job.toml").write_text(job)
        flags = ("--job", "job.toml", "--rate", 0, "--workers", 1, "--data", "d", "--json", "-v")
        done = command("crawl", *map(with_login, seeds), *flags, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        view = command("job", "1", "--data", "d", "--json", cwd=tmp_path)
        hits = [hit for hit in web.log if hit.path != "/favicon.ico"]
        assert {hit.headers.get("authorization") for hit in hits} == {BASIC}
        assert {hit.path for hit in other.log} >= {"/status/200", "/status/200?moved"}
        assert not any("authorization" in hit.headers for hit in other.log)
    assert traces_in(tmp_path / "d") == []
    for text in (done.stdout, done.stderr, view.stdout, view.stderr):
        assert not any(word.decode() in text for word in TRACES)


def test_after_an_interruption_the_password_has_to_be_given_again(tmp_path: Path) -> None:
    """It is not kept: `--resume` says which variables to set, before a page fails for want of
    them, and goes on when they are there."""
    with WebThread() as web:
        flags = ("--rate", 20, "--workers", 1, "--data", "d")
        crawl = start("crawl", with_login(web.url("/good/60/0")), *flags, cwd=tmp_path)
        wait_until(lambda: len(web.log) > 5)
        crawl.send_signal(signal.SIGINT)
        _, errors = crawl.communicate(timeout=60)
        assert crawl.returncode == 130, errors
        name = f"ZCRAWL_SECRET_URL_127_0_0_1_{web.port}"
        assert name in errors
        refused = command("crawl", "--resume", "--data", "d", "--workers", 1, cwd=tmp_path)
        assert refused.returncode == 2
        assert name in refused.stderr
        given = {**os.environ, name: PASSWORD, f"{name}_USER": USER}
        resumed = command(
            *("crawl", "--resume", "--data", "d", "--workers", 1, "--json"), cwd=tmp_path, env=given
        )
        summary = json.loads(resumed.stdout.splitlines()[-1])
        assert (resumed.returncode, summary["pages"], summary["failed"]) == (0, 60, 0)
        assert {hit.headers.get("authorization") for hit in web.log} == {BASIC}
    assert traces_in(tmp_path / "d") == []


@pytest.mark.parametrize("form", ["url", "file", "list"])
def test_whoever_cannot_deliver_a_password_refuses_the_url(tmp_path: Path, form: str) -> None:
    """`submit` has no way to the workers' environment; it says what to write instead, and nothing
    of the URL's login."""
    url = with_login("http://127.0.0.1:9999/")
    (tmp_path / "job.toml").write_text(f'name = "j"\nseeds = ["{url}"]\n')
    (tmp_path / "list").write_text(url + "\n")
    args = {"url": (url,), "file": ("job.toml",), "list": ("--seeds", "list", "--name", "j")}[form]
    done = command("submit", *args, "--data", "d", "--json", cwd=tmp_path)
    assert done.returncode == 2
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert error["code"] == "password_in_url"
    assert "[[fetch.auth]]" in error["message"]
    assert not any(word.decode() in done.stdout + done.stderr for word in TRACES)


def test_zcrawl_test_uses_and_hides_it_too(tmp_path: Path) -> None:
    """The report of one page has no trace of it."""
    with WebThread() as web:
        done = command("test", with_login(web.url("/status/200")), "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert {hit.headers.get("authorization") for hit in web.log} == {BASIC}
    assert not any(word.decode() in done.stdout + done.stderr for word in TRACES)


def test_typed_secrets_are_named_in_the_stored_spec_only() -> None:
    """A job without typed logins needs nothing to be resumed."""
    assert typed_secrets(b'{"name":"j","fetch":{"auth":[{"host":"a","bearer":"${T}"}]}}') == []
