"""TakeOver and Reload: set the epoch, and load the state before anything is assigned (rule
`takeover`). Also the small writes of a leader: grants, its lease, the cursors of output files.

Called by `store`, which begins and commits.
"""

from __future__ import annotations

import msgspec

from zcrawl.model.rows import LaneCount
from zcrawl.store.commands import (
    AdvanceOutput,
    CancelOffline,
    Done,
    ExtendLease,
    GrantHosts,
    Loaded,
    NoteOutput,
    TakeOver,
)
from zcrawl.store.output_pieces import encode as encode_progress
from zcrawl.store.rules import max_pages_per_host_of
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.intents import drains, retries, wishes
from zcrawl.store.sql.jobs import scheduled_jobs
from zcrawl.store.sql.people import users
from zcrawl.store.sql.rows import HOST_SELECT, host_row, host_rows, load_runs
from zcrawl.store.sql.schema import PROBLEM_CHARACTERS
from zcrawl.store.sql.secrets import secrets
from zcrawl.store.sql.submit import encode_path


def take_over(session: Session, command: TakeOver, stored: int) -> Loaded:
    """Take over with a new epoch. `stored` is the old one, read with a lock; 0: no leader yet."""
    epoch = max(stored + 1, command.hint)
    raise_epoch(session, command, epoch)
    return load(session, epoch, command.shard)


def raise_epoch(session: Session, command: TakeOver | CancelOffline, epoch: int) -> None:
    if not session.run(
        "UPDATE leaders SET epoch = ?, held_by = ?, taken_at = ? WHERE shard = ?",
        (epoch, command.holder, command.now, command.shard),
    ):
        session.run(
            "INSERT INTO leaders (shard, epoch, held_by, taken_at) VALUES (?, ?, ?, ?)",
            (command.shard, epoch, command.holder, command.now),
        )


def load(session: Session, epoch: int, shard: int = 0) -> Loaded:
    (lease_until,) = session.fetch_row("SELECT lease_until FROM leaders WHERE shard = ?", (shard,))
    select = "SELECT id FROM runs WHERE state IN ('pending', 'running', 'paused') ORDER BY id"
    live = [id for (id,) in session.all(select)]
    sweeps = [
        id
        for (id,) in session.all(
            "SELECT r.id FROM runs r WHERE r.state = 'deleted' OR "
            "(r.state IN ('completed', 'failed', 'cancelled') AND EXISTS "
            "(SELECT 1 FROM requests q WHERE q.run = r.id AND q.state = 0)) ORDER BY r.id"
        )
    ]
    lanes = [
        LaneCount(run, host, queued)
        for run, host, queued in session.all_in(
            "SELECT run, host, COUNT(*) FROM requests WHERE state = 0 AND run IN ({}) "
            "GROUP BY run, host ORDER BY run, host",
            (),
            live,
        )
    ]
    runs = load_runs(session, sorted([*live, *sweeps]))
    limited = [id for id in live if max_pages_per_host_of(runs[id].spec) is not None]
    pages = [
        LaneCount(run, host, done)
        for run, host, done in session.all_in(
            "SELECT run, host, COUNT(*) FROM requests WHERE state = 1 AND run IN ({}) "
            "GROUP BY run, host ORDER BY run, host",
            (),
            limited,
        )
    ]
    hosts = {host.id: host for host in host_rows(session, (lane.host for lane in lanes))}
    for row in session.all(HOST_SELECT + "WHERE h.owned = 1"):
        hosts[row[0]] = host_row(row)
    (newest,) = session.fetch_row("SELECT value FROM sequences WHERE name = 'requests'")
    workers = session.all("SELECT worker, incarnation, watermark, moved_at FROM workers")
    return Loaded(
        epoch=epoch,
        lease_until=lease_until,
        runs=[run.row() for run in runs.values()],
        lanes=lanes,
        hosts=[hosts[id] for id in sorted(hosts)],
        watermarks={(worker, incarnation): n for worker, incarnation, n, _ in workers},
        sweeps=sweeps,
        pages=pages,
        newest_seq=newest,
        moved={(worker, incarnation): at for worker, incarnation, _, at in workers},
        drains=drains(session),
        wishes=wishes(session),
        secrets=secrets(session),
        retries=retries(session),
        jobs=scheduled_jobs(session),
        users=users(session),
        utc=session.utc(),  # last, so that it is fresh when the leader gets it
    )


def grant_hosts(session: Session, command: GrantHosts) -> Done:
    owners_of = dict(command.owners)  # the last entry of a host counts
    rows = [(msgspec.json.encode(owners), bool(owners), id) for id, owners in owners_of.items()]
    session.update_many("hosts", ("owners", "owned"), "id", rows)
    return Done()


def extend_lease(session: Session, command: ExtendLease) -> Done:
    session.run(
        "UPDATE leaders SET lease_until = ? WHERE shard = 0 AND lease_until < ?",
        (command.until, command.until),
    )
    return Done()


def advance_output(session: Session, command: AdvanceOutput) -> Done:
    session.run(
        "UPDATE outputs SET item_cursor = ?, length = ?, part = ?, part_at = ?, progress = ?, "
        "problem = ? "
        "WHERE run = ? AND path = ?",
        (
            command.cursor,
            command.length,
            command.part,
            command.part_at,
            encode_progress(command.progress) or None,
            command.problem[:PROBLEM_CHARACTERS],
            command.run,
            encode_path(command.path),
        ),
    )
    return Done()


def note_output(session: Session, command: NoteOutput) -> Done:
    session.run(
        "UPDATE outputs SET problem = ? WHERE run = ? AND path = ?",
        (command.problem[:PROBLEM_CHARACTERS], command.run, encode_path(command.path)),
    )
    return Done()
