"""What clients do to jobs and runs: pause, resume, cancel, delete, retry, archive, tune, prune.

A part of the desk. Each action looks at the stored job first, then becomes one command. After the
commit, memory follows what is stored, and the client gets its reply.
"""

from __future__ import annotations

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.desk import actions, idempotency, ownership, reads, replies
from zcrawl.master.desk.actions import Intents
from zcrawl.master.desk.replies import OpenRequests, Pending
from zcrawl.master.events import Ask, Execute, MasterEffects, Note, RemoveOldRuns
from zcrawl.master.leader_state import LeaderState
from zcrawl.model.reasons.cluster import BAD_REQUEST, NO_SUCH_RUN, UNSEEN_RUNS
from zcrawl.model.reasons.skip import CANCELLED, DELETED
from zcrawl.model.reasons.waiting import PAUSED_BY_REQUEST
from zcrawl.model.states import JobState, RunState
from zcrawl.store.commands import (
    ChangeJob,
    ChangeRun,
    JobChanged,
    Retried,
    RetryDead,
    RunChanged,
    TuneRun,
)
from zcrawl.store.queries import FindJob, JobList, JobRow, ReadRemovable, RemovableRuns
from zcrawl.store.rules import run_reply
from zcrawl.submit.differences import changes
from zcrawl.submit.stored import check_right, readable
from zcrawl.telemetry.views import (
    MOST_REMOVABLE,
    chosen_run,
    live_runs,
    present_runs,
    removable_view,
    would_change,
)

ACTIONS = {
    "pause": (RunState.PAUSED, PAUSED_BY_REQUEST),
    "resume": (RunState.RUNNING, ""),
    "cancel": (RunState.CANCELLED, CANCELLED),
    "delete": (RunState.DELETED, DELETED),
}
JOB_STATES = {"active": JobState.ACTIVE, "paused": JobState.PAUSED, "archived": JobState.ARCHIVED}


