"""The store on a relational database. One command is one fenced transaction; errors of the
database are translated only here.

`open_sqlite` and `open_mysql` open a store. It has a connection for the writer and one for the
reader, each used by one thread at a time. The next call replaces a lost connection. If that fails
several times, calls are refused for a short time (see `breaker`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, assert_never

import msgspec

from zcrawl.errors import ConfigError, Fenced, StoreError, StoreUnavailable
from zcrawl.model.reasons.cluster import READONLY
from zcrawl.model.reasons.storage import NO_DATABASE, STORE_BEHIND, STORE_UNWRITABLE
from zcrawl.runtime.files import PRIVATE_FILE, make_private_folder, sync_folder, tighten
from zcrawl.store.breaker import StoreBreaker
from zcrawl.store.commands import (
    AddSeeds,
    AdmitFed,
    AdmitKnown,
    AdvanceOutput,
    ApplyResults,
    BeginRuns,
    CancelOffline,
    ChangeJob,
    ChangePeople,
    ChangeRun,
    ChangeSecrets,
    Command,
    CommandOutcome,
    CountCrash,
    ExtendLease,
    FireJob,
    Forget,
    GrantHosts,
    LeaderCommand,
    NoteArchive,
    NoteOutput,
    Rehome,
    Reload,
    RetryDead,
    SaveHistory,
    SetDrain,
    SetWish,
    SubmitJob,
    Sweep,
    TakeOver,
    TuneRun,
    WriteAudit,
)
from zcrawl.store.queries import (
    CheckToken,
    FindItems,
    FindJob,
    FindReply,
    ListJobs,
    Query,
    QueryOutcome,
    ReadAudit,
    ReadChain,
    ReadEpoch,
    ReadFailed,
    ReadFailureGroups,
    ReadHistory,
    ReadItems,
    ReadKnown,
    ReadOutputs,
    ReadParents,
    ReadRemovable,
    ReadRuns,
    ReadTokens,
    ReadUsers,
    ReadVersions,
    Refill,
    Tallies,
)
from zcrawl.store.rules import check_epoch
from zcrawl.store.sql import (
    apply,
    failure_groups,
    firing,
    history,
    idempotency,
    intents,
    load,
    people,
    read,
    rehoming,
    retention,
    runs,
    secrets,
    submit,
)
from zcrawl.store.sql.dialects.dialect import Dialect, Session
from zcrawl.store.sql.dialects.sqlite import SqliteDialect
from zcrawl.store.sql.dialects.sqlite_files import check_mark
from zcrawl.store.sql.schema import (
    MIGRATED_BY_LEADERS,
    VERSION,
    migrate,
    read_version,
    stored_version,
)
from zcrawl.store.urls import parse_mysql_urls

T = TypeVar("T")


def open_sqlite(path: Path | str, readonly: bool = False) -> PeeweeStore:
    """Open or create the database file and its folder. `readonly` writes nothing.

    StoreCorrupt if the file lacks commits that were made to it (`dialects.sqlite_mark`)."""
    path = Path(path)
    check_mark(path)
    if readonly and not path.is_file():
        raise StoreError(f"there is no database at {path}", code=NO_DATABASE)
    try:
        if not readonly:
            make_private_folder(path.parent)
            # Open it here first, because the system's error is clearer than SQLite's "unable to
            # open". SQLite gives its other files the mode of this one.
            new = not path.exists()
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))
            if new:  # SQLite syncs the folder only for files that it creates itself
                sync_folder(path.absolute().parent)
            tighten(path.with_name(path.name + end) for end in ("", "-wal", "-shm", "-journal"))
    except OSError as error:
        raise StoreError(
            f"cannot write the database {path}: {error.strerror}; choose another data folder or "
            "correct its permissions",
            code=STORE_UNWRITABLE,
        ) from error
    store = PeeweeStore(SqliteDialect(path, readonly))
    store.open()
    return store


def open_mysql(urls: Sequence[str], readonly: bool = False, create: bool = False) -> PeeweeStore:
    """Open the database of these addresses; `create`: create it if it is missing."""
    try:
        from zcrawl.store.sql.dialects import mysql  # PyMySQL: an extra, and 30 ms of imports
    except ImportError as error:
        raise ConfigError(
            f"database.urls: MySQL needs PyMySQL ({error}): pip install PyMySQL"
        ) from error
    parsed = parse_mysql_urls(tuple(urls))
    store = PeeweeStore(mysql.MysqlDialect(parsed, readonly))
    try:
        store.open()
    except StoreError as error:
        if not create or error.code != NO_DATABASE:
            raise
        mysql.create_database(parsed)
        store.open()
    return store


class PeeweeStore:
    """Implements `store.ports.Store`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._sessions: dict[str, Session] = {}
        self._breakers = {"writer": StoreBreaker(), "reader": StoreBreaker()}
        self._opened = False
        self._outdated = False  # the schema is to be migrated by the next takeover
        self._epoch = 0  # the epoch of this process, or 0
        self._highest_epoch = 0  # the highest epoch ever seen
        self._commits = 0  # `leaders.commits` after this process's last commit

    # ------------------------------------------------------------ open and close

    def open(self) -> None:
        """Connect twice and bring the schema up to date."""
        self._opened = True
        try:
            self._named(self._open)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        dialect = self._dialect
        for role in ("writer", "reader"):
            self._sessions[role] = dialect.connect(role)
        session, where = self._sessions["writer"], dialect.where
        stored = read_version(session, where)
        if dialect.readonly and stored == 0:
            raise StoreError(f"{where} is empty: no crawl was started here", code=NO_DATABASE)
        if stored == VERSION:
            return
        if dialect.readonly or stored >= MIGRATED_BY_LEADERS:
            self._outdated = True
        else:
            self._migrate(session)

    def _migrate(self, session: Session) -> None:
        with self._dialect.migration_lock(session):
            self._transaction(session, lambda: migrate(session, self._dialect))
        self._outdated = False

    def _refuse_outdated(self, session: Session) -> None:
        """Raise StoreUnavailable while the database has the schema of an older version."""
        if self._outdated and stored_version(session, self._dialect.where) != VERSION:
            raise StoreUnavailable(
                f"{self._dialect.where} has the schema of an older zcrawl; the next leader of this "
                "version brings it up to date"
            )
        self._outdated = False

    def close(self) -> None:
        self._opened = False
        while self._sessions:
            self._sessions.popitem()[1].close()
        self._dialect.close()

    # ------------------------------------------------------------ the port

    def execute(self, command: Command) -> CommandOutcome:
        if self._dialect.readonly:
            raise StoreError(f"{self._dialect.where} was opened to be read only", code=READONLY)
        return self._named(lambda: self._execute(command))

    def query(self, query: Query) -> QueryOutcome:
        return self._named(lambda: self._query(query))

    # ------------------------------------------------------------ connections

    @property
    def _writer(self) -> Session:
        return self._session("writer")

    @property
    def _reader(self) -> Session:
        return self._session("reader")

    def _session(self, role: str) -> Session:
        """Return the connection of this role; replace it if it was lost."""
        if not self._opened:
            raise StoreUnavailable(f"{self._dialect.where} is closed")
        session = self._sessions.get(role)
        if session is None or session.lost:
            session = self._connect(role)
        return session

    def _connect(self, role: str) -> Session:
        breaker = self._breakers[role]
        wait_s = breaker.wait_s(time.monotonic())
        if wait_s > 0:
            raise StoreUnavailable(
                f"not tried for another {wait_s:.1f} s, after {breaker.failures} failures in a "
                f"row: {breaker.reason}"
            )
        old = self._sessions.pop(role, None)
        if old is not None:
            old.close()
        try:
            session = self._dialect.connect(role)
            if role == "writer" and self._epoch:
                self._dialect.keep_leading(session, self._epoch)
        except Exception as error:
            named = self._dialect.error(error) or error
            breaker.failed(str(named), time.monotonic())
            raise
        breaker.succeeded()
        self._sessions[role] = session
        return session

    def _begin(self, role: str, begin: Callable[[Session], None]) -> Session:
        """Begin a transaction. If the connection died while it was idle, replace it and begin
        again; nothing can be lost by a failed BEGIN."""
        session = self._session(role)
        try:
            begin(session)
        except Exception:
            if not session.lost:
                raise
            session = self._connect(role)
            begin(session)
        return session

    # ------------------------------------------------------------ transactions

    def _named(self, work: Callable[[], T]) -> T:
        """Run the work; translate errors of the database into errors of the port."""
        try:
            return work()
        except StoreError:
            raise
        except Exception as error:
            named = self._dialect.error(error)
            if named is None:
                raise
            raise named from error

    def _execute(self, command: Command) -> CommandOutcome:
        if isinstance(command, TakeOver | CancelOffline):
            # New connections no longer belong to an earlier epoch. To store one for that epoch
            # would wait for the lock that a paused leader holds and that this takeover breaks.
            self._epoch = 0
        session = self._begin("writer", lambda session: self._start(session, command))
        patient = isinstance(command, TakeOver | Reload)
        if patient:
            session.be_patient(True)
        try:
            outcome, epoch, commits = self._finish(session, lambda: self._run(session, command))
        finally:
            if patient:
                session.be_patient(False)
        self._dialect.committed(commits)
        self._epoch, self._commits = epoch, commits
        self._highest_epoch = max(self._highest_epoch, epoch)
        return outcome

    def _start(self, session: Session, command: Command) -> None:
        if isinstance(command, TakeOver | CancelOffline):
            self._dialect.before_takeover(session, command.shard)
            if stored_version(session, self._dialect.where) < VERSION:  # refuses a newer one
                self._migrate(session)
        session.begin_write()

    def _transaction(self, session: Session, work: Callable[[], T]) -> T:
        session.begin_write()
        return self._finish(session, work)

    def _finish(self, session: Session, work: Callable[[], T]) -> T:
        """Do the work in the transaction that was begun, and commit it."""
        try:
            outcome = work()
        except BaseException:
            session.roll_back()
            raise
        try:
            session.commit()
        except Exception as error:
            rolled_back = session.roll_back()
            raise self._dialect.commit_error(error, rolled_back) from error
        return outcome

    def _run(self, session: Session, command: Command) -> tuple[CommandOutcome, int, int]:
        """Run a command; return its outcome, its epoch, and the number of this commit."""
        shard = command.shard if isinstance(command, TakeOver | CancelOffline) else 0
        stored, commits = session.fetch_row(self._dialect.lock_epoch, (shard,)) or (0, 0)
        if isinstance(command, TakeOver):
            # Even if the database lost its newest rows, an epoch of this process is not reused.
            hint = max(command.hint, self._highest_epoch + 1)
            command = msgspec.structs.replace(command, hint=hint)
            loaded = load.take_over(session, command, stored)
            return loaded, loaded.epoch, self._count(session, shard, commits)
        if isinstance(command, CancelOffline):
            epoch = max(stored, self._highest_epoch) + 1
            changed = runs.cancel_offline(session, command, epoch)
            return changed, 0, self._count(session, shard, commits)
        check_epoch(command.epoch, stored)
        if command.epoch == self._epoch and commits < self._commits:
            raise Fenced(
                f"{self._dialect.where} lacks {self._commits - commits} of our commits: it is a "
                "copy that was behind; its state is loaded again",
                code=STORE_BEHIND,
            )
        return self._do(session, command), stored, self._count(session, shard, commits)

    def _count(self, session: Session, shard: int, commits: int) -> int:
        session.run("UPDATE leaders SET commits = ? WHERE shard = ?", (commits + 1, shard))
        return commits + 1

    def _do(self, session: Session, command: LeaderCommand) -> CommandOutcome:
        match command:
            case Reload():
                return load.load(session, command.epoch)
            case ApplyResults():
                return apply.apply_results(session, command)
            case SubmitJob():
                return submit.submit_job(session, command)
            case AddSeeds():
                return submit.add_seeds(session, command)
            case AdmitKnown():
                return submit.admit_known(session, command)
            case AdmitFed():
                return submit.admit_fed(session, command)
            case FireJob():
                return firing.fire_job(session, command)
            case ChangeRun():
                return runs.change_run(session, command)
            case BeginRuns():
                return runs.begin_runs(session, command)
            case ChangeJob():
                return runs.change_job(session, command)
            case TuneRun():
                return runs.tune_run(session, command)
            case SetDrain():
                return intents.set_drain(session, command)
            case ChangeSecrets():
                return secrets.change_secrets(session, command)
            case SetWish():
                return intents.set_wish(session, command)
            case Sweep():
                return runs.sweep(session, command)
            case RetryDead():
                return runs.retry_dead(session, command)
            case CountCrash():
                return runs.count_crash(session, command)
            case GrantHosts():
                return load.grant_hosts(session, command)
            case ExtendLease():
                return load.extend_lease(session, command)
            case AdvanceOutput():
                return load.advance_output(session, command)
            case NoteOutput():
                return load.note_output(session, command)
            case NoteArchive():
                return retention.note_archive(session, command)
            case Forget():
                return idempotency.forget(session, command)
            case SaveHistory():
                return history.save_history(session, command)
            case Rehome():
                return rehoming.rehome(session, command)
            case ChangePeople():
                return people.change_people(session, command)
            case WriteAudit():
                return people.write_batch(session, command)
            case _:
                assert_never(command)

    def _query(self, query: Query) -> QueryOutcome:
        session = self._begin("reader", lambda session: session.begin_read())
        try:
            self._refuse_outdated(session)
            return self._answer(session, query)
        finally:
            session.roll_back()

    def _answer(self, session: Session, query: Query) -> QueryOutcome:
        match query:
            case Refill():
                return read.refill(session, query)
            case ListJobs():
                return read.list_jobs(session)
            case FindJob():
                return read.find_job(session, query)
            case Tallies():
                return read.tallies(session, query)
            case ReadItems():
                return read.read_items(session, query)
            case FindItems():
                return read.find_items(session, query)
            case ReadFailed():
                return read.read_failed(session, query)
            case ReadOutputs():
                return read.read_outputs(session, query)
            case ReadParents():
                return firing.read_parents(session, query)
            case ReadChain():
                return firing.read_chain(session, query)
            case ReadVersions():
                return read.read_versions(session, query)
            case ReadRuns():
                return read.read_runs(session, query)
            case ReadEpoch():
                return read.read_epoch(session)
            case ReadHistory():
                return history.read_history(session, query)
            case ReadFailureGroups():
                return failure_groups.read_failure_groups(session, query)
            case ReadRemovable():
                return retention.read_removable(session, query)
            case FindReply():
                return idempotency.find_reply(session, query)
            case ReadUsers():
                return people.read_users(session)
            case ReadTokens():
                return people.read_tokens(session, query)
            case CheckToken():
                return people.check_token(session, query)
            case ReadAudit():
                return people.read_audit(session, query)
            case ReadKnown():
                from zcrawl.store.sql.known import read_known  # few runs remember any

                return read_known(session, query)
            case _:
                assert_never(query)
