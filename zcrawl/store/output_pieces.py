"""Decides how a part of an output is made by several leaders, one after the other. Pure.

Used by the sinks that write parts (`files.parts`), by the script of the output loop and by
the simulated world. An output derives from committed rows, so whoever leads can make it again. On
a cluster a leader that was replaced may still write, for as long as it likes. So no leader opens
a file that another one has opened:

- Each leader appends to a *piece* of its own: a hidden file with the epoch and a random word in
  its name, made with O_EXCL, never opened for writing again. After an error it begins another one.
- A commit under the fence says which rows a piece covers and in how many of its first bytes. What
  lies behind them was never committed and is not looked at; nothing is ever cut off.
- When the part ends (its run did, or it became too large or too old), whoever leads joins the
  pieces in a new file, commits what that file looks like, renames it, and commits that it is done.

    what is stored of the part         what this disk has         a leader that goes on
    ---------------------------------  -------------------------  ---------------------------------
    no piece                           –                          begins a piece after the cursor
    the last piece is its own, open    –                          appends to it
    the last piece is another's, or    –                          begins a piece after it
    its own, closed by an error

    a piece of the part                what this disk has         a leader that joins
    ---------------------------------  -------------------------  ---------------------------------
    rows (after, upto], n bytes, crc   n bytes or more, same crc  copies the first n bytes
    the same                           fewer, others, or no file  renders the rows anew (rebuilds)

    the final name                     stored as                  a leader that publishes
    ---------------------------------  -------------------------  ---------------------------------
    free                               –                          renames its file to it
    a file from before the run         –                          replaces it, as any output does
    a file of this run, unchanged      one of `stamps`            replaces it (a leader died between
                                                                  renaming and its last commit)
    anything else: a user changed it   –                          leaves it, publishes beside it

Why a paused leader does no harm: its piece has its own name. Its joined file exists before its last
commit under the fence; the next leader removes such files of others before it publishes, so a late
rename finds nothing. `check` states what holds after every step.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

MOST_PIECES: Final = 100  # of a part; older ones become one, which is made again from the rows
MOST_STAMPS: Final = 10
MOST_PLACES: Final = 100
LOST: Final = ""  # the name of a piece that no file has any more


class Writer(msgspec.Struct, frozen=True):
    """Who writes: a master in one epoch. `alone`: its data folder's lock excludes all others."""

    master: str
    epoch: int
    alone: bool = False


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Rows after `after` and up to `upto`, in the first `length` bytes of a file."""

    epoch: int
    master: str
    name: str
    after: int
    upto: int
    length: int
    crc: int


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What a file looks like that nobody has changed since."""

    size: int
    mtime_ns: int


class PartsPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where complete parts lie: `first` to `last` in the folder of `file`, which is the last."""

    first: int
    last: int
    master: str
    file: str


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored with an output beside its cursor."""

    pieces: tuple[Piece, ...] = ()  # of the part that grows now
    columns: tuple[str, ...] | None = None  # of a CSV part whose job does not say them
    stamps: tuple[Stamp, ...] = ()  # of files that this run published, or was about to
    places: tuple[PartsPlace, ...] = ()  # of complete parts
    marker: str = ""  # of the shared folder that it lies in
    crc: int | None = None  # of the committed bytes of a file that grows (embedded form)


class Copy(msgspec.Struct, frozen=True):
    """Take the piece's first bytes."""

    piece: Piece


class Rebuild(msgspec.Struct, frozen=True):
    """Render the rows after `after` and up to `upto`."""

    after: int
    upto: int


JoinStep: TypeAlias = Copy | Rebuild


def decode(stored: bytes | None) -> Progress:
    return msgspec.convert(json.loads(stored), Progress) if stored else Progress()


def encode(progress: Progress) -> bytes:
    """ASCII. A file's name may be no UTF-8; msgspec refuses such a text, the standard library
    writes it as an escape."""
    if progress == Progress():
        return b""
    return json.dumps(msgspec.to_builtins(progress), separators=(",", ":")).encode()


def piece_name(base: str, writer: Writer, word: str) -> str:
    """Of a leader's own piece; `base` is that of the part, `word` is random."""
    return f".{base}.{writer.epoch}-{word}.piece"


