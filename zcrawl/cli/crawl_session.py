"""One crawl from submission to summary, on a cluster that the caller has started.

Called by `crawl` and `demo`. The session submits or resumes, reads snapshots until its runs have
ended, and turns an interrupt into an orderly end. It decides the exit code:
0 ended; 1 ended without a single page, or ended by another user, or stopped because the store
failed; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from zcrawl.cli import output
from zcrawl.cli.connect import Cluster
from zcrawl.cli.display import Display
from zcrawl.cli.feed import ItemStream, close_seeds, send_seeds
from zcrawl.cli.interrupt import INTERRUPTED, Interrupt, resume_command
from zcrawl.cli.reason_lines import next_step, reason_lines
from zcrawl.cli.specs import Submission
from zcrawl.errors import RefusedError, StoreError, ZcrawlError
from zcrawl.model.reasons.cluster import MACHINE_ERROR
from zcrawl.model.reasons.failure import BLOCKED_ADDRESS
from zcrawl.model.reasons.skip import ROBOTS, TOO_DEEP
from zcrawl.model.snapshot import ENDED, ClusterSnapshot
from zcrawl.model.states import RunState
from zcrawl.roles.place import LOG
from zcrawl.submit.outputs import PLUGIN, is_remote, part_path
from zcrawl.telemetry.views import summary

POLL_S: Final = 0.1
STORE_PATIENCE_S: Final = 10.0
MISHAPS_MOST: Final = 6  # failures of the leader in a row; the waits between them are 6 s in sum
DRAIN_TIMEOUT_S: Final = 30.0  # longer than one request may take by default


class CrawlTarget(msgspec.Struct, frozen=True):
    """What to crawl: a submission, or None to resume the runs of the data folder."""

    data: Path
    submission: Submission | None
    output: tuple[str, str] | None  # None: items go to stdout
    json: bool


class CrawlRun:
    def __init__(
        self, cluster: Cluster, plan: CrawlTarget, display: Display, interrupt: Interrupt
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._display = display
        self._interrupt = interrupt
        self._runs: dict[int, int] = {}  # run → job
        self._seen: set[int] = set()  # runs that a snapshot has shown
        self._stream: ItemStream | None = None
        self._reader_left = False

    async def run(self) -> int:
        """Run the crawl and return the exit code."""
        try:
            await (self._submit() if self._plan.submission else self._resume())
            if not self._runs:
                await self._cluster.flush_outputs()  # a run may have ended before its outputs
                self._display.note(f"nothing to resume in {self._plan.data}")
                if self._plan.json:
                    output.print_json({"state": "nothing_to_resume"})
                return 0
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._watch(tasks)
            except BaseExceptionGroup as group:
                raise _first(group) from None
            if self._interrupt.requested.is_set() or self._reader_left:
                return await self._stop()
            return await self._finish()
        finally:
            self._display.close()
            if self._stream is not None:
                await self._stream.close()

    async def _submit(self) -> None:
        plan, submission = self._plan, self._plan.submission
        assert submission is not None
        paused = [run for run in self._cluster.snapshot().runs if not run.ended]
        if paused:
            names = ", ".join(sorted({run.name for run in paused}))
            self._display.note(
                f"unfinished and paused: {names}; continue with `{resume_command(plan.data)}`"
            )
        reply = await self._cluster.ask("submit", submission.args("update", plan.output))
        self._runs = {reply["run"]: reply["job"]}
        if plan.output is None:
            self._stream = ItemStream(plan.data, reply["run"])

    async def _resume(self) -> None:
        for view in (await self._cluster.ask("jobs", {}))["jobs"]:
            for run in view["runs"]:
                if run["state"] in ENDED:
                    continue
                # The process that was sending seeds was interrupted, so no more seeds come.
                await close_seeds(self._cluster.ask, run["run"])
                if run["state"] != RunState.PAUSED or await self._wake(view["job"], run["run"]):
                    self._runs[run["run"]] = view["job"]

    async def _wake(self, job: int, run: int) -> bool:
        """Resume a paused run; return whether it runs. The crawl must not wait for a paused run."""
        args = {"ref": str(job), "action": "resume", "run": run}
        try:
            woken = bool((await self._cluster.ask("act", args))["run"] == run)
        except RefusedError as error:
            self._display.note(f"job {job}, run {run}: {error}")
            return False
        if not woken:
            self._display.note(f"job {job}, run {run} stays paused: a newer run of it exists")
        return woken

    async def _watch(self, tasks: asyncio.TaskGroup) -> None:
        """Read snapshots until all runs have ended or the user interrupts."""
        submission = self._plan.submission
        feeder = None
        if submission is not None and submission.more:
            (run,) = self._runs
            sending = send_seeds(self._cluster.ask, run, submission)
            feeder = tasks.create_task(sending, name="seeds")
        try:
            while not self._interrupt.requested.is_set() and not self._reader_left:
                snapshot = self._cluster.snapshot()
                self._display.show(snapshot, self._runs)
                self._check_store(snapshot)
                self._check_leader(snapshot)
                if self._ended(snapshot):
                    return
                await self._pump()
                with contextlib.suppress(TimeoutError):  # time to look again
                    async with asyncio.timeout(POLL_S):
                        await self._interrupt.requested.wait()
        finally:
            if feeder is not None:
                feeder.cancel()

    def _ended(self, snapshot: ClusterSnapshot) -> bool:
        ended = {run.run: run.ended for run in snapshot.runs if run.run in self._runs}
        self._seen.update(ended)
        # A run that is missing in a newer snapshot has ended too: snapshots drop old runs.
        return all(ended.get(run, run in self._seen) for run in self._runs)

    def _check_store(self, snapshot: ClusterSnapshot) -> None:
        store = snapshot.store
        if not store.error or store.since_s <= STORE_PATIENCE_S:
            return
        self._display.note(f"continue with: {resume_command(self._plan.data)}")
        raise StoreError(
            f"stopped: the store has failed for {store.since_s:.0f} s", code=store.error
        )

    def _check_leader(self, snapshot: ClusterSnapshot) -> None:
        """Stop if the leader fails again and again; else a bug would block the crawl for ever."""
        mishaps = snapshot.mishaps
        if mishaps.in_row < MISHAPS_MOST:
            return
        self._display.note(f"continue with: {resume_command(self._plan.data)}")
        raise ZcrawlError(
            f"stopped: the leader failed {mishaps.in_row} times in a row by an error of its own "
            f"(machine_error in {self._plan.data / LOG}); the last: {mishaps.last}",
            code=MACHINE_ERROR,
        )

    async def _pump(self) -> None:
        if self._stream is None:
            return
        try:
            await self._stream.pump()
        except BrokenPipeError:
            self._reader_left = True

    async def _stop(self) -> int:
        in_flight = sum(
            run.in_flight for run in self._cluster.snapshot().runs if run.run in self._runs
        )
        again = "" if self._reader_left else "; press Ctrl-C again to stop now"
        self._display.note(f"finishing {output.plural(in_flight, 'request')} in flight{again}")
        submission = self._plan.submission
        if submission is not None and submission.more:
            for run in self._runs:
                await close_seeds(self._cluster.ask, run)
            sent = len(submission.first) + submission.sent
            self._display.note(f"{sent} seeds were submitted; any others were not")
        await self._cluster.drain(DRAIN_TIMEOUT_S)
        await self._flush(self._runs)
        self._display.close()
        self._display.note(f"saved; continue with: {resume_command(self._plan.data)}")
        if submission is not None and submission.secrets:
            names = " and ".join(submission.secrets)
            self._display.note(f"the login of a URL is not kept: set {names} before")
        return 1 if self._reader_left else INTERRUPTED

    async def _flush(self, runs: Collection[int] = ()) -> None:
        try:
            await self._cluster.flush_outputs(runs)
        except ZcrawlError:
            again = resume_command(self._plan.data)
            self._display.note(f"all items are in the database; to write the rest: {again}")
            raise

    async def _finish(self) -> int:
        await self._flush(self._runs)
        await self._pump()
        self._note_other_outputs()
        views = [await self._view(run, job) for run, job in self._runs.items()]
        self._display.close()
        for view in views:
            self._tell(view)
            if self._plan.json:
                output.print_json(summary(view))
        complaint = self._plan.submission.lines.complaint() if self._plan.submission else None
        if complaint:
            self._display.note(complaint)
        return max(1 if complaint else 0, *(exit_code(view) for view in views))

    def _note_other_outputs(self) -> None:
        """Report outputs of earlier runs that cannot be written."""
        for trouble in self._cluster.snapshot().outputs.troubles:
            if trouble.run not in self._runs:
                self._display.note(
                    f"run {trouble.run}: its output cannot be written [{trouble.error}]: "
                    f"{trouble.detail}; its items are in the database"
                )

    async def _view(self, run: int, job: int) -> dict[str, Any]:
        view = await self._cluster.ask("job", {"ref": str(job)})
        if view["run"] == run:
            return view
        # A newer run of the same job exists, so the tallies in the view are not of this run.
        (own,) = (row for row in view["runs"] if row["run"] == run)
        return {**own, "statuses": {}, "failed_reasons": {}, "skipped_reasons": {}}

    def _tell(self, view: dict[str, Any]) -> None:
        if self._plan.json:
            return
        where = None
        if self._plan.output is not None and self._plan.submission is not None:
            path, form = self._plan.output
            where = path.replace("{run}", str(view["run"]))
            if not is_remote(where) and form != PLUGIN:
                where = str(self._plan.data / where)  # paths of jobs are relative to this folder
            kept = self._plan.submission.spec.output
            if kept.rotate_bytes or kept.rotate_seconds:
                where = f"{part_path(where, 0, True)} and the parts after it"
        job_file = self._plan.submission.job_file if self._plan.submission else ""
        for text in closing_lines(view, where, job_file):
            self._display.note(text)


def closing_lines(view: dict[str, Any], where: str | None, job_file: str = "") -> list[str]:
    """Return the summary of a run. `job_file`: the submitted file, if it is known."""
    reason = f" ({view['reason']})" if view["reason"] else ""
    same = f" ({view['unchanged']} unchanged)" if view.get("unchanged") else ""
    lines = [
        f"{view['name']}, run {view['run']}, {view['state']}{reason}: {view['pages']} pages{same}, "
        f"{view['failed']} failed, {view['skipped']} skipped in "
        f"{output.seconds(view['seconds'])}, {view['pages_per_second']:.1f} pages/s"
    ]
    examples = view.get("examples", {})
    for kind in ("failed", "skipped"):
        lines += reason_lines(kind, view[f"{kind}_reasons"], examples.get(kind, {}))
    if view.get("dropped"):
        lines.append(f"links not followed: {left_out(view['dropped'])}")
    lines += reason_lines(
        "items set aside", view.get("rejected_items", {}), examples.get("rejected", {})
    )
    empty = [name for name, counts in view.get("fields", {}).items() if not counts["filled"]]
    if empty:
        lines.append(
            f"never filled: {', '.join(empty)}; see what a page gives: zcrawl test JOB.toml URL"
        )
    if ROBOTS in view["skipped_reasons"]:
        lines.append(
            "robots.txt forbids some pages for this crawler's name; zcrawl test URL shows the "
            "rule, --no-robots ignores it"
        )
    if any(reason.startswith(BLOCKED_ADDRESS) for reason in view["failed_reasons"]):
        lines.append(
            "the address guard refuses what is not public. A typed name opens its private addresses"
            " only if it had no others when it was submitted; fetch.private_hosts or "
            "--allow-private opens more"
        )
    step = next_step(view, job_file)
    if step:
        lines.append(step)
    if where is not None:
        lines.append(f"{view['items']} items in {where}")
    return lines


def left_out(dropped: dict[str, int]) -> str:
    """Return the reasons of links that were not followed, with a hint if pages may be missing."""
    hint = " (scope.max_depth ended there: pages may be missing)" if TOO_DEEP in dropped else ""
    return f"{output.counts(dropped)}{hint}"


def exit_code(view: dict[str, Any]) -> int:
    """Return 1 if the run failed or was ended early, else 0."""
    return int(view["state"] in (RunState.FAILED, RunState.CANCELLED, RunState.DELETED))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
