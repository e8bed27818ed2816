"""Bugs planted on purpose, each as a patch: the simulation must notice every one of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgspec

from zcrawl.dispatch.host_owners import Granter
from zcrawl.dispatch.host_state import Part
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.roster import Hearing
from zcrawl.master import stored_lease, takeover
from zcrawl.master.commits import Batch, Commits
from zcrawl.master.history_keeper import HistoryKeeper
from zcrawl.master.overdue import OverdueLeases
from zcrawl.master.takeover import EpochHints
from zcrawl.mesh.messages import Header
from zcrawl.model.history import row_starts
from zcrawl.model.process_name import ProcessName
from zcrawl.model.states import Disposition, RequestState
from zcrawl.result.plan import ResultPlanner
from zcrawl.store.commands import AdvanceOutput, Done, SaveHistory
from zcrawl.testing.outputs import SimDisk, SimSink
from zcrawl.testing.store import commands, history, redirects, store
from zcrawl.worker.machine import WorkerMachine


@contextlib.contextmanager
def drop_the_duplicate_check() -> Iterator[None]:
    """A result for a request that is final is applied once more."""
    settle = commands._settle

    def careless(tables: Any, change: Any, newest: int, now: float) -> Disposition:
        fate = settle(tables, change, newest, now)
        request = tables.requests.get(change.seq)
        if fate is not Disposition.DUPLICATE or request.state is RequestState.QUEUED:
            return fate
        tables.enqueue(request)
        return Disposition.APPLIED

    with mock.patch.object(commands, "_settle", careless):
        yield


@contextlib.contextmanager
def ack_before_commit() -> Iterator[None]:
    """The worker hears that its results are applied while they are only planned."""
    execute = Commits._execute

    def hasty(self: Commits, batch: Batch, now: float, effects: Any) -> None:
        self._state.receiver.commit(batch.results, self._state.utc(now))
        self._ack_batch(batch, [Disposition.APPLIED] * len(batch.results), effects)
        execute(self, batch, now, effects)

    with mock.patch.object(Commits, "_execute", hasty):
        yield


@contextlib.contextmanager
def skip_the_epoch_check() -> Iterator[None]:
    """The store takes commands of any leader."""
    with mock.patch.object(store, "check_epoch", lambda given, stored: None):
        yield


@contextlib.contextmanager
def cache_links_before_their_ack() -> Iterator[None]:
    """A link counts as known as soon as a result with it was sent."""
    ended = WorkerMachine._on_fetch_ended

    def forward(self: WorkerMachine, seq: int, attempt: Any, now: float, effects: Any) -> None:
        ended(self, seq, attempt, now, effects)
        self.known_links.add(attempt.result())

    with mock.patch.object(WorkerMachine, "_on_fetch_ended", forward):
        yield


@contextlib.contextmanager
def treat_an_unknown_lease_as_stale() -> Iterator[None]:
    """A result whose lease the leader does not know is dropped."""
    plan = ResultPlanner.plan

    def suspicious(self: ResultPlanner, received: Any, clock_offset: float, now: float) -> Any:
        change = plan(self, received, clock_offset, now)
        if self._leases.by_seq.get(received.seq) is None and hasattr(received.result, "run"):
            return self._change(received, received.result, None, dropped=True)
        return change

    with mock.patch.object(ResultPlanner, "plan", suspicious):
        yield


@contextlib.contextmanager
def change_state_before_the_commit() -> Iterator[None]:
    """Links count as seen when a batch is planned, not when it is committed."""
    execute = Commits._execute

    def eager(self: Commits, batch: Batch, now: float, effects: Any) -> None:
        execute(self, batch, now, effects)
        for change in batch.changes:
            for link in change.links:
                self._state.seen.add(change.run, link.key)

    with mock.patch.object(Commits, "_execute", eager):
        yield


@contextlib.contextmanager
def keep_a_page_by_each_redirect_to_it() -> Iterator[None]:
    """Whether the page that answered is in the run by itself does not count."""
    with mock.patch.object(redirects, "is_taken", lambda state, reason: False):
        yield


@contextlib.contextmanager
def forget_the_targets_of_redirects() -> Iterator[None]:
    """A page that a redirect has led to is not seen: its own link is admitted again."""
    collapse = redirects.collapse

    def careless(tables: Any, run: Any, change: Any, *more: Any) -> Any:
        is_known = change.final is None or (run.id, change.final.key) in tables.seqs
        return collapse(tables, run, change, *more) if is_known else change

    with mock.patch.object(commands, "collapse", careless):
        yield


@contextlib.contextmanager
def believe_that_everybody_hears() -> Iterator[None]:
    """Assignments that are lost go to the same worker again and again."""
    with mock.patch.object(Hearing, "_lost", lambda self: False):
        yield


@contextlib.contextmanager
def step_down_by_hearsay() -> Iterator[None]:
    """A higher epoch in anybody's message ends leadership, whatever the database holds."""
    higher_epoch_heard = EpochHints.higher_epoch_heard

    def credulous(self: EpochHints, header: Header, by_master: bool, *more: Any) -> None:
        higher_epoch_heard(self, header, True, *more)

    with mock.patch.object(EpochHints, "higher_epoch_heard", credulous):
        yield


