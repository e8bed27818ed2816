"""`zcrawl export`: write a run's items, or its failures, from the database, in constant memory.

It can read the database while a cluster runs. A file gets its name only when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from zcrawl.cli.base import Command, Settings, common, run_option
from zcrawl.errors import UsageError, ZcrawlError
from zcrawl.model.formats import CSV, FORMATS, JSONL, StdoutKind
from zcrawl.model.reasons.storage import DISK_FULL
from zcrawl.model.reasons.usage import OUT_FAILED, OUT_UNWRITABLE


@click.command("export", cls=Command)
@click.argument("ref", metavar="ID|NAME")
@click.option(
    "--out",
    default="-",
    metavar="FILE",
    help="A file; its ending sets the format. [default: stdout]",
)
@run_option
@click.option("--failed", is_flag=True, help="URLs that failed or were skipped, and why.")
@click.option("--rejected", is_flag=True, help="Items that were set aside, and why.")
@click.option("--csv-safe", is_flag=True, help="Write CSV files without formulas.")
@click.option("--problems", is_flag=True, help="Fields that could not be read, by page.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    help="The format, whatever the file's name.",
)
@common
def export_command(
    settings: Settings,
    ref: str,
    out: str,
    run: int | None,
    failed: bool,
    rejected: bool,
    problems: bool,
    csv_safe: bool,
    format_name: str | None,
) -> int:
    """Write a run's items, or its failures, to a file."""
    from zcrawl.cli import output
    from zcrawl.cli.connect import find_job, open_database
    from zcrawl.cli.specs import format_of
    from zcrawl.model.states import Kept
    from zcrawl.outputs.files.exports import Source, chunks_of, whole_file_of
    from zcrawl.roles.blobs import body_getter
    from zcrawl.runtime.files import is_within
    from zcrawl.telemetry.views import chosen_run

    if failed + rejected + problems > 1:
        raise UsageError("--failed, --rejected and --problems are different lists; give one")
    form = format_name or (JSONL if out == "-" else format_of(str(Path(out))))
    if csv_safe and form != CSV:
        raise UsageError(
            f"--csv-safe is for CSV, and the output is {form}; add --format csv, or leave it out"
        )
    lost: list[str] = []  # bodies that an archive lacks
    with contextlib.closing(open_database(settings)) as store:
        job = find_job(store, ref)
        row = chosen_run(job, run)
        number = row.id
        kind = Kept.REJECTED if rejected else Kept.PROBLEM if problems else Kept.ITEM
        rows = None if failed else kind
        captures = FORMATS[form].captures
        body_of = (
            body_getter(settings.blobs(), lambda name, detail: lost.append(detail))
            if captures
            else None
        )
        source = Source(store, number, row.spec, rows, body_of, csv_safe)
        if not FORMATS[form].appendable:
            if out == "-":
                title = FORMATS[form].title
                raise UsageError(f"a {title} file cannot go to stdout; give --out FILE")
            write = whole_file_of(source, form)
        else:
            chunks = chunks_of(source, form)
            if out == "-":
                _to_stdout(chunks, form)
                _note_lost(lost)
                return 0
            write = _write_chunks(chunks)
        length = write_out(out, write, of_user=not is_within(Path(out), settings.data))
    _note_lost(lost)
    if settings.json:
        output.print_json({"job": job.id, "run": number, "path": out, "bytes": length})
    else:
        output.note(f"run {number}: {output.size(length)} in {out}")
    return 0


def _note_lost(lost: list[str]) -> None:
    from zcrawl.cli import output

    if lost:
        output.note(f"{len(lost)} bodies are lost; the first: {lost[0]}")


def _to_stdout(chunks: Iterator[bytes], form: str) -> None:
    from zcrawl.cli import output

    format = FORMATS[form]
    if format.display is StdoutKind.BINARY and sys.stdout.isatty():
        raise UsageError(f"a {format.title} archive cannot be shown on a terminal; give --out FILE")
    sys.stdout.flush()
    for chunk in chunks:
        output.write_items(chunk, form)


def _write_chunks(chunks: Iterator[bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())

    return write


def write_out(out: str, write: Callable[[Path], object], of_user: bool = True) -> int:
    """Write a file that gets its name only when it is complete; return the number of bytes.
    `of_user`: the file is not part of the data folder."""
    from zcrawl.submit.outputs import is_remote, refuse_login

    refuse_login(out)
    if is_remote(out):
        from zcrawl.blobs.s3 import upload

        with tempfile.TemporaryDirectory(prefix="zcrawl-") as folder:
            aside = Path(folder) / "export"
            write(aside)
            upload(out, aside)
            return aside.stat().st_size
    return write_file(Path(out), write, of_user)


def write_file(path: Path, write: Callable[[Path], object], of_user: bool = True) -> int:
    from zcrawl.runtime.files import give_to_user, sync_file, sync_folder

    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.touch()
        if of_user:
            give_to_user(part)
    except FileNotFoundError:
        folder = path.absolute().parent
        reason = f"{path}: the folder {folder} does not exist; make it first"
        raise UsageError(reason, code=OUT_UNWRITABLE) from None
    except OSError as error:
        reason = f"{path}: cannot be written: {error.strerror}"
        raise UsageError(reason, code=OUT_UNWRITABLE) from None
    try:
        write(part)
        length = part.stat().st_size
        sync_file(part)  # writers of formats do not always sync
        part.replace(path)
        sync_folder(path.absolute().parent)
    except OSError as error:
        code = DISK_FULL if error.errno == errno.ENOSPC else OUT_FAILED
        raise ZcrawlError(f"{path}: {error.strerror}", code=code) from None
    finally:
        part.unlink(missing_ok=True)
    return length
