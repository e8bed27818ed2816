"""Blocking queries: one thread each for the lock, the masters and the workers.

Started by `consul`, which gets what they read. A thread ends by itself after `stop` is set,
at the latest when its query returns; it holds nothing that has to be given back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from zcrawl.coord import calls as c
from zcrawl.coord.agents.consul_client import ConsulClient, ConsulSettings
from zcrawl.coord.ports import Member, Role

Reading: TypeAlias = c.LockRead | c.MembersRead
Report: TypeAlias = Callable[[Reading | c.WatchFailed], None]
Query: TypeAlias = Callable[[str | None], tuple[str, Reading]]

# The longest that a connection may be dead unnoticed, and that Consul counts the connection of a
# process that was killed: it serves no more than 200 of one address.
WAIT_S: Final = 10
# py-consul waits this long beyond the query's own time (and its jitter) before it gives up.
ANSWER_TIMEOUT_S: Final = 2.0
SAME_AGAIN_S: Final = 0.05  # a return proves no change: do not spin on those that do not
CATALOGUE_PAUSE_S: Final = 0.3  # many changes are read at once
RETRY_FIRST_S: Final = 0.1
RETRY_LONGEST_S: Final = 1.0


def start_watches(
    settings: ConsulSettings, me: Member, report: Report, stop: threading.Event
) -> None:
    watches = ["lock", Role.MASTER.value]
    if me.role is Role.MASTER:
        watches.append(Role.WORKER.value)
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
            # Told although nothing changed after a failure: it is the sign that Consul is back.
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
        return self._client.read_members(Role(self._what), index, WAIT_S)


def _next_index(old: str | None, new: str) -> str | None:
    """None asks without blocking: after an index that went back or that is none."""
    if not new.isdecimal() or int(new) < 1:
        return None
    return None if old is not None and int(new) < int(old) else new
