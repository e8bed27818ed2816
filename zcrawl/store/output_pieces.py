"""Decide how several leaders, one after the other, write a part of an output. Pure.

Used by the sinks that write parts (`files.parts`), by the script of the output loop and by
the simulated world. An output derives from committed rows, so any leader can write it again. On
a cluster, a leader that was replaced may still write for any time. So no leader opens a file that
another one has opened:

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
LOST: Final = ""  # the name of a piece whose file no longer exists


class Writer(msgspec.Struct, frozen=True):
    """A master in one epoch. `alone`: the lock of its data folder excludes all others."""

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
    """Properties of a published file, to notice whether a person changed it."""

    size: int
    mtime_ns: int


class PartsPlace(msgspec.Struct, frozen=True, array_like=True):
    """The place of complete parts: `first` to `last` in the folder of `file`, the last one."""

    first: int
    last: int
    master: str
    file: str


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored progress of an output, in addition to its cursor."""

    pieces: tuple[Piece, ...] = ()  # of the part that grows now
    columns: tuple[str, ...] | None = None  # of a CSV part whose job does not say them
    stamps: tuple[Stamp, ...] = ()  # of files that this run published, or was about to
    places: tuple[PartsPlace, ...] = ()  # of complete parts
    marker: str = ""  # of the shared folder that it lies in
    crc: int | None = None  # of the committed bytes of a file that grows (embedded form)


class Copy(msgspec.Struct, frozen=True):
    """Copy the first bytes of the piece."""

    piece: Piece


class Rebuild(msgspec.Struct, frozen=True):
    """Render the rows after `after` and up to `upto`."""

    after: int
    upto: int


JoinStep: TypeAlias = Copy | Rebuild


def decode(stored: bytes | None) -> Progress:
    return msgspec.convert(json.loads(stored), Progress) if stored else Progress()


def encode(progress: Progress) -> bytes:
    """Return JSON in ASCII. File names that are not UTF-8 are escaped by the standard library;
    msgspec would refuse them."""
    if progress == Progress():
        return b""
    return json.dumps(msgspec.to_builtins(progress), separators=(",", ":")).encode()


def piece_name(base: str, writer: Writer, word: str) -> str:
    """Return the name of a leader's own piece; `base` is the part's name, `word` is random."""
    return f".{base}.{writer.epoch}-{word}.piece"


def aside_name(base: str, writer: Writer, word: str) -> str:
    """Return the name of the file that becomes the part."""
    return f".{base}.{writer.epoch}-{word}.part"


def begun(progress: Progress, writer: Writer, name: str, cursor: int) -> Piece:
    """Return a new piece after the committed rows. It is stored with its first rows (`grown`)."""
    assert all(piece.name != name for piece in progress.pieces), "a file has one writer"
    return Piece(writer.epoch, writer.master, name, cursor, cursor, 0, 0)


def grown(progress: Progress, piece: Piece) -> Progress:
    """Return the progress with this piece, which is new or has more rows."""
    others = progress.pieces
    if others and others[-1].name == piece.name:
        others = others[:-1]
    return msgspec.structs.replace(progress, pieces=_few((*others, piece)))


def _few(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Merge the oldest pieces, so that many changes of leaders do not grow the row for ever."""
    if len(pieces) <= MOST_PIECES:
        return pieces
    first, second, *others = pieces
    lost = Piece(second.epoch, "", LOST, first.after, second.upto, 0, 0)
    return (lost, *others)


def part_bytes(progress: Progress) -> int:
    return sum(piece.length for piece in progress.pieces)


def join_plan(progress: Progress, whole: Mapping[str, bool]) -> list[JoinStep]:
    """Return the steps that make the part from its pieces. `whole` says which pieces this disk has,
    complete and unchanged. Consecutive rows to rebuild are one step."""
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
    """Return whether the file with the final name may be replaced; None: there is no file. A file
    that is older than the run may: the job named it as its output."""
    return stamp is None or stamp in progress.stamps or stamp.mtime_ns < run_began_ns


def announced(progress: Progress, stamp: Stamp | None) -> Progress:
    """Return the progress before the rename, with the stamp of the file that may appear."""
    if stamp is None:
        return progress
    stamps = (*(other for other in progress.stamps if other != stamp), stamp)[-MOST_STAMPS:]
    return msgspec.structs.replace(progress, stamps=stamps)


def published(progress: Progress, part: int, master: str, file: str) -> Progress:
    """Return the progress after the rename: the part is complete, the next one has no pieces."""
    return msgspec.structs.replace(located(progress, part, master, file), pieces=(), columns=None)


def located(progress: Progress, part: int, master: str, file: str) -> Progress:
    """Return the progress with the place of a part. Consecutive parts in a folder are one entry."""
    places = progress.places
    place, last = PartsPlace(part, part, master, file), places[-1] if places else None
    if last is not None and last.first <= part <= last.last + 1 and _is_beside(last, place):
        place, places = PartsPlace(last.first, part, master, file), places[:-1]
    return msgspec.structs.replace(progress, places=(*places, place)[-MOST_PLACES:])


def _is_beside(last: PartsPlace, new: PartsPlace) -> bool:
    folders = {place.file.rpartition("/")[0] for place in (last, new)}
    return last.master == new.master and len(folders) == 1


def check(progress: Progress, cursor: int) -> None:
    """Assert the invariants of a progress that is stored with this cursor."""
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
