"""A running master follows its list of keys."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from zcrawl.mesh.security import AllowedKey
from zcrawl.mesh.sockets.keys import AllowList
from zcrawl.roles.allow_list import follow_allow_list

A, B = "a" * 64, "b" * 64


async def test_a_changed_list_is_applied_and_a_wrong_one_is_told_once(tmp_path: Path) -> None:
    """The keys that were allowed stay so while the file is wrong or gone."""
    path = tmp_path / "allowed"
    path.write_text(f"{A} w1\n")
    file = AllowList(path)
    applied: list[Mapping[str, AllowedKey]] = []
    events: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    assert file.poll() == {A: AllowedKey("w1")}

    def log(name: str, detail: str) -> None:
        events.put_nowait((name, detail))

    task = asyncio.create_task(follow_allow_list(file, applied.append, log, 0.001))
    async with asyncio.timeout(20):
        path.write_text(f"{A} w1\n{B} w2\n")
        assert (await events.get())[0] == "allow_list_read"
        path.unlink()
        assert (await events.get())[0] == "bad_allow_list"
        path.write_text("nonsense and more\n")
        assert "64 hexadecimal digits" in (await events.get())[1]
        assert applied == [{A: AllowedKey("w1"), B: AllowedKey("w2")}]
        path.write_text(f"{B} w2\n")
        while (await events.get())[0] != "allow_list_read":
            pass
    task.cancel()
    assert applied[1:] == [{B: AllowedKey("w2")}]
