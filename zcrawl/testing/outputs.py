"""Output files of a simulated world: fake disks, and masters that write to them by the real script.

The order of effects is `outputs.script`, the decisions are those of `store.output_pieces`; a
fake sink does on a dictionary what `files.parts` does on a disk. Each effect is an event of
its own, so a master can be paused, replaced or killed between any two of them. Chance comes from a
stream of its own: worlds are the same with and without outputs.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from zcrawl.errors import CommitUnknown, Fenced, StoreError, StoreUnavailable
from zcrawl.model.reasons.storage import DISK_FULL
from zcrawl.outputs.script import (
    Commit,
    Fence,
    Open,
    ReadRows,
    Script,
    ScriptEffect,
    Write,
    write_output,
)
from zcrawl.store import output_pieces as pieces
from zcrawl.store.commands import AdvanceOutput, Command, NoteOutput
from zcrawl.store.output_mark import OutputMark, is_bare, is_unfinished
from zcrawl.store.output_pieces import JoinStep, Piece, Stamp, Writer
from zcrawl.store.queries import ItemRow, Items, OutputRow, Outputs, ReadItems, ReadOutputs
from zcrawl.submit.outputs import part_path
from zcrawl.testing.processes import SimMaster

if TYPE_CHECKING:
    from zcrawl.testing.world import World

INTERVAL_S = 0.4
BATCH = 5
PATIENCE_S = 60.0  # from the end of all runs, or of all faults
FOLDER = "/outputs"


class SimDisk:
    """Files as lists of item ids."""

    def __init__(self) -> None:
        self.files: dict[str, list[int]] = {}

    def create(self, name: str) -> list[int]:
        """Create a file that must not exist, like O_EXCL."""
        if name in self.files:
            raise StoreUnavailable(f"{name} exists")
        self.files[name] = []
        return self.files[name]

    def rename(self, old: str, new: str) -> None:
        if old not in self.files:
            raise StoreUnavailable(f"no {old}")
        self.files[new] = self.files.pop(old)

    def remove_asides(self, base: str, keep: Sequence[str]) -> None:
        for name in [name for name in self.files if name.startswith(f".{base}.")]:
            if name not in keep:
                del self.files[name]

    def stamp(self, name: str) -> Stamp | None:
        content = self.files.get(name)
        return None if content is None else Stamp(len(content), _crc(content))


class SimSink:
    """The twin of `PieceSink` on a fake disk."""

    def __init__(self, row: OutputRow, writer: Writer, disk: SimDisk, outputs: SimOutputs) -> None:
        self.cursor = row.cursor
        self._row, self._writer, self._disk, self._outputs = row, writer, disk, outputs
        self._progress, self._part = row.progress, row.part
        self._bare, self._part_at = is_bare(row), 0.0
        self._piece: Piece | None = None
        self._file: list[int] = []  # of the piece; a writer keeps it open whatever its name does
        self._joined: list[int] = []
        self._aside = ""
        pieces.check(self._progress, self.cursor)

    @property
    def _name(self) -> str:
        return part_path(self._row.path, self._part, self._outputs.rotates > 0)

    @property
    def _base(self) -> str:
        return f"{self._name}.{self._row.run}"

    def part_ends(self, ended: bool, utc: float) -> bool:
        if not self._progress.pieces:
            return ended and self._bare
        rotates = self._outputs.rotates
        return ended or 0 < rotates <= pieces.part_bytes(self._progress)

    def take(self, rows: Sequence[ItemRow], utc: float) -> OutputMark:
        if self._piece is None:
            self._disk.remove_asides(self._base, self._names())
            name = pieces.piece_name(self._base, self._writer, self._outputs.word())
            self._piece = pieces.begun(self._progress, self._writer, name, self.cursor)
            self._file = self._disk.create(name)
        ids = [row.id for row in rows]
        if self._outputs.disk_is_full():
            self._file += ids[: len(ids) // 2]
            raise StoreUnavailable("injected: the disk is full", code=DISK_FULL)
        del self._file[self._piece.length :]
        self._file += ids
        self.cursor, self._bare = ids[-1], False
        self._part_at = self._part_at or utc
        self._piece = msgspec.structs.replace(
            self._piece, upto=self.cursor, length=len(self._file), crc=_crc(self._file)
        )
        self._progress = pieces.grown(self._progress, self._piece)
        return self._mark()

    def begin_join(self, utc: float) -> list[JoinStep]:
        self._piece = None
        if self._bare:
            self._part_at = utc
        self._disk.remove_asides(self._base, self._names())
        self._aside = self.aside_name()
        self._joined = self._disk.create(self._aside)
        whole = {}
        for piece in self._progress.pieces:
            content = self._disk.files.get(piece.name, [])[: piece.length]
            whole[piece.name] = len(content) == piece.length and _crc(content) == piece.crc
        return pieces.join_plan(self._progress, whole)

    def aside_name(self) -> str:
        return pieces.aside_name(self._base, self._writer, self._outputs.word())

    def copy(self, piece: Piece) -> None:
        self._joined += self._disk.files.get(piece.name, [])[: piece.length]

    def rebuild(self, rows: Sequence[ItemRow]) -> None:
        self._joined += [row.id for row in rows]

    def complete(self) -> OutputMark:
        self._progress = pieces.announced(self._progress, self._disk.stamp(self._aside))
        return msgspec.structs.replace(self._mark(), part_at=0.0) if self._bare else self._mark()

    def publish(self) -> OutputMark:
        if self._aside != self._name:
            self._disk.rename(self._aside, self._name)
        self._old = self._names()
        file = f"{FOLDER}/{self._name}"
        self._progress = pieces.published(self._progress, self._part, self._writer.master, file)
        part_at = self._part_at if self._bare else 0.0
        self._bare, self._part, self._part_at = False, self._part + 1, 0.0
        return msgspec.structs.replace(self._mark(), part_at=part_at)

    def tidy(self) -> None:
        for name in self._old:
            self._disk.files.pop(name, None)

    def settle(self, ended: bool, utc: float) -> OutputMark | None:
        return None

    def _names(self) -> list[str]:
        return [piece.name for piece in self._progress.pieces]

    def _mark(self) -> OutputMark:
        return OutputMark(self.cursor, 0, self._part, self._part_at, self._progress)


class _Attempt:
    """One attempt of a master to write an output."""

    def __init__(self, row: OutputRow, epoch: int, script: Script, life: int) -> None:
        self.row, self.epoch, self.script, self.life = row, epoch, script, life


class SimOutputs:
    """All masters' outputs. A master has at most one attempt for an output at a time."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(seed * 7 + 5)
        shared = SimDisk() if self._rng.random() < 0.5 else None
        self.disks = {name: shared or SimDisk() for name in world.masters}
        self.rotates = self._rng.choice([0, 0, 8])  # items of a part
        self._ended_at = 0.0
        self._attempts: dict[tuple[str, int], _Attempt] = {}  # (master, run)
        self._sinks: dict[tuple[str, int], tuple[int, int, SimSink]] = {}  # with epoch and life

    def begin(self) -> None:
        self._world.at(INTERVAL_S, self._look)

    def is_done(self) -> bool:
        """Return whether all outputs are written and no master is writing, after all runs ended."""
        masters, now = self._world.masters, self._world.now
        self._ended_at = self._ended_at or now
        late_s = now - max(self._ended_at, self._world.began + self._world.faults.until_s)
        assert late_s < PATIENCE_S, f"outputs are not written: {self._rows()}"
        for (name, _), attempt in self._attempts.items():
            if masters[name].life == attempt.life:
                return False
        return not self._rows()

    def word(self) -> str:
        return f"{self._rng.getrandbits(32):08x}"

    def disk_is_full(self) -> bool:
        return self._world.faulty() and self._rng.random() < self._world.faults.disk_full

    def _rows(self) -> list[OutputRow]:
        outputs = self._world.store.query(ReadOutputs())
        assert isinstance(outputs, Outputs)
        return [row for row in outputs.rows if is_unfinished(row)]

    def _look(self) -> None:
        rows: list[OutputRow] | None = None  # to start an attempt does not change them yet
        for master in self._world.masters.values():
            if master.alive and master.paused_until <= self._world.now and master.machine.epoch:
                rows = self._rows() if rows is None else rows
                for row in rows:
                    self._start(master, row)
        self._world.at(INTERVAL_S, self._look)

    def _start(self, master: SimMaster, row: OutputRow) -> None:
        key, epoch = (master.name, row.run), master.machine.epoch
        running = self._attempts.get(key)
        if running is not None and running.life == master.life:
            return
        kept = self._sinks.get(key)
        sink = kept[2] if kept is not None and kept[:2] == (epoch, master.life) else None
        script = write_output(row, sink, BATCH, lambda: self._world.now)
        attempt = self._attempts[key] = _Attempt(row, epoch, script, master.life)
        self._go_on(master, attempt, None)

    def _go_on(self, master: SimMaster, attempt: _Attempt, outcome: Any) -> None:
        key = (master.name, attempt.row.run)
        try:
            effect = attempt.script.send(outcome)
        except StopIteration:
            del self._attempts[key]
            return

        def perform() -> None:
            try:
                result = self._perform(master, attempt, effect)
            except StoreError as error:
                self._world.trace.append((self._world.now, f"{master.name} output: {error}"))
                self._attempts.pop(key, None)
                self._sinks.pop(key, None)
                return
            self._go_on(master, attempt, result)

        if self._world.faulty() and self._rng.random() < self._world.faults.output_pauses:
            self._world.chaos.pause(master, self._rng.choice([4.0, 9.0]))
        delay = self._rng.uniform(0.0005, 0.02)
        self._world.happens_to(master, delay, perform)

    def _perform(self, master: SimMaster, attempt: _Attempt, effect: ScriptEffect) -> Any:
        row, epoch = attempt.row, attempt.epoch
        match effect:
            case Fence():
                self._execute(NoteOutput(epoch, row.run, row.path, ""))
            case Open():
                writer = Writer(master.name, epoch)
                sink = SimSink(row, writer, self.disks[master.name], self)
                self._sinks[(master.name, row.run)] = (epoch, attempt.life, sink)
                return sink
            case ReadRows(after, limit):
                items = self._world.store.query(ReadItems(row.run, after, limit))
                assert isinstance(items, Items)
                return items.rows
            case Write(_, call, _):
                if master.machine.epoch != epoch:
                    raise Fenced(f"{row.path}: does not lead in epoch {epoch} any more")
                return call()
            case Commit(mark):
                pieces.check(mark.progress, mark.cursor)
                self._execute(
                    AdvanceOutput(
                        epoch,
                        row.run,
                        row.path,
                        mark.cursor,
                        mark.length,
                        mark.part,
                        mark.part_at,
                        mark.progress,
                    )
                )
        return None

    def _execute(self, command: Command) -> None:
        world, faults = self._world, self._world.faults
        if world.faulty() and self._rng.random() < faults.store_fails:
            raise StoreUnavailable("injected: the store is away")
        lost = world.faulty() and self._rng.random() < faults.store_unknown
        if lost and self._rng.random() < 0.5:
            raise CommitUnknown("injected: the commit was lost")
        world.store.faults = None
        world.store.execute(command)
        world.applied_epochs.append(getattr(command, "epoch", 0))
        if lost:
            raise CommitUnknown("injected: the commit was applied")


def _crc(content: list[int]) -> int:
    return zlib.crc32(repr(content).encode())
