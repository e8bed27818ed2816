"""Users, tokens and the audit by the commands, on `zcrawl up` and in an idle folder."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import ZCRAWL, command, wait_until


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Path]:
    process = subprocess.Popen(
        [*ZCRAWL, "up", "--workers", "1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until(lambda: run(tmp_path, "nodes").get("workers"))
        yield tmp_path
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=40)
    assert process.returncode == 0


def run(folder: Path, *args: str) -> Any:
    return json.loads(command(*args, "--json", cwd=folder).stdout)


def files_with(folder: Path, text: str) -> list[Path]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in paths if text.encode() in path.read_bytes()]


def test_a_token_is_made_listed_and_revoked_and_nobody_stores_it(up: Path) -> None:
    """The audit has each step; no file of the folder has the token: no database, no log."""
    made = run(up, "token", "create", "--admin", "--days", "2")
    token, prefix = made["token"], made["prefix"]
    assert token.startswith(f"{prefix}_")
    assert (made["user"], made["role"]) == ("admin", "admin")
    run(up, "user", "add", "ann", "--right", "code", "--max-live-runs", "3")
    anns = run(up, "token", "create", "--user", "ann", "--role", "viewer")
    refused = run(up, "token", "create", "--user", "ann", "--role", "operator")
    assert refused["error"]["code"] == "role_too_high"
    assert run(up, "user", "disable", "ann")["user"]["disabled"]
    listed = run(up, "token", "list")["tokens"]
    assert [row["prefix"] for row in listed] == [anns["prefix"], prefix]
    assert run(up, "token", "revoke", token)["token"]["revoked_at"] > 0
    ops = ["user_add", "token_create", "user_add", "token_create", "token_create", "user_change"]

    def lines() -> list[tuple[str, str]]:
        rows = run(up, "audit")["rows"][::-1]
        return [(row["op"], row["result"]) for row in rows]

    results = ["ok"] * 4 + ["role_too_high", "ok", "ok"]
    expected = sorted(zip([*ops, "token_revoke"], results, strict=True))
    wait_until(lambda: sorted(lines()) == expected)
    assert {row["through"] for row in run(up, "audit")["rows"]} == {"socket"}
    for raw in (token, anns["token"]):
        assert files_with(up, raw[len(prefix) + 1 :]) == []
        assert files_with(up, raw) == []
    assert files_with(up, prefix) != []  # the search would find it


def test_the_first_admin_and_the_archive_without_a_running_cluster(tmp_path: Path) -> None:
    """In a folder of a crawl that has ended. The archive has the lines, and the audit has a line
    about it; a file that exists is not written."""
    command("submit", "https://a.test/", "--json", cwd=tmp_path)
    from zcrawl.store.sql.store import open_sqlite

    open_sqlite(tmp_path / "zcrawl-data" / "zcrawl.db").close()
    token = command("token", "create", "--admin", cwd=tmp_path).stdout.strip()
    assert len(token) == len("zc_ab12cd34_") + 43
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    args = ("audit", "--archive", "old.jsonl", "--before", tomorrow)
    assert run(tmp_path, *args)["removed"] == 2
    archived = [json.loads(line) for line in (tmp_path / "old.jsonl").read_text().splitlines()]
    assert [row["op"] for row in archived] == ["user_add", "token_create"]
    (line,) = run(tmp_path, "audit")["rows"]
    assert (line["op"], line["detail"].startswith("2 lines removed")) == ("audit_archive", True)
    assert run(tmp_path, *args)["error"]["code"] == "usage"
