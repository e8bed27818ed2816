"""Output files beside a master that leads, is deposed, and leads again."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from tests.unit.machine_tools import UTC, LeaderStory, result_of, urls
from zcrawl.errors import ZcrawlError
from zcrawl.master.driver import output_writer
from zcrawl.master.driver.outputs import OutputLoop
from zcrawl.master.driver.store_threads import StoreThreads
from zcrawl.model.log_event import Log
from zcrawl.outputs.files.folder import OutputPlaces
from zcrawl.outputs.files.growing import OutputFile
from zcrawl.store.commands import Command, CommandOutcome
from zcrawl.store.queries import Query, QueryOutcome, ReadItems, ReadOutputs, Tallies, TallyRows
from zcrawl.submit.output_rights import OutputRights
from zcrawl.testing.store.store import FakeStore


class Watched:
    """A store that calls a function before it answers, in the store's thread."""

    def __init__(self, inner: FakeStore) -> None:
        self.inner = inner
        self.before: Callable[[Query], None] = lambda query: None

    def execute(self, command: Command) -> CommandOutcome:
        return self.inner.execute(command)

    def query(self, query: Query) -> QueryOutcome:
        self.before(query)
        return self.inner.query(query)

    def close(self) -> None:
        pass


class Scene:
    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "out.jsonl"
        self.story = LeaderStory().elect()
        self.epoch = 1
        self.store = Watched(self.story.store)
        self.threads = StoreThreads(self.store, lambda name, detail, **fields: None)
        self.notes: asyncio.Queue[str] = asyncio.Queue()
        self.outputs = self.loop(
            lambda: self.epoch, lambda name, detail, **fields: self.notes.put_nowait(name)
        )

    def loop(self, epoch: Callable[[], int], note: Log) -> OutputLoop:
        places = OutputPlaces(self.path.parent, self.path.parent, OutputRights(owner=True))
        return OutputLoop(
            self.threads,
            epoch,
            note,
            places,
            lambda: UTC,
            lambda hash: b"",
            master="m1",
            alone=True,
        )

    def crawl(self, pages: int, path: str, name: str = "job") -> None:
        spec = {"name": name, "politeness": {"robots": False, "rate": 0, "concurrency": 99}}
        seeds = urls(pages, f"{name}.test")
        before = len(self.story.assigned())
        self.story.submit(*seeds, spec=spec, output=[path, "jsonl"])
        self.story.join(slots=pages)
        self.story.tick()
        for assignment in self.story.assigned()[before:]:
            self.story.report(result_of(assignment))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path)
    yield made
    await made.outputs.close()
    await made.threads.close()


async def test_committed_items_are_written(scene: Scene) -> None:
    """The rest of this file would prove nothing without it."""
    scene.crawl(3, str(scene.path))
    await scene.outputs.flush()
    assert scene.path.read_bytes() == b'{"n":1}\n' * 3


async def test_a_master_that_was_deposed_meanwhile_touches_no_file(scene: Scene) -> None:
    """Another one may write by now: what was read before is not appended after."""
    scene.crawl(3, str(scene.path))

    def depose(query: Query) -> None:
        if isinstance(query, ReadItems):
            scene.epoch = 0

    scene.store.before = depose
    await scene.outputs.flush()
    assert not scene.path.exists() or scene.path.read_bytes() == b""


async def test_a_file_is_opened_only_by_who_still_leads(scene: Scene) -> None:
    """Opening cuts the file: by then another master may have made it longer."""
    scene.crawl(3, str(scene.path))
    scene.path.write_bytes(b"of the next leader")

    def take_over(query: Query) -> None:
        if isinstance(query, ReadOutputs):
            LeaderStory(scene.story.store, "m2").elect()

    scene.store.before = take_over
    await scene.outputs.flush()
    assert scene.path.read_bytes() == b"of the next leader"
    assert scene.notes.get_nowait() == "output_fenced"


async def test_a_leader_of_a_later_epoch_does_not_commit_what_an_earlier_one_read(
    scene: Scene,
) -> None:
    """Deposed and elected again while a read was under way: the cursor may be another by now."""
    scene.crawl(3, str(scene.path))

    def elect_again(query: Query) -> None:
        if isinstance(query, ReadItems):
            LeaderStory(scene.story.store, "m2").elect()
            scene.epoch = LeaderStory(scene.story.store).elect().master.epoch
            scene.store.before = lambda query: None

    scene.store.before = elect_again
    await scene.outputs.flush()
    [output] = scene.story.store.tables.outputs.values()
    assert (output.cursor, output.length) == (0, 0)
    scene.outputs.forget()
    await scene.outputs.flush()
    assert scene.path.read_bytes() == b'{"n":1}\n' * 3


@pytest.mark.parametrize("bad", ["x" * 300 + ".jsonl", "a\0b.jsonl"])
async def test_a_name_that_cannot_be_opened_hinders_no_other_output(
    scene: Scene, tmp_path: Path, bad: str
) -> None:
    """One submission with a bad name must not end the writing for all."""
    scene.crawl(2, str(tmp_path / bad), name="bad")
    scene.crawl(3, str(scene.path), name="good")
    scene.outputs.start()
    async with asyncio.timeout(60):
        assert await scene.notes.get() == "output_unwritable"
        assert await scene.notes.get() == "output_unwritable", "it is tried again"
    assert scene.path.read_bytes() == b'{"n":1}\n' * 3


