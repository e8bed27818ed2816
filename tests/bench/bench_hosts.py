"""The leader's CPU per page with 10, 1,000 and 10,000 hosts in one run, on the pure machines.

    python -m tests.bench.bench_hosts

A planner, its frontier and its leases are given the same number of requests, spread over more or
fewer hosts, and four workers that answer at once: what is measured is dispatch alone (picking the
next due host, leasing, sending, taking the result back). Prints the time per page for each number
of hosts, and the ratio to the smallest; wanted is at most 1.2. The first quarter of the pages is
left out of it: there each host gets its owner, which is once per host and not per page, and is
told apart.
"""

from __future__ import annotations

import json
import sys
import time

from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.planner import Planner
from zcrawl.dispatch.roster import Roster, WorkerInfo
from zcrawl.dispatch.runs import Runs
from zcrawl.frontier.frontier import Frontier
from zcrawl.model.host import Manner
from zcrawl.model.rows import HostRow, QueuedRow, RunCounters, RunRow
from zcrawl.model.spec import JobSpec, Politeness
from zcrawl.model.states import NodeState, RunState
from zcrawl.model.vitals import WorkerVitals
from zcrawl.submit.read import to_json

PAGES = 40_000
WORKERS = 4
SLOTS = 64
ROUNDS = 3


def measure(hosts: int) -> tuple[float, float]:
    """Seconds of CPU per page: of dispatch alone, and with finding each host its first owner."""
    roster, leases, frontier, runs = Roster(), Leases(), Frontier(PAGES * 2, PAGES * 2), Runs()
    # The same pages a second in all: what differs is the number of hosts alone.
    rate = PAGES / 10.0 / hosts
    spec = JobSpec("bench", politeness=Politeness(robots=False, rate=rate, burst=1, concurrency=8))
    runs.put(
        RunRow(
            1, 1, "bench", RunState.RUNNING, "", to_json(spec), (), False, RunCounters(), 0, 0, 0
        )
    )
    planner = Planner(1, roster, leases, frontier, runs)
    for number in range(WORKERS):
        worker = WorkerInfo(
            f"w{number}", 1, WorkerVitals(slots=SLOTS * 100), 1, 0.0, state=NodeState.IDLE
        )
        roster.workers[worker.id] = worker
        planner.process_joined(worker.name, 0.0)
    for host in range(1, hosts + 1):
        row = HostRow(host, f"http://h{host}.test", (), 0.0, 0.0)
        planner.granter.load_host(row, 0.0, 0.0)
    for seq in range(1, PAGES + 1):
        host = seq % hosts + 1
        frontier.insert(QueuedRow(1, host, 0, 1, seq, f"http://h{host}.test/{seq}"))
        planner.lane_opened(1, host)
    began = time.process_time()
    now, done = _serve(planner, leases, 0.0, 0, PAGES // 4)
    setting_up = time.process_time()
    _serve(planner, leases, now, done, PAGES)
    ended = time.process_time()
    return (ended - setting_up) / (PAGES - done), (ended - began) / PAGES


def _serve(
    planner: Planner, leases: Leases, now: float, done: int, pages: int
) -> tuple[float, int]:
    """Dispatch, and take every result back at once, until so many pages are done."""
    while done < pages:
        plan = planner.plan(now)
        planner.owners_stored(plan.owners)
        for sending in plan.sendings.values():
            for url in sending.urls:
                done += 1
                planner.learn_pace(url.host, now, 0.0, Manner() if done % 10 == 0 else None)
                lease = leases.by_seq[url.seq]
                leases.receive(lease)
                planner.lease_left(lease.worker, lease.row)
                leases.close(url.seq)
        now = max(now + 0.005, min(planner.next_due_at(), now + 0.5))
    return now, done


def main() -> None:
    sizes = (10, 1_000, 10_000)
    runs = {hosts: [measure(hosts) for _ in range(ROUNDS)] for hosts in sizes}
    dispatch = {
        hosts: min(seconds for seconds, _ in measurements) * 1e6
        for hosts, measurements in runs.items()
    }
    whole = {
        hosts: min(seconds for _, seconds in measurements) * 1e6
        for hosts, measurements in runs.items()
    }
    figures = {
        "pages": PAGES,
        "dispatch_us_per_page": {str(hosts): round(us, 2) for hosts, us in dispatch.items()},
        "with_set_up_us_per_page": {str(hosts): round(us, 2) for hosts, us in whole.items()},
        "ratio": {str(hosts): round(us / dispatch[sizes[0]], 2) for hosts, us in dispatch.items()},
    }
    json.dump(figures, sys.stdout)
    print()


if __name__ == "__main__":
    main()
