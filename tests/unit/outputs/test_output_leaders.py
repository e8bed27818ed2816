"""Output files through failovers: leaders die, are paused anywhere, and wake up; the disk is full.

The real sinks on real files, in the order of the real script, effect by effect; only the store and
the clock are a test's. Whatever the story, each item is in the file that `job` names once, and a
leader that wakes up afterwards changes nothing in it.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from zcrawl.errors import Fenced, StoreUnavailable
from zcrawl.model.capture import Capture
from zcrawl.model.spec import JobSpec, OutputSpec
from zcrawl.outputs.files.folder import OutputPlaces
from zcrawl.outputs.files.growing import OutputFile
from zcrawl.outputs.files.parts import SinkTools
from zcrawl.outputs.files.sinks import Sink, open_sink
from zcrawl.outputs.script import Commit, Fence, Open, ReadRows, ScriptEffect, Write, write_output
from zcrawl.store import output_pieces as pieces
from zcrawl.store.output_mark import OutputMark, is_unfinished
from zcrawl.store.output_pieces import Writer
from zcrawl.store.queries import ItemRow, OutputRow
from zcrawl.submit.output_rights import OutputRights
from zcrawl.submit.outputs import part_path
from zcrawl.submit.read import to_json

pq = pytest.importorskip("pyarrow.parquet")
warcio = pytest.importorskip("warcio.archiveiterator")

FORMS = {"jsonl": "x.jsonl", "csv": "x.csv", "parquet": "x.parquet", "warc": "x.warc.gz"}
BEGAN = 1_000.0
BATCH = 2
LEADERS: list[Leader] = []  # of this test: dead processes leave their files open


@pytest.fixture(autouse=True)
def close_files() -> Iterator[None]:
    yield
    while LEADERS:
        LEADERS.pop().close()


def row_of(number: int, form: str) -> ItemRow:
    url = f"http://h.test/{number}"
    if form == "warc":
        headers = [("Content-Type", "text/html")]
        capture = Capture(url, url, 200, headers, [("User-Agent", "z")], 1e9, "", 1.0, 0, None)
        return ItemRow(number, msgspec.json.encode(capture))
    return ItemRow(number, json.dumps({"url": url, f"k{number % 3}": number}).encode())


def numbers_in(file: Path) -> list[int]:
    """The items of a complete file, which must be a valid one by itself."""
    data = file.read_bytes()
    if file.name.endswith(".parquet"):
        urls = pq.read_table(file)["url"].to_pylist()
    elif file.name.endswith(".csv"):
        urls = [row["url"] for row in csv.DictReader(io.StringIO(data.decode()))]
    elif file.name.endswith(".jsonl"):
        urls = [json.loads(line)["url"] for line in data.splitlines()]
    else:
        assert gzip.decompress(data)
        records = warcio.ArchiveIterator(io.BytesIO(data), check_digests="raise")
        entries = [(record.rec_type, record.rec_headers["WARC-Target-URI"]) for record in records]
        assert [kind for kind, _ in entries].count("warcinfo") == 1
        assert entries[0][0] == "warcinfo"
        urls = [url for kind, url in entries if kind == "response"]
    return [int(url.rpartition("/")[2]) for url in urls]


class World:
    """What the database holds, and a disk for each master, or one for all of them."""

    def __init__(self, folder: Path, form: str, *, disks: int = 1, **options: Any) -> None:
        self.form, self.ended, self.epoch, self.utc = form, False, 0, 100.0
        self.items: list[ItemRow] = []
        self.rotates = bool(options)
        self.mark = OutputMark(0, 0, 0, 0.0)
        self.disks = [folder / f"disk{n}" for n in range(disks)]
        # A spider's items: nobody knows the columns before.
        spider: dict[str, Any] = {"spider": "package:Spider"} if form in ("csv", "parquet") else {}
        self.spec = to_json(JobSpec("x", output=OutputSpec(**options), **spider))

    def add(self, count: int) -> None:
        first = len(self.items) + 1
        self.items += [row_of(n, self.form) for n in range(first, first + count)]

    def row(self) -> OutputRow:
        mark = self.mark
        return OutputRow(
            7,
            FORMS[self.form],
            self.form,
            mark.cursor,
            mark.length,
            len(self.items),
            mark.part,
            mark.part_at,
            self.ended,
            self.spec,
            mark.problem,
            mark.progress,
            BEGAN,
        )

    def elect(self, disk: int = 0) -> Leader:
        self.epoch += 1
        LEADERS.append(Leader(self, self.epoch, disk))
        return LEADERS[-1]

    def file_numbers(self) -> list[int]:
        """What is in the parts that `job` names, in their order."""
        numbers: list[int] = []
        for place in self.mark.progress.places:
            folder = Path(place.file).parent
            assert folder == self.disks[int(place.master[1:])]
            for part in range(place.first, place.last + 1):
                name = Path(part_path(FORMS[self.form], part, self.rotates)).name
                file = Path(place.file) if part == place.last else folder / name
                numbers += numbers_in(file)
        return numbers

    def check_complete(self) -> None:
        assert not is_unfinished(self.row())
        assert self.file_numbers() == [row.id for row in self.items]


class Leader:
    """A master that leads, or believes so."""

    def __init__(self, world: World, epoch: int, disk: int) -> None:
        self.world, self.epoch, self.over = world, epoch, False
        places = OutputPlaces(world.disks[disk], world.disks[disk], OutputRights())
        self.tools = SinkTools(places, lambda name: b"", Writer(f"m{disk}", epoch))
        self.sink: Sink | None = None
        self.script: Any = None
        self.outcome: Any = None
        self.effects = 0

    def step(self) -> bool:
        """One effect; False: nothing is left to do, or it does not lead any more."""
        if self.over:
            return False
        if self.script is None:
            row = self.world.row()
            self.script = write_output(row, self.sink, BATCH, lambda: self.world.utc)
            self.opening, self.outcome = row, None
        try:
            effect = self.script.send(self.outcome)
        except StopIteration:
            self.script = None
            row = self.world.row()
            return is_unfinished(row) and (row.ended or row.cursor < row.last_item)
        self.effects += 1
        try:
            self.outcome = self.perform(effect)
        except Fenced:
            self.close()
            self.over = True
            return False
        except (OSError, StoreUnavailable):
            self.close()  # as the loop does; it begins again by what is stored
        return True

    def perform(self, effect: ScriptEffect) -> Any:
        match effect:
            case Fence():
                self.fence()
            case Open():
                self.sink = open_sink(self.opening, self.tools)
                return self.sink
            case ReadRows(after, limit):
                return [row for row in self.world.items if row.id > after][:limit]
            case Write(_, call, _):
                return call()
            case Commit(mark):
                self.fence()
                pieces.check(mark.progress, mark.cursor)
                self.world.mark = mark
        return None

    def fence(self) -> None:
        if self.world.epoch != self.epoch:
            raise Fenced("another one leads")

    def run(self, most: int = 1_000) -> None:
        for _ in range(most):
            if not self.step():
                return
        assert most < 1_000, "it never ends"

    def close(self) -> None:
        if self.sink is not None:
            self.sink.close()
        self.sink = self.script = None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("disks", [1, 2])
def test_a_leader_may_be_paused_before_any_effect_and_wake_up_after_the_end(
    form: str, disks: int, tmp_path: Path
) -> None:
    """One pause at each place; the next leader finishes on the same disk or on one of its own; then
    the first goes on until the fence stops it. The file that `job` names does not change."""
    most = 1
    for pause in range(40):
        world = World(tmp_path / str(pause), form, disks=disks)
        world.add(5)
        first = world.elect(0)
        first.run(pause)
        world.ended = True
        world.add(3)
        second = world.elect(disks - 1)
        second.run()
        world.check_complete()
        first.run()
        first.close()
        world.check_complete()
        second.close()
        most = max(most, first.effects)
    assert most < 40, "every effect was tried"


@pytest.mark.parametrize("form", FORMS)
def test_a_leader_may_be_paused_at_the_end_of_the_run(form: str, tmp_path: Path) -> None:
    """Between its last fence and the rename, and everywhere around it. The run is then tried again
    (`zcrawl retry`): further items are in a further part, and the first part stays as it is."""
    for pause in range(40):
        world = World(tmp_path / str(pause), form)
        world.add(3)
        world.ended = True
        first = world.elect()
        first.run(pause)
        second = world.elect()
        second.run()
        world.check_complete()
        world.add(2)
        second.run()
        world.check_complete()
        first.run()
        first.close()
        world.check_complete()
        second.close()
        listed = sorted(path.name for path in world.disks[0].iterdir())
        left = [name for name in listed if name.startswith(".")]
        assert len(listed) - len(left) == 2, listed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "options", [{}, {"rotate_bytes": 100}, {"rotate_seconds": 3.0}], ids=["", "bytes", "seconds"]
)
def test_whatever_happens_to_leaders_each_item_is_there_once(
    form: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random stories: up to three leaders at a time, deaths, pauses, full disks, disks of their own
    or one for all."""
    for seed in range(25):
        chance = random.Random(seed)
        with monkeypatch.context() as patch:
            world = World(tmp_path / str(seed), form, disks=chance.choice([1, 1, 3]), **options)
            _tell_story(chance, world, patch)
        world.check_complete()