async def test_an_error_without_a_name_is_told_and_tried_again(scene: Scene) -> None:
    """A bug must not end the writing in silence."""
    scene.crawl(3, str(scene.path))
    written = asyncio.Event()
    scene.epoch = 0
    calls = 0

    def epoch() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("a bug")
        written.set()
        return 1

    outputs = scene.loop(
        epoch, lambda name, detail, **fields: scene.notes.put_nowait(f"{name} {detail}")
    )
    outputs.start()
    async with asyncio.timeout(60):
        note = await scene.notes.get()
        await written.wait()
    await outputs.close()
    assert note.startswith("output_internal_error")
    assert "a bug" in note


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OSError(errno.ENOSPC, "full"), "output_disk_full"),
        (PermissionError(errno.EACCES, "denied"), "output_store_unavailable"),
        (RuntimeError("a bug"), "output_internal_error"),
    ],
)
async def test_whatever_a_writer_raises_hinders_no_other_output(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, name: str
) -> None:
    """Libraries raise the system's own errors."""
    scene.crawl(2, str(tmp_path / "bad.jsonl"), name="bad")
    scene.crawl(3, str(scene.path), name="good")
    real = OutputFile.append

    def append(self: OutputFile, items: Sequence[bytes]) -> int:
        if self._path.name == "bad.jsonl":
            raise error
        return real(self, items)

    monkeypatch.setattr(OutputFile, "append", append)
    with pytest.raises(ZcrawlError):
        await scene.outputs.flush()
    assert scene.notes.get_nowait() == name
    assert scene.path.read_bytes() == b'{"n":1}\n' * 3


async def test_an_output_that_cannot_be_closed_is_told_and_hinders_no_other(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is kept; a plugin that raises at its end ends nothing else."""
    scene.crawl(2, str(tmp_path / "bad.jsonl"), name="bad")
    scene.crawl(3, str(scene.path), name="good")
    await scene.outputs.flush()
    closed = []
    real = OutputFile.close

    def close(self: OutputFile) -> None:
        closed.append(self._path.name)
        real(self)
        if self._path.name == "bad.jsonl":
            raise RuntimeError("a plugin that cannot even be closed")

    monkeypatch.setattr(OutputFile, "close", close)
    await scene.outputs.close()
    assert sorted(closed) == ["bad.jsonl", "out.jsonl"]
    assert scene.notes.get_nowait() == "output_not_closed"
    assert scene.notes.empty()


async def test_an_old_runs_output_that_cannot_be_written_fails_no_other_run(scene: Scene) -> None:
    """`flush` of a run raises its own problem; that of another run is logged and stored for
    `job`."""
    scene.path.parent.joinpath("folder.jsonl").mkdir()
    scene.crawl(2, str(scene.path.parent / "folder.jsonl"), name="old")
    scene.crawl(3, str(scene.path), name="new")
    old, new = sorted(scene.story.store.tables.runs)
    await scene.outputs.flush([new])
    assert scene.path.read_bytes() == b'{"n":1}\n' * 3
    with pytest.raises(ZcrawlError, match="is not a regular file"):
        await scene.outputs.flush([old])
    assert [run for run, _ in scene.outputs.troubles()] == [old]
    problem = problems(scene)[old]
    assert problem.startswith("[output_unwritable]")
    assert "is not a regular file" in problem
    scene.path.parent.joinpath("folder.jsonl").rmdir()
    await scene.outputs.flush([old])
    assert scene.outputs.troubles() == {}, "it is written now"
    assert problems(scene)[old] == "", "it is written now"


def problems(scene: Scene) -> dict[int, str]:
    """What `job` says of the outputs, by run."""
    problem_by_run = {}
    for run in scene.story.store.tables.runs:
        rows = scene.story.store.query(Tallies(run))
        assert isinstance(rows, TallyRows)
        problem_by_run[run] = rows.outputs[0].problem
    return problem_by_run


async def test_an_output_that_hangs_blocks_no_other_one_and_says_so(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call beyond its time limit is told; until it returns nothing else touches that output, and
    then it is written from the stored cursor."""
    monkeypatch.setattr(output_writer, "TAKE_S", 0.5)
    scene.crawl(2, str(tmp_path / "bad.jsonl"), name="bad")
    scene.crawl(3, str(scene.path), name="good")
    bad, good = sorted(scene.story.store.tables.runs)
    real, goes_on, writers = OutputFile.append, threading.Event(), []

    def append(self: OutputFile, items: Sequence[bytes]) -> int:
        if self._path.name == "bad.jsonl":
            writers.append(threading.get_ident())
            goes_on.wait(30)
        return real(self, items)

    monkeypatch.setattr(OutputFile, "append", append)
    scene.outputs.start()
    async with asyncio.timeout(60):
        assert await scene.notes.get() == "output_timeout"
        await scene.outputs.flush([good])
        assert await scene.notes.get() == "output_timeout", "it is tried again"
    assert scene.path.read_bytes() == b'{"n":1}\n' * 3
    assert len(writers) == 1, "not a second time beside the call that hangs"
    assert "[output_timeout]" in problems(scene)[bad]
    goes_on.set()
    async with asyncio.timeout(60):
        while problems(scene)[bad]:
            with contextlib.suppress(ZcrawlError):
                await scene.outputs.flush([bad])
    assert (tmp_path / "bad.jsonl").read_bytes() == b'{"n":1}\n' * 2


async def test_a_master_ends_although_an_output_hangs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread cannot be ended, so it is abandoned, and that is logged."""
    scene.crawl(3, str(scene.path))
    hangs, goes_on = threading.Event(), threading.Event()

    def append(self: OutputFile, items: Sequence[bytes]) -> int:
        hangs.set()
        goes_on.wait(30)
        return 0

    monkeypatch.setattr(OutputFile, "append", append)
    scene.outputs.start()
    await asyncio.to_thread(hangs.wait, 30)
    async with asyncio.timeout(5):
        await scene.outputs.close()
    assert scene.notes.get_nowait() == "output_not_closed"
    goes_on.set()
