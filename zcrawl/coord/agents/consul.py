"""The coordinator on Consul: one thread that calls, threads that watch, the machine that decides.

    event loop ──events──▶ inbox ──▶ the Consul thread: machine.handle() ──calls──▶ Consul
        ▲                    ▲                 │
        └── on_event ────────┼── Tell ─────────┘
                             └── readings ── watch threads (blocking queries)

The machine lives in the Consul thread and nowhere else. Made by `roles.cluster`.

Blocking queries have one thread each for the lock and for each watched role; the Consul thread
gets what they read. A thread ends by itself after `stop` is set, at the latest when its query
returns; it holds nothing that has to be given back.
"""

from __future__ import annotations

import asyncio
import collections
import queue
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from zcrawl.coord import calls as c
from zcrawl.coord.agents.consul_client import ConsulClient, ConsulSettings
from zcrawl.coord.election import Election
from zcrawl.coord.members import watched_by
from zcrawl.coord.ports import Condition, CoordAway, CoordEvent, Member, MemberRole, OnEvent

Reading: TypeAlias = c.LockRead | c.MembersRead
Report: TypeAlias = Callable[[Reading | c.WatchFailed], None]
WatchQuery: TypeAlias = Callable[[str | None], tuple[str, Reading]]

# The longest that a connection may be dead unnoticed, and that Consul counts the connection of a
# process that was killed: it serves no more than 200 of one address.
WAIT_S: Final = 10
# py-consul waits this long beyond the query's own time (and its jitter) before it gives up.
ANSWER_TIMEOUT_S: Final = 2.0
SAME_AGAIN_S: Final = 0.05  # pause after a query that returned without a change
CATALOGUE_PAUSE_S: Final = 0.3  # many changes are read at once
RETRY_FIRST_S: Final = 0.1
RETRY_LONGEST_S: Final = 1.0


def start_watches(
    settings: ConsulSettings, me: Member, report: Report, stop: threading.Event
) -> None:
    roles = watched_by(me.role)
    watches = ["lock"] if MemberRole.MASTER in roles else []
    watches += [role.value for role in roles]
    for what in watches:
        client = ConsulClient(settings, me, ANSWER_TIMEOUT_S)
        watch = _Watch(what, client, report, stop)
        threading.Thread(target=watch.run, name=f"consul-{what}", daemon=True).start()


class _Watch:
    def __init__(
        self, what: str, client: ConsulClient, report: Report, stop: threading.Event
    ) -> None:
        self._what = what
        self._client = client
        self._report = report
        self._stop = stop

    def run(self) -> None:
        index: str | None = None
        last: Reading | None = None
        failures = 0
        while not self._stop.is_set():
            try:
                new_index, reading = self._query(index)
            except Exception as error:
                trouble, reason = self._client.explain(error)
                self._report(c.WatchFailed(self._what, trouble, reason))
                index = None  # whoever answers next may count differently
                failures += 1
                pause = min(RETRY_FIRST_S * 2 ** min(failures - 1, 10), RETRY_LONGEST_S)
                self._stop.wait(pause)
                continue
            # After a failure, report even an unchanged value: it shows that Consul is back.
            if reading != last or failures:
                self._report(reading)
            pause = SAME_AGAIN_S if reading == last else 0.0
            if self._what != "lock":
                pause = CATALOGUE_PAUSE_S
            last, failures = reading, 0
            index = _next_index(index, new_index)
            if pause:
                self._stop.wait(pause)

    def _query(self, index: str | None) -> tuple[str, Reading]:
        if self._what == "lock":
            return self._client.read_lock(index, WAIT_S)
        return self._client.read_members(MemberRole(self._what), index, WAIT_S)


def _next_index(old: str | None, new: str) -> str | None:
    """Return the index for the next query; None (do not block) after an invalid or lower one."""
    if not new.isdecimal() or int(new) < 1:
        return None
    return None if old is not None and int(new) < int(old) else new


CLOSE_TIMEOUT_S: Final = 1.0  # for all that is to be given back
CLOSE_CALL_TIMEOUT_S: Final = 0.4


class ConsulCoordinator:
    """Implements `coord.ports.Coordinator`."""

    def __init__(self, settings: ConsulSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._inbox: queue.SimpleQueue[c.ElectionEvent] = queue.SimpleQueue()
        self._calls: collections.deque[c.Call] = collections.deque()
        self._stop = threading.Event()
        self._closed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_event: OnEvent | None = None

    # ------------------------------------------------------------ on the event loop's thread

    def start(self, me: Member, on_event: OnEvent) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        self._on_event = on_event
        ConsulClient(self._settings, me)  # a wrong address is an error here, not in a thread
        election = Election(me, self._clock())
        threading.Thread(target=self._run, args=(election,), name="consul", daemon=True).start()
        start_watches(self._settings, me, self._inbox.put, self._stop)

    def loop_alive(self) -> None:
        self._inbox.put(c.LoopLived(self._clock()))

    def update(self, condition: Condition) -> None:
        self._inbox.put(c.ConditionSet(condition))

    def resign(self) -> None:
        self._inbox.put(c.ResignAsked())

    async def close(self) -> None:
        if self._closed is None or self._stop.is_set():
            return
        self._on_event = None
        self._stop.set()
        self._inbox.put(c.ElectionTicked())  # wakes the thread
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._closed.wait()
        except TimeoutError:
            pass  # Consul is away: check and session run out by themselves

    # ------------------------------------------------------------ on the Consul thread

    def _run(self, election: Election) -> None:
        try:
            self._work(election)
        except Exception as error:
            # A bug. The health check expires, so another master will lead; log the reason.
            self._tell(CoordAway(f"the Consul thread ended: {type(error).__name__}: {error}"))
            raise

    def _work(self, election: Election) -> None:
        client = ConsulClient(self._settings, election.me)
        while not self._stop.is_set():
            self._take(election, c.ElectionTicked())
            if self._calls:
                self._take(election, client.perform(self._calls.popleft()))
            else:
                self._wait(election)
            while not self._inbox.empty():
                self._take(election, self._inbox.get_nowait())
        self._give_back(election)

    def _wait(self, election: Election) -> None:
        now = self._clock()
        try:
            event = self._inbox.get(timeout=max(election.next_wakeup(now) - now, 0.001))
        except queue.Empty:
            return  # time to tick
        self._take(election, event)

    def _take(self, election: Election, event: c.ElectionEvent) -> None:
        for effect in election.handle(event, self._clock()):
            match effect:
                case c.Tell(news):
                    self._tell(news)
                case c.PassCheck():
                    self._calls.appendleft(
                        effect
                    )  # first in the queue, because another call may hang
                case _:
                    self._calls.append(effect)

    def _give_back(self, election: Election) -> None:
        client = ConsulClient(self._settings, election.me, CLOSE_CALL_TIMEOUT_S)
        for effect in election.handle(c.CloseAsked(), self._clock()):
            if isinstance(effect, c.Tell):
                continue  # nobody listens any more
            answer = client.perform(effect)
            if isinstance(answer, c.CallFailed) and answer.trouble is c.Trouble.AWAY:
                break  # the rest would wait in vain
        assert self._closed is not None
        self._call_loop(self._closed.set)

    def _tell(self, event: CoordEvent) -> None:
        self._call_loop(lambda: self._on_event(event) if self._on_event is not None else None)

    def _call_loop(self, action: Callable[[], object]) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)