@contextlib.contextmanager
def forget_owners_when_their_lease_is_over() -> Iterator[None]:
    """After a long time without masters the first worker that greets gets every host."""
    with (
        mock.patch.object(takeover, "GREETING_S", -math.inf),
        mock.patch.object(stored_lease, "GREETING_S", -math.inf),
    ):
        yield


@contextlib.contextmanager
def believe_every_heartbeat() -> Iterator[None]:
    """A worker that has lost an attempt says for ever that it runs, and nobody wonders."""
    with mock.patch.object(OverdueLeases, "_is_due", lambda self, lease, now: False):
        yield


@contextlib.contextmanager
def truncate_after_the_fence() -> Iterator[None]:
    """A leader opens the file itself and cuts it, after its fence and before its next commit."""

    def create(self: SimDisk, name: str) -> list[int]:
        content = self.files.setdefault(name, [])
        content.clear()
        return content

    with (
        mock.patch.object(SimDisk, "create", create),
        mock.patch.object(SimSink, "aside_name", lambda self: self._name),
    ):
        yield


@contextlib.contextmanager
def forget_to_store_the_cursor() -> Iterator[None]:
    """Parts are complete, and the cursor of their output stays where it was."""
    run = store.FakeStore._run

    def forgetful(self: store.FakeStore, command: Any) -> Any:
        if isinstance(command, AdvanceOutput):
            old = self.tables.outputs[(command.run, command.path)]
            progress = msgspec.structs.replace(command.progress, pieces=old.progress.pieces)
            command = msgspec.structs.replace(command, cursor=old.cursor, progress=progress)
        return run(self, command)

    with mock.patch.object(store.FakeStore, "_run", forgetful):
        yield


@contextlib.contextmanager
def take_overdue_leases_back_unasked() -> Iterator[None]:
    """An overdue request is leased again while its worker still holds it."""

    def tick(self: OverdueLeases, now: float, effects: Any) -> None:
        for lease in list(self._state.leases.by_seq.values()):
            if lease.started_at is not None and not lease.received and self._is_due(lease, now):
                self.take_back(lease, effects)

    with mock.patch.object(OverdueLeases, "tick", tick):
        yield


@contextlib.contextmanager
def give_away_what_a_greeting_worker_goes_on_with() -> Iterator[None]:
    """By its HELLO a worker gives up its hosts: others get them before it hears its WELCOME."""

    def hasty(self: Granter, worker: Any, host_id: int, in_use: int, now: float) -> None:
        host = self.hosts.get(host_id)
        if host is not None:
            host.parts.setdefault(worker.name, Part(0, 0, 0))

    with mock.patch.object(Granter, "adopt", hasty):
        yield


@contextlib.contextmanager
def sleep_while_owners_are_stored() -> Iterator[None]:
    """The planner skips a host while its owners are being stored, and does not try it again."""

    def forgetful(self: Planner, owners: list[tuple[int, tuple[ProcessName, ...]]]) -> None:
        self.granter.owners_stored(owners)

    with mock.patch.object(Planner, "owners_stored", forgetful):
        yield


@contextlib.contextmanager
def save_the_history_again_when_it_may_be_stored() -> Iterator[None]:
    """An entry whose commit has an unknown outcome is written once more."""

    def eager(self: HistoryKeeper, command: SaveHistory, error: Exception) -> None:
        self._saving, self._left = False, command.entry

    with mock.patch.object(HistoryKeeper, "failed", eager):
        yield


@contextlib.contextmanager
def replace_a_row_of_the_history() -> Iterator[None]:
    """The newest part of a minute takes the place of those that an earlier leader wrote."""
    save = history.save_history

    def careless(tables: Any, command: SaveHistory) -> Done:
        for row in row_starts(command.at):
            tables.history.pop(row, None)
        return save(tables, command)

    with mock.patch.object(history, "save_history", careless):
        yield


ALL = (
    replace_a_row_of_the_history,
    sleep_while_owners_are_stored,
    drop_the_duplicate_check,
    ack_before_commit,
    skip_the_epoch_check,
    cache_links_before_their_ack,
    treat_an_unknown_lease_as_stale,
    change_state_before_the_commit,
    keep_a_page_by_each_redirect_to_it,
    forget_the_targets_of_redirects,
    believe_that_everybody_hears,
    step_down_by_hearsay,
    forget_owners_when_their_lease_is_over,
    truncate_after_the_fence,
    forget_to_store_the_cursor,
    believe_every_heartbeat,
    take_overdue_leases_back_unasked,
    give_away_what_a_greeting_worker_goes_on_with,
)
