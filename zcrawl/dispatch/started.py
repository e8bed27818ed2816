"""What is known of started requests: which may have killed their worker, which last too long.

Heartbeats say which leases have started. Called by `membership` when a worker is gone, and by
`overdue`. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from zcrawl.dispatch.host_state import HostState
from zcrawl.dispatch.leases import Lease
from zcrawl.dispatch.roster import WorkerInfo
from zcrawl.mesh.timing import PERMISSION_S
from zcrawl.model.spec import JobSpec

TRANSIT_S = 1.0  # a heartbeat is at most so old when it comes in, as a rule

# An attempt is one page, and before or beside it: robots.txt, a login, a probe for soft 404s, the
# page's parser, spider or plugin. Each has the time limit of a page; redirects are part of it.
STEPS = 10
REQUESTS_BESIDE = 12  # that wait for the host's pace: robots.txt with its redirects, login, probe
OVERDUE_FACTOR = 2.0
OVERDUE_LEAST_S = 600.0  # for what a leader does not know: a worker's caps, slow blob stores


def suspects(
    leases: Sequence[Lease], hosts: Mapping[int, HostState], worker: WorkerInfo, now: float
) -> set[int]:
    """The requests that may have been running when their worker died: those that its last heartbeat
    called started, and as many of each host as its pace let start since."""
    window_s = min(PERMISSION_S, now - worker.beat_at + TRANSIT_S)
    seqs = {worker.on_trial, worker.reserved}
    waiting: dict[int, list[Lease]] = {}
    for lease in leases:
        if lease.started_at is not None:
            seqs.add(lease.row.seq)
        else:
            waiting.setdefault(lease.row.host, []).append(lease)
    for host_id, queue in waiting.items():
        host = hosts.get(host_id)
        interval_s = 0.0 if host is None else host.interval_s
        most = len(queue)
        if host is not None and interval_s > 0:
            most = min(most, host.demand.burst + math.ceil(window_s / interval_s))
        queue.sort(key=lambda lease: lease.token)  # as they came in
        seqs.update(lease.row.seq for lease in queue[:most])
    return seqs


def longest_attempt_s(spec: JobSpec, host: HostState | None, slots: int) -> float:
    """How long an attempt of a healthy worker can last at most, by a wide margin."""
    fetch, polite = spec.fetch, spec.politeness
    requests = REQUESTS_BESIDE + fetch.max_redirects
    steps = STEPS + requests * len(spec.middlewares)
    if fetch.proxies and fetch.proxy_limit:
        steps += slots  # others may have the proxies
    page_s = max(fetch.timeout, spec.spider_limits.timeout if spec.spider else 0.0)
    pace_s = 0.0 if host is None else host.interval_s * max(1, host.demand.concurrency)
    for rate in (polite.domain_rate, polite.address_rate):
        if rate > 0:
            pace_s = max(pace_s, slots / rate)
    return OVERDUE_LEAST_S + OVERDUE_FACTOR * (steps * page_s + requests * pace_s)