class RunActions:
    def __init__(self, state: LeaderState, intents: Intents, requests: OpenRequests) -> None:
        self._state, self._intents, self._requests = state, intents, requests

    def find_job(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Ask for the job that an action is about."""
        effects.append(Ask(FindJob(pending.args.text("ref")), pending.request.id))

    def act(self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects) -> None:
        job = pending.job = _own_job(pending, job_list)
        action = pending.args.text("action")
        run_number = reads.wanted_run(pending.args)
        seen = actions.seen_runs(pending.args)
        if action == "delete" and run_number is None:
            pending.count = len(present_runs(job)) or 1
            self._change_job(pending, job, JobState.DELETED, now, effects, seen)
            return
        run = chosen_run(job, run_number)
        if action in ("retry", "resume"):
            spec = check_right(run.spec, self._state.allow_code, self._state.shell)
            ownership.check_rights(pending.request, spec)
        if action == "retry":
            client_action = idempotency.client_action(self._state, pending, now)
            retry = self._intents.retry(run.id, pending.args, client_action)
            if retry is not None:
                effects.append(Execute(retry))
        elif action in ACTIONS:
            state, reason = ACTIONS[action]
            runs = live_runs(job) if run_number is None else [run]
            run = runs[0] if runs else run  # none is live: the store refuses, or has nothing to do
            pending.count = sum(would_change(row, state) for row in runs or [run])
            others = tuple(row.id for row in runs if row is not run)
            client_action = idempotency.client_action(self._state, pending, now)
            deletes = state is RunState.DELETED and pending.args.get("ended_at") is not None
            change = ChangeRun(
                epoch=self._state.epoch,
                request=pending.request.id,
                run=run.id,
                state=state,
                reason=reason,
                now=client_action.at,
                client_action=client_action,
                others=others,
                only_ended_at=pending.args.number("ended_at") if deletes else None,
            )
            effects.append(Execute(change))
        else:
            raise RefusedError(f"unknown action {action!r}", code=BAD_REQUEST)

    def change_job(
        self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects
    ) -> None:
        """Pause, activate or archive a job; its runs go on."""
        job, name = _own_job(pending, job_list), pending.args.text("state")
        if name not in JOB_STATES:
            raise RefusedError(f"unknown state {name!r}", code=BAD_REQUEST)
        pending.count = int(job.state is not JOB_STATES[name])
        self._change_job(pending, job, JOB_STATES[name], now, effects)

    def _change_job(
        self,
        pending: Pending,
        job: JobRow,
        state: JobState,
        now: float,
        effects: MasterEffects,
        seen: tuple[int, ...] | None = None,
    ) -> None:
        client_action = idempotency.client_action(self._state, pending, now)
        effects.append(
            Execute(
                ChangeJob(
                    self._state.epoch,
                    pending.request.id,
                    job.id,
                    state,
                    client_action.at,
                    client_action,
                    seen,
                )
            )
        )

    def job_changed(
        self, pending: Pending, done: JobChanged, now: float, effects: MasterEffects
    ) -> None:
        if done.refused == UNSEEN_RUNS:
            self._requests.refuse(pending, actions.unseen_runs(done), effects)
            return
        if done.row is None:
            self._requests.refuse(pending, replies.refusal(done.refused, 0, 0), effects)
            return
        for changed in done.runs:
            self._state.put_run(changed, now, effects)
        sentence = idempotency.deed(pending.request, done.row.name)
        state = done.row.state
        effects.append(Note(f"job_{state}", sentence))
        self._requests.reply(pending, msgspec.json.decode(done.reply), effects)

    def changed(
        self, pending: Pending, done: RunChanged, now: float, effects: MasterEffects
    ) -> None:
        for changed in (done.row, *done.others):
            if changed is not None:
                self._state.put_run(changed, now, effects)
        if done.reply:
            self._requests.reply(pending, msgspec.json.decode(done.reply), effects)
        elif done.refused:
            error = replies.refusal(done.refused, 0, 0)
            self._requests.refuse(pending, error, effects)
        elif done.row is not None:
            row = done.row
            what = "tuned" if pending.request.op == "tune" else row.state
            sentence = idempotency.deed(pending.request, row.name)
            effects.append(Note(f"run_{what}", f"{sentence} (run {row.id})", row.id))
            self._requests.reply(pending, run_reply(row, pending.count), effects)

    def tune(self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects) -> None:
        job = _own_job(pending, job_list)
        run, spec = actions.tuned_spec(job, pending.args)
        if pending.args.get("rate") is not None:
            quotas = self._state.quotas.get(pending.request.by)
            ownership.check_rate(pending.request, readable(spec), quotas)
        pending.count, pending.job = int(run.spec != spec), job
        detail = "; ".join(changes(run.spec, spec))
        client_action = idempotency.client_action(self._state, pending, now, detail)
        effects.append(
            Execute(
                TuneRun(
                    self._state.epoch,
                    client_action.request,
                    run.id,
                    spec,
                    client_action,
                    client_action.at,
                )
            )
        )

    def retried(
        self,
        pending: Pending,
        command: RetryDead,
        done: Retried,
        now: float,
        effects: MasterEffects,
    ) -> None:
        if done.reply:
            self._intents.retried(command, False, now, effects)
            self._requests.reply(pending, msgspec.json.decode(done.reply), effects)
            return
        self._intents.retried(command, done.more, now, effects)
        if done.refused or done.row is None:
            error = replies.refusal(done.refused or NO_SUCH_RUN, 0, command.run)
            self._requests.refuse(pending, error, effects)
            return
        self._state.put_run(done.row, now, effects)
        self._state.planner.verdicts.forgive(done.row.id)
        self._state.admit(done.rows, done.hosts, now)
        if not done.more:
            self._requests.reply(pending, run_reply(done.row, done.changed), effects)

    # ------------------------------------------------------------ retention

    def prune(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Begin with the job, if one is named."""
        if pending.args.text("ref"):
            self.find_job(pending, now, effects)
        else:
            self._find_removable(pending, now, effects)

    def prune_job(
        self, pending: Pending, job_list: JobList, now: float, effects: MasterEffects
    ) -> None:
        pending.job = reads.the_job(job_list, pending.request)
        self._find_removable(pending, now, effects)

    def _find_removable(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        job = None if pending.job is None else pending.job.id
        utc, defaults = self._state.utc(now), self._state.retention
        effects.append(Ask(ReadRemovable(utc, defaults, MOST_REMOVABLE, job), pending.request.id))

    def pruned(self, pending: Pending, removable: RemovableRuns, effects: MasterEffects) -> None:
        """The driver removes them: it writes archives, and then deletes each run by a request."""
        if not pending.args.get("dry_run"):
            effects.append(RemoveOldRuns(None if pending.job is None else pending.job.id))
        self._requests.reply(
            pending, {"runs": [removable_view(row) for row in removable.rows]}, effects
        )


def _own_job(pending: Pending, job_list: JobList) -> JobRow:
    """Return the job that an action is about; RefusedError if it is not there, or if the request
    may not change it."""
    job = reads.the_job(job_list, pending.request)
    ownership.check_owner(pending.request, job)
    return job
