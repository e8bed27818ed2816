"""Drives a WorkerMachine with real parts: sockets, clock, pipeline.

Messages, finished fetches, wanted hops and time go in as events; effects go out. The machine's
next moment is looked up once per turn of the loop, not once per event.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Final, assert_never

from zcrawl.mesh.messages import Accept, BadBody, LogRecords, Result
from zcrawl.mesh.ports import Arrived, WorkerMesh
from zcrawl.model.log_event import BAD_BODY, RESTARTED, Log
from zcrawl.model.reasons.cluster import MACHINE_ERROR
from zcrawl.model.reload_report import ReloadReport
from zcrawl.runtime.loop import in_full, supervised, tell_unhandled
from zcrawl.worker import events as w
from zcrawl.worker.machine import WorkerMachine
from zcrawl.worker.pipeline.pipeline import Pipeline
from zcrawl.worker.results.attempt import Attempt

MEASURE_S: Final = 1.0  # memory and lag are measured this often
LEAST_WAIT_S: Final = 0.001
GATHER_S: Final = 0.004  # messages wait this long for company; a commit waits 10 ms anyway


class WorkerLoop:
    def __init__(
        self,
        machine: WorkerMachine,
        mesh: WorkerMesh,
        *,
        clock: Callable[[], float],
        rss_bytes: Callable[[], int],
        cpu_percent: Callable[[], float | None],
        log: Log,
        lines: Callable[[], LogRecords | None] = lambda: None,
        after: str = "",
        alive: Callable[[], None] = lambda: None,
        reload: Callable[[str], None] = lambda request: None,
    ) -> None:
        """`after`: how the process before this one ended. `alive` is called once a second. `reload`
        lets the node read its configuration again; `reloaded` is the answer."""
        self.machine = machine
        self.counters: Counter[str] = Counter()
        self._mesh = mesh
        self._clock = clock
        self._measure_rss, self._measure_cpu = rss_bytes, cpu_percent
        self._log, self._lines, self._after = log, lines, after
        self._alive = alive
        self._reload = reload
        self._pipeline: Pipeline | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._planned = False
        self._outgoing: list[w.PublishToAll | w.SendToMaster] = []
        self._flush_timer: asyncio.TimerHandle | None = None
        self._rss_bytes = 0
        self._cpu_percent: float | None = None
        self._lag_ms = 0.0
        self.refused = False  # set at the end if the masters refused this worker
        self._is_leaving = False

    async def run(self, pipeline: Pipeline) -> str:
        """Run until the machine says Exit; return its reason."""
        self._pipeline = pipeline
        self._mesh.listen(self._on_messages)
        tell_unhandled(self.note)
        measuring = supervised(self._measure(), "measure", self.note, self.end)
        self.handle(w.WorkerTicked())
        try:
            reason = await self._ended
            self._log("exit", reason)
            return reason
        finally:
            measuring.cancel()
            self._flush()
            self._tell_lines()
            if self._timer is not None:
                self._timer.cancel()
            await pipeline.close()

    # ------------------------------------------------------------ events

    def handle(self, event: w.WorkerEvent) -> None:
        if self._ended.done():
            return
        try:
            for effect in self.machine.handle(event, self._clock()):
                self._do(effect)
        except Exception as error:  # its memory may be wrong: the supervisor starts a new one
            self.note(MACHINE_ERROR, traceback.format_exc())
            self.end(f"machine error: {error!r}")
            return
        if self.machine.draining and not self._is_leaving and self._pipeline is not None:
            self._is_leaving = True
            self._pipeline.leave()
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._plan_wakeup)

    def fetch_ended(self, seq: int, attempt: Attempt) -> None:
        self.handle(w.FetchEnded(seq, attempt))

    def hop_wanted(self, seq: int, crawl_delay_s: float) -> None:
        self.handle(w.HopWanted(seq, crawl_delay_s))

    def started_late(self, seq: int) -> None:
        self.handle(w.StartedLate(seq))

    def run_lacks(self, run: int, what: str) -> None:
        self.handle(w.RunLacks(run, what))

    def drain(self) -> None:
        self.handle(w.DrainAsked())

    def change_settings(self, slots: int, labels: tuple[str, ...]) -> None:
        self.handle(w.SettingsChanged(slots, labels))

    def reloaded(self, request: str, node: str, report: ReloadReport) -> None:
        self.handle(w.NodeReloaded(request, node, report))

    def end(self, reason: str, refused: bool = False) -> None:
        """Leave now; what is not delivered is fetched again by others."""
        if not self._ended.done():
            self.refused = refused
            self._ended.set_result(reason)

    def note(self, name: str, detail: str, *, run: int = 0) -> None:
        self.counters[name] += 1
        self._log(name, f"run {run}: {detail}" if run else detail, run=run)

    def _on_messages(self, arrived: list[Arrived]) -> None:
        for arrival in arrived:
            message = arrival.message
            if isinstance(message, BadBody):
                self.note(BAD_BODY, message.error)
            else:
                self.handle(w.MasterMessageCame(message.header, message.body))

    # ------------------------------------------------------------ effects

    def _do(self, effect: w.WorkerEffect) -> None:
        pipeline = self._pipeline
        assert pipeline is not None
        match effect:
            case w.PublishToAll() | w.SendToMaster():
                self._outgoing.append(effect)
                if self._flush_timer is None:
                    self._flush_timer = self._loop.call_later(GATHER_S, self._flush)
            case w.StartFetch(held):
                pipeline.start(held.assignment, held.address, held.groups)
            case w.PermitHop(seq):
                pipeline.permit(seq)
            case w.CancelFetch(seq):
                pipeline.cancel(seq)
            case w.AdoptRun(config):
                pipeline.adopt(config)
            case w.AdoptRobots(origin, file):
                pipeline.learn_robots(origin, file)
            case w.AdoptCode(code):
                pipeline.adopt_code(code)
            case w.ForgetRun(run):
                pipeline.forget(run)
            case w.AskForReload(request):
                self._reload(request)
            case w.Note(name, detail, run):
                self.note(name, detail, run=run)
            case w.Exit(reason, refused):
                self.end(reason, refused)
            case _:
                assert_never(effect)

    def _flush(self) -> None:
        """Send messages together: each alone would wake ZeroMQ's thread and the master."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        outgoing, self._outgoing = self._outgoing, []
        mesh, epoch = self._mesh, self.machine.epoch
        last = len(outgoing) - 1
        for index, message in enumerate(outgoing):
            try:
                if isinstance(message, w.PublishToAll):
                    mesh.publish(epoch, message.body, message.sequence, message.subject)
                elif index == last or not _says_the_same_later(message, outgoing[index + 1 :]):
                    mesh.send(
                        message.master, epoch, message.body, message.sequence, message.subject
                    )
            except Exception as error:  # of this message only: the others go out
                self._not_sent(message, error)

    def _not_sent(self, message: w.PublishToAll | w.SendToMaster, error: Exception) -> None:
        """Replace a result that cannot be encoded by one that can, so that its request ends."""
        what = type(message.body).__name__
        self.note("message_unsendable", f"{what} of {message.subject}: {in_full(error)}")
        if isinstance(message.body, Result):
            detail = f"{type(error).__name__}: {error}"
            self.handle(w.ResultRefused(message.sequence, detail))

    # ------------------------------------------------------------ time

    def _plan_wakeup(self) -> None:
        """Set the timer for the machine's next moment."""
        self._planned = False
        if self._ended.done():
            return
        moment = self.machine.next_wakeup(self._clock())
        if self._timer is not None:
            if abs(moment - self._timer_at) < LEAST_WAIT_S:
                return
            self._timer.cancel()
        self._timer_at = moment
        wait_s = min(max(moment - self._clock(), LEAST_WAIT_S), MEASURE_S)
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.handle(w.WorkerTicked(self._rss_bytes, self._lag_ms, self._cpu_percent))

    async def _measure(self) -> None:
        followed = 0
        self._rss_bytes = self._measure_rss()
        while True:
            self._alive()
            before = self._loop.time()
            await asyncio.sleep(MEASURE_S)
            self._lag_ms = max(0.0, self._loop.time() - before - MEASURE_S) * 1000
            if self.machine.epoch != followed:
                followed = self.machine.epoch
                self._log("follows", f"{self.machine.leader} in epoch {followed}")
                self._tell_restart()
            try:
                self._rss_bytes = self._measure_rss()
                self._cpu_percent = self._measure_cpu()
                self._tell_lines()
            except Exception as error:  # for example no free file descriptor: try again in a second
                self.note("measure_failed", in_full(error))

    def _tell_restart(self) -> None:
        """Report the restart once there is a leader; before, the message would be lost."""
        if self._after:
            self._log(RESTARTED, f"the process before this one, {self._after}")
            self._after = ""

    def _tell_lines(self) -> None:
        """Once a second, and only if something was logged. What is lost on the way is lost: this
        process's own log has it."""
        lines = self._lines()
        if lines is not None:
            self._mesh.publish(self.machine.epoch, lines)


def _says_the_same_later(
    message: w.SendToMaster, later: list[w.PublishToAll | w.SendToMaster]
) -> bool:
    """An ACCEPT tells how far assignments came in: a later one to the same master says it too."""
    if not isinstance(message.body, Accept) or message.body.grants:
        return False
    return any(
        isinstance(other, w.SendToMaster)
        and other.master == message.master
        and isinstance(other.body, Accept)
        for other in later
    )
