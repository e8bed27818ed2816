"""What only the file backend can show: it shares its lock with the embedded form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.coord_backends import FileBackend
from zcrawl.coord.agents.local_lock import LOCK_NAME, FileLock, is_locked
from zcrawl.coord.ports import CoordAway, CoordBack, LeaderSeen, MastersChanged, Role
from zcrawl.errors import RefusedError


async def test_an_embedded_cluster_is_refused_while_a_master_leads(tmp_path: Path) -> None:
    """One folder, one leader, whichever form it has; the process is named."""
    backend = FileBackend(tmp_path)
    master = backend.begin(Role.MASTER, "m1")
    assert await backend.until(lambda: master.leads)
    assert is_locked(tmp_path)
    with pytest.raises(RefusedError, match=rf"in use by process {master.me.pid}\."):
        await FileLock(tmp_path).acquire(0.1)
    await backend.end()
    lock = FileLock(tmp_path)
    assert (await lock.acquire(1.0)).alone
    lock.release()


async def test_a_master_waits_for_an_embedded_cluster(tmp_path: Path) -> None:
    """It is told that somebody leads who is no master, and leads when the folder is free."""
    lock = FileLock(tmp_path)
    await lock.acquire(1.0)
    backend = FileBackend(tmp_path)
    master = backend.begin(Role.MASTER, "m1")
    assert await backend.until(lambda: (seen := master.last(LeaderSeen)) and seen.detail)
    assert not master.leads
    lock.release()
    assert await backend.until(lambda: master.leads)
    await backend.end()


async def test_garbage_and_dead_members_in_the_folder_harm_nobody(tmp_path: Path) -> None:
    """Unreadable files are no members; the leader removes what nobody holds."""
    (tmp_path / LOCK_NAME).write_bytes(b"\xff\xfe garbage")
    (tmp_path / "members").mkdir()
    dead = tmp_path / "members" / "zcrawl%3Amaster%3Aprod%3Am7"
    dead.write_bytes(b"{" * 1000)
    backend = FileBackend(tmp_path)
    master = backend.begin(Role.MASTER, "m1")
    assert await backend.until(lambda: master.leads)
    assert await backend.until(lambda: (seen := master.last(MastersChanged)) and seen.masters)
    seen = master.last(MastersChanged)
    assert seen is not None and [one.member for one in seen.masters] == [master.me]
    assert not dead.exists()
    await backend.end()


async def test_a_missing_folder_is_waited_for(tmp_path: Path) -> None:
    """Told once with its name; when it can be used all goes on."""
    data = tmp_path / "data"
    data.write_text("a file where the folder should be")
    backend = FileBackend(data)
    master = backend.begin(Role.MASTER, "m1")
    assert await backend.until(lambda: master.last(CoordAway))
    data.unlink()
    data.mkdir()
    assert await backend.until(lambda: master.leads and master.last(CoordBack))
    assert len(master.all(CoordAway)) == 1
    await backend.end()
