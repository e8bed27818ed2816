"""Stored secrets end to end: they reach their host, and are found nowhere else.

A cluster of `zcrawl up` with secrets in its configuration and in its store crawls a site.
Then everything that it left is searched: files, outputs, logs, the database, and
the command line and environment of each of its processes.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import ZCRAWL, children, command, wait_until
from tests.web import WebThread

STORED = "Planted-stored-7c1f9"
CONFIGURED = "Planted-configured-55ab2"
OLD = "Planted-replaced-e03d4"
PLANTED = (STORED, CONFIGURED, OLD)
WORDS = tuple(
    form for value in PLANTED for form in (value.encode(), base64.b64encode(value.encode()))
)


class Up:
    """A cluster in a folder, with a key for secrets and a secret in its configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs: list[str] = []
        token = folder / "private" / "token"
        token.parent.mkdir()
        token.write_text(f"{CONFIGURED}\n")
        token.chmod(0o600)
        self.run("secret", "key", "vault.key")
        (folder / "zcrawl.toml").write_text(
            f'[vault]\nkey_file = "{folder}/vault.key"\n[console]\ntheme = "${{file:{token}}}"\n'
        )
        self.process = subprocess.Popen(
            [*ZCRAWL, "up", "--workers", "1"], cwd=folder, stderr=subprocess.PIPE, text=True
        )

    def run(self, *args: object, **options: Any) -> str:
        done = command(*args, cwd=self.folder, **options)
        self.outputs += [done.stdout, done.stderr]
        return done.stdout

    def processes(self) -> list[int]:
        pids = [self.process.pid]
        for pid in pids:
            pids += children(pid)
        return pids

    def job(self) -> dict[str, Any]:
        text = self.run("job", "echo", "--json")
        return dict(json.loads(text)) if text else {}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path)
    try:
        wait_until(lambda: '"idle"' in made.run("nodes", "--json"))
        yield made
    finally:
        made.process.send_signal(signal.SIGTERM)
        _, errors = made.process.communicate(timeout=40)
    made.outputs.append(errors)


def traces_in_files(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "token"]
    assert files
    return [str(path) for path in files if any(word in path.read_bytes() for word in WORDS)]


def traces_in_processes(pids: list[int]) -> list[str]:
    return [
        f"/proc/{pid}/{name}"
        for pid in pids
        for name in ("cmdline", "environ")
        if any(word in Path(f"/proc/{pid}/{name}").read_bytes() for word in WORDS)
    ]


def test_a_planted_secret_is_found_nowhere_but_at_its_host(up: Up, tmp_path: Path) -> None:
    """The run waits until the secret is stored, and sends it to its host. No trace of it is left,
    nor of a value that was replaced, nor of one in the configuration."""
    with WebThread() as web:
        job = f'name = "echo"\nseeds = ["{web.url("/good/2/0")}"]\n[fetch]\nallow_private = true\n'
        job += '[fetch.headers]\nX-Api-Key = "${secret:API}"\n'
        job += '[output]\nto = ["jsonl"]\n'
        (tmp_path / "echo.toml").write_text(job)
        up.run("submit", "echo.toml")
        wait_until(lambda: str(up.job().get("reason", "")).startswith("no_such_secret"))
        assert not web.log
        # A release to no host: the value is stored, and the run does not send it.
        up.run("secret", "set", "OTHER", input=f"{OLD}\n")
        up.run("secret", "set", "OTHER", input=f"{OLD}-again\n")
        up.run("secret", "set", "API", "--host", "127.0.0.1", input=f"{STORED}\n")
        wait_until(lambda: up.job().get("state") == "completed")
        sent = {hit.headers.get("x-api-key") for hit in web.log if hit.path != "/robots.txt"}
        assert sent == {STORED}
    up.run("secret", "list")
    up.run("config", "show")
    up.run("export", "echo")
    assert traces_in_processes(up.processes()) == []
    assert traces_in_files(tmp_path) == []
    assert not any(value in text for text in up.outputs for value in PLANTED)