def _tell_story(chance: random.Random, world: World, patch: pytest.MonkeyPatch) -> None:
    leaders = [world.elect(0)]
    full = False
    real = OutputFile._put

    def put(self: OutputFile, file: Any, data: bytes, *, durable: bool = True) -> int:
        if full:
            file.write(data[: len(data) // 2])  # a piece of it arrives
            self._failed = True
            raise OSError(errno.ENOSPC, "full")
        return real(self, file, data, durable=durable)

    patch.setattr(OutputFile, "_put", put)
    for _ in range(chance.randint(20, 150)):
        world.utc += chance.choice([0.0, 0.1, 1.0])
        full = chance.random() < 0.1
        match chance.choice(["step"] * 8 + ["stale"] * 3 + ["elect", "items", "die"]):
            case "step":
                leaders[-1].step()
            case "stale":
                chance.choice(leaders).step()
            case "elect":
                leaders.append(world.elect(chance.randrange(len(world.disks))))
            case "items":
                world.add(chance.randint(1, 3))
            case "die":  # its files stay open, as those of a paused process do
                leaders.append(world.elect(chance.randrange(len(world.disks))))
                leaders.pop(0)
    full = False
    world.ended = True
    if chance.random() < 0.5:
        leaders.append(world.elect(chance.randrange(len(world.disks))))
    leaders[-1].run()
    world.check_complete()
    for leader in leaders:
        leader.run()
        leader.close()


def test_missing_pieces_are_rebuilt_and_damaged_ones_are_not_believed(tmp_path: Path) -> None:
    """Pieces are hidden files that anybody may delete or change; the rows are in the database."""
    for damage in ("unlink", "cut", "change", "longer"):
        world = World(tmp_path / damage, "jsonl")
        world.add(4)
        world.elect().run()
        world.add(4)
        world.elect().run()
        first, second = sorted(world.disks[0].glob(".*.piece"))
        data = first.read_bytes()
        match damage:
            case "unlink":
                first.unlink()
            case "cut":
                first.write_bytes(data[:-5])
            case "change":
                first.write_bytes(data.replace(b"h.test", b"evil.t"))
            case _:
                second.write_bytes(second.read_bytes() + b"not committed")
        world.ended = True
        leader = world.elect()
        leader.run()
        world.check_complete()
        leader.close()
        assert not list(world.disks[0].glob(".*")), "nothing is left behind"


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_file_that_somebody_changed_is_never_overwritten(form: str, tmp_path: Path) -> None:
    """It was not there before the run, and no leader wrote it: the items are beside it, and `job`
    names both. A file from before the run is an old output, and is replaced."""
    world = World(tmp_path, form)
    world.disks[0].mkdir(parents=True)
    path = world.disks[0] / FORMS[form]
    path.write_bytes(b"of a user")
    world.add(3)
    world.ended = True
    leader = world.elect()
    leader.run()
    leader.close()
    assert path.read_bytes() == b"of a user"
    assert world.mark.problem.startswith("[output_changed]")
    assert str(path) in world.mark.problem
    (place,) = world.mark.progress.places
    assert Path(place.file).name == f"x.run-7-1.{form}"
    assert numbers_in(Path(place.file)) == [1, 2, 3]


def test_a_file_from_before_the_run_is_replaced(tmp_path: Path) -> None:
    """As `--out` of any program does it."""
    import os

    world = World(tmp_path, "jsonl")
    world.disks[0].mkdir(parents=True)
    path = world.disks[0] / FORMS["jsonl"]
    path.write_bytes(b"of an earlier run")
    os.utime(path, (BEGAN - 5, BEGAN - 5))
    world.add(3)
    world.ended = True
    leader = world.elect()
    leader.run()
    leader.close()
    assert world.mark.problem == ""
    assert numbers_in(path) == [1, 2, 3]


def test_a_file_begun_by_an_earlier_version_is_made_again(tmp_path: Path) -> None:
    """It has a cursor and a length, and no pieces: the rows before the cursor are rebuilt."""
    world = World(tmp_path, "csv")
    world.add(5)
    world.mark = OutputMark(3, 77, 0, 50.0)
    world.ended = True
    leader = world.elect()
    leader.run()
    world.check_complete()
    leader.close()


def test_a_shared_folder_that_is_not_mounted_is_named(tmp_path: Path) -> None:
    """Nothing is written below an empty mount point; when the disk is back, it goes on."""
    world = World(tmp_path, "jsonl", disks=2)

    def shared(leader: Leader, disk: int) -> Leader:
        places = OutputPlaces(world.disks[disk], world.disks[disk], OutputRights(), shared=True)
        leader.tools = msgspec.structs.replace(leader.tools, places=places)
        return leader

    world.add(3)
    shared(world.elect(), 0).run()
    world.ended = True
    other = shared(world.elect(1), 1)
    with pytest.raises(StoreUnavailable, match="Is it mounted") as caught:
        open_sink(world.row(), other.tools)
    assert caught.value.code == "outputs_not_shared"
    assert not list(world.disks[1].glob("*"))
    again = shared(world.elect(1), 0)
    again.run()
    (place,) = world.mark.progress.places
    assert place.master == ""
    assert numbers_in(Path(place.file)) == [1, 2, 3]
