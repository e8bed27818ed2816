"""The manifest of an archived run: what the run was, and the files of the archive.

Written by `driver.archive` after all other files of the archive, so a folder with a manifest is a
complete archive. Pure. docs/retention.md describes the keys.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.model.rows import RunRow
from zcrawl.model.spec import UNREADABLE
from zcrawl.store.queries import RemovableRun, TallyRows
from zcrawl.submit.read import file_stem
from zcrawl.telemetry.views import by_count, elapsed, examples_view, iso

VERSION: Final = 1  # of the manifest's form
NAME: Final = "manifest.json"


class ArchivedFile(msgspec.Struct, frozen=True):
    name: str
    rows: int
    bytes: int
    sha256: str


def folder_of(removable: RemovableRun) -> str:
    """Return the folder or the prefix of a run's archive. It does not change, so a repeat replaces
    the same files; and no other run has it, because numbers of runs are not used twice."""
    place = removable.archive.rstrip("/")
    return f"{place}/{file_stem(removable.name)}/run-{removable.run}"


def manifest(
    run: RunRow,
    tallies: TallyRows,
    files: list[ArchivedFile],
    *,
    why: str,
    master: str,
    now: float,
) -> bytes:
    """Return the manifest as JSON."""
    view = {
        "manifest": VERSION,
        "job": run.job,
        "name": run.name,
        "run": run.id,
        "version": run.version,
        "state": str(run.state),
        "reason": run.reason,
        "cause": str(run.cause),
        "due_at": iso(run.due_at or 0.0),
        "params": _plain(run.params),
        "chain": run.chain,
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "ended_at": iso(run.ended_at),
        "seconds": round(elapsed(run, now), 3),
        "counters": msgspec.structs.asdict(run.counters),
        "statuses": {str(status): n for status, n in sorted(tallies.statuses.items())},
        "failed_reasons": by_count(tallies.failed),
        "skipped_reasons": by_count(tallies.skipped),
        "rejected_items": by_count(tallies.rejected),
        "examples": examples_view(tallies),
        "shares": by_count(tallies.workers),
        "spec": _spec(run.spec),
        "archived_at": iso(now),
        "archived_by": master,
        "why": why,
        "files": [msgspec.structs.asdict(file) for file in files],
    }
    return msgspec.json.format(msgspec.json.encode(view), indent=2) + b"\n"


def _spec(spec: bytes) -> Any:
    """Return the spec without the text of its spider, which may be long."""
    plain = _plain(spec)
    if isinstance(plain, dict) and isinstance(plain.get("code"), dict):
        plain["code"] = {"sha256": plain["code"].get("sha256")}
    return plain


def _plain(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data) if data else {}
    except UNREADABLE:
        return {}
