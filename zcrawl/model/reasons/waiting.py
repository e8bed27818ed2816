"""Reasons why a host or a run makes no requests right now; `dispatch.why` chooses one."""

from __future__ import annotations

from typing import Final

from zcrawl.model.reasons.reason import ParameterForm, ReasonKind, waiting

# ---------------------------------------------------------------- no reason to worry

FETCHING: Final = waiting(
    "fetching", "Requests are in flight and nothing more is queued.", "Nothing."
)
IDLE: Final = waiting("idle", "Nothing is queued for the host.", "Nothing.")
DUE: Final = waiting("due", "The next request is sent now.", "Nothing.")
STORING: Final = waiting(
    "storing",
    "The database is storing the host's new worker, which gets work after that.",
    "Nothing. If it stays, check the database.",
)
LOADING: Final = waiting(
    "loading",
    "The host's queue is being read from the database.",
    "Nothing. If it stays, check the database.",
)
ENDING: Final = waiting(
    "ending",
    "The host's queued URLs end without a request, because the host is down or gave enough pages.",
    "Nothing, or see host_down and host_page_limit.",
)
MOVING: Final = waiting(
    "moving",
    "Another worker still has hosts that share the limits of this one.",
    "Nothing: the host moves as soon as that worker has finished.",
)

# ---------------------------------------------------------------- pace and limits

PACE: Final = waiting(
    "pace",
    "The host gets as many requests as politeness.rate allows.",
    "`zcrawl tune JOB --rate N` or politeness.rate changes it.",
)
CRAWL_DELAY: Final = waiting(
    "crawl_delay",
    "The host's robots.txt asks for this delay between requests.",
    "Nothing, or --no-robots if the site is yours.",
)
CONCURRENCY: Final = waiting(
    "concurrency",
    "As many requests as politeness.concurrency allows are in flight for the host.",
    "`zcrawl tune JOB --concurrency N` or politeness.concurrency changes it.",
)
TURN: Final = waiting(
    "turn",
    "Jobs need different workers for one host that cannot be shared, so the workers take turns.",
    "Nothing: a turn lasts 30 s at most. A worker with all labels of these jobs would serve both.",
)
TASK_CONCURRENCY: Final = waiting(
    "task_concurrency",
    "The job has as many tasks at the same time as its concurrency allows.",
    "Raise concurrency in the job file, or wait.",
)
TASK_LABEL_FULL: Final = waiting(
    "task_label_full",
    "As many tasks that need a label of the job are running as tasks.label_limits allows.",
    "Raise the label's limit in the masters' [tasks] label_limits, or wait.",
)
TASK_SLOTS_FULL: Final = waiting(
    "task_slots_full",
    "The task slots of all workers that may take the job's tasks are in use.",
    "Raise worker.task_slots, add workers, or give the job a higher priority.",
)
PAGES_IN_FLIGHT: Final = waiting(
    "pages_in_flight",
    "All pages that the job may still fetch, of all or of this host, are in flight.",
    "Nothing. scope.max_pages or scope.max_pages_per_host sets how many it fetches.",
)
SUSPECTS: Final = waiting(
    "suspects",
    "URLs that may have crashed a worker wait for a worker to try them, one at a time.",
    "Nothing. If it stays, `zcrawl nodes` shows whether workers crash or are missing.",
)
SHARED: Final = waiting(
    "shared",
    "Hosts of one domain or one address share a limit, and others are first.",
    "Raise politeness.domain_rate, domain_concurrency, address_rate or address_concurrency.",
)
THROTTLED: Final = waiting(
    "throttled",
    "The host asked for fewer requests (429, 503 or Retry-After), so they are slowed down.",
    "Nothing: requests get faster when it answers well. Lower politeness.rate if it happens often.",
)
RETRY: Final = waiting(
    "retry",
    "Failed URLs of the host wait for their next attempt.",
    "Nothing. fetch.retries sets how often each is tried.",
)
AWAY: Final = waiting(
    "away",
    "The host does not answer. It is tried again after a growing pause.",
    "Check the host. After seven pauses its URLs fail as host_down.",
)
HOURS: Final = waiting(
    "hours",
    "It is outside the hours in which the jobs allow requests.",
    "Change politeness.hours (UTC), or wait.",
)

# ---------------------------------------------------------------- people and workers

PAUSED: Final = waiting(
    "paused", "The jobs of the host are paused.", "`zcrawl resume JOB` continues them."
)
PAUSED_BY_REQUEST: Final = waiting(
    "paused by request", "A person paused the run.", "`zcrawl resume JOB` continues it."
)
NO_WORKER: Final = waiting(
    "no_worker",
    "No worker has the host: none is connected, or none has what the job needs.",
    "`zcrawl nodes` shows the workers. Start one, or install the missing plugin on one.",
)
WORKER_FULL: Final = waiting(
    "worker_full",
    "The host's worker has as many requests as it accepts.",
    "Raise worker.slots, or add workers.",
)
INHERITED: Final = waiting(
    "inherited",
    "The host's last worker may still fetch from it, so no other worker may yet.",
    "Nothing: the wait ends by itself, or when that worker is back.",
)
CANONICAL_VERSION: Final = waiting(
    "canonical_version",
    "The run began under a version of the canonical URL form that the leader does not know.",
    "Let a master of the version that began the run lead, or cancel the run and submit again.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.REFUSAL,),
)

# ---------------------------------------------------------------- leases that a worker gives back

HOST_WAITS: Final = waiting(
    "host_waits",
    "The host must wait for a long time, so its worker gave the URLs back to the leader.",
    "Nothing: they are sent again when the host is due.",
)
TASK_WAITS: Final = waiting(
    "task_waits",
    "A task waited for a slot for too long, so its worker gave it back to the leader.",
    "Nothing: a worker with a free slot gets it.",
)
DRAINING: Final = waiting(
    "draining",
    "The worker finishes what it has and takes nothing new.",
    "Nothing, or `zcrawl undrain NODE`.",
)
WITHDRAWN: Final = waiting(
    "withdrawn",
    "The leader took back URLs that had not started.",
    "Nothing: they are sent again later.",
)
DRAINED: Final = waiting(
    "drained",
    "The worker has finished all its work and ends.",
    "Nothing, or start the worker again.",
)