def aside_name(base: str, writer: Writer, word: str) -> str:
    """Of the file that becomes the part."""
    return f".{base}.{writer.epoch}-{word}.part"


def begun(progress: Progress, writer: Writer, name: str, cursor: int) -> Piece:
    """A new piece after all that is committed. It counts when its first rows are (`grown`)."""
    assert all(piece.name != name for piece in progress.pieces), "a file has one writer"
    return Piece(writer.epoch, writer.master, name, cursor, cursor, 0, 0)


def grown(progress: Progress, piece: Piece) -> Progress:
    """With this piece, which is new or has more rows."""
    others = progress.pieces
    if others and others[-1].name == piece.name:
        others = others[:-1]
    return msgspec.structs.replace(progress, pieces=_few((*others, piece)))


def _few(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Leaders that change by the minute must not let a row grow without end."""
    if len(pieces) <= MOST_PIECES:
        return pieces
    first, second, *others = pieces
    lost = Piece(second.epoch, "", LOST, first.after, second.upto, 0, 0)
    return (lost, *others)


def part_bytes(progress: Progress) -> int:
    return sum(piece.length for piece in progress.pieces)


def join_plan(progress: Progress, whole: Mapping[str, bool]) -> list[JoinStep]:
    """How to make the part from the pieces; `whole` tells which of them this disk has, complete
    and unchanged. Rows that are rebuilt in a row are one step."""
    steps: list[JoinStep] = []
    for piece in progress.pieces:
        if piece.name != LOST and whole.get(piece.name):
            steps.append(Copy(piece))
        elif steps and isinstance(steps[-1], Rebuild):
            steps[-1] = Rebuild(steps[-1].after, piece.upto)
        else:
            steps.append(Rebuild(piece.after, piece.upto))
    return steps


def may_replace(stamp: Stamp | None, progress: Progress, run_began_ns: int) -> bool:
    """Whether the file of the final name may be replaced; None: there is none. What is older than
    the run is an old output, of another run or of a person who named that file for this one."""
    return stamp is None or stamp in progress.stamps or stamp.mtime_ns < run_began_ns


def announced(progress: Progress, stamp: Stamp | None) -> Progress:
    """Before the rename: what the file looks like that may appear from now on."""
    if stamp is None:
        return progress
    stamps = (*(other for other in progress.stamps if other != stamp), stamp)[-MOST_STAMPS:]
    return msgspec.structs.replace(progress, stamps=stamps)


def published(progress: Progress, part: int, master: str, file: str) -> Progress:
    """After the rename: the part is complete, the next one has no pieces yet."""
    return msgspec.structs.replace(located(progress, part, master, file), pieces=(), columns=None)


def located(progress: Progress, part: int, master: str, file: str) -> Progress:
    """With the place of a part. Parts in a row in one folder of one master are one entry."""
    places = progress.places
    place, last = PartsPlace(part, part, master, file), places[-1] if places else None
    if last is not None and last.first <= part <= last.last + 1 and _is_beside(last, place):
        place, places = PartsPlace(last.first, part, master, file), places[:-1]
    return msgspec.structs.replace(progress, places=(*places, place)[-MOST_PLACES:])


def _is_beside(last: PartsPlace, new: PartsPlace) -> bool:
    folders = {place.file.rpartition("/")[0] for place in (last, new)}
    return last.master == new.master and len(folders) == 1


def check(progress: Progress, cursor: int) -> None:
    """What holds whenever a progress is stored with this cursor."""
    pieces = progress.pieces
    for earlier, later in itertools.pairwise(pieces):
        assert earlier.upto == later.after, "pieces cover all rows, none twice"
        assert earlier.epoch <= later.epoch, "an older leader added to a newer one's"
    for piece in pieces:
        assert piece.after < piece.upto, "a piece that is stored has rows"
        assert piece.length > 0 or piece.name == LOST, "rows are bytes"
    if pieces:
        assert pieces[-1].upto == cursor, "the cursor is the end of the last piece"
    names = [piece.name for piece in pieces if piece.name != LOST]
    assert len(names) == len(set(names)), "a file has one writer"
    assert len(pieces) <= MOST_PIECES and len(progress.places) <= MOST_PLACES
