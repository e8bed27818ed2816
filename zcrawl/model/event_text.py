"""The sentence of each log event, for consoles and for logs that people read. Pure.

The place that logs an event gives a detail: often a whole sentence (`w1 joined with 4 slots`),
sometimes a value. `event_text` makes a sentence of both by one table. A test compares the table
with all log calls, so that a new event needs a sentence. Programs use the name of the event.

Called by `telemetry` and by the leader's `watch`.
"""

from __future__ import annotations

from typing import Final

from zcrawl.model import log_event as e
from zcrawl.model.reasons.cluster import (
    BAD_ALLOW_LIST,
    BAD_ENDPOINT,
    BAD_FRAME,
    CONSUL_AWAY,
    JOB_ARCHIVED,
    MACHINE_ERROR,
    RUN_ENDED,
    UNKNOWN_TYPE,
    VERSION,
)
from zcrawl.model.reasons.failure import BAD_RESULT, INTERNAL_ERROR
from zcrawl.model.reasons.skip import TRAP_SHAPE
from zcrawl.model.reasons.storage import OUTPUT_CHANGED, STORE_BEHIND
from zcrawl.model.reasons.usage import PLUGIN_MISSING
from zcrawl.model.reasons.waiting import DRAINED

WHOLE: Final = "{}"  # the detail is a sentence
TRACEBACK: Final = "Traceback (most recent call last)"

EVENT_TEXTS: Final[dict[str, str]] = {
    "gateway_line": WHOLE,
    "gateway_error": WHOLE,
    # Nodes come and go.
    "worker_joined": WHOLE,
    "worker_left": WHOLE,
    "worker_drained": WHOLE,
    "drain_ended": WHOLE,
    DRAINED: WHOLE,
    "rejected": WHOLE,
    "worker_started": "started the worker process {}",
    "worker_ended": "a worker process ended: {}",
    e.WORKER_LOST: WHOLE,
    e.WORKER_DEAF: WHOLE,
    e.WORKER_DIED: "a worker process failed: {}",
    e.WORKER_NOT_STARTED: "could not start the worker process {}",
    e.RESTARTED: "restarted: {}",
    e.DRAIN_TIMEOUT: "stopped the workers: {}",
    e.DUPLICATE_WORKER_ID: "two processes use the same worker id: {}",
    "renewed": WHOLE,
    "shell_limits": WHOLE,
    "shell_leftovers": WHOLE,
    "exit": "this process ends: {}",
    # Leaders.
    "leader": WHOLE,
    "elected": WHOLE,
    "leader_seen": WHOLE,
    "deposed": "lost the leader's lock: {}",
    "step_down": "stopped leading: {}",
    "follows": "follows {}",
    "first_assignment": "sent the first request in {}",
    e.TAKEOVER_FAILED: "could not take over as the leader: {}",
    e.HIGHER_EPOCH_HEARD: WHOLE,
    e.EPOCH_CHECK_FAILED: "could not read the epoch from the database: {}",
    e.OLD_LEADER_HEARD: "ignored {}, which led in an older epoch",
    e.FORWARD_FAILED: "could not forward the request {}",
    # Runs, requests, results.
    RUN_ENDED: WHOLE,
    "run_pending": WHOLE,
    "run_failed": WHOLE,
    "run_too_long": WHOLE,
    "run_expired": WHOLE,
    "run_unplaced": WHOLE,
    "run_placed": WHOLE,
    "run_due": WHOLE,
    "run_not_due": WHOLE,
    "run_archived": WHOLE,
    "archive_failed": WHOLE,
    "feed_failed": WHOLE,
    "seeds_left_out": WHOLE,
    "schedule_refused": WHOLE,
    "retention_changed": WHOLE,
    "retention_waits": WHOLE,
    "job_active": WHOLE,
    "job_paused": WHOLE,
    JOB_ARCHIVED: WHOLE,
    "job_deleted": WHOLE,
    "run_running": WHOLE,
    "run_paused": WHOLE,
    "run_completed": WHOLE,
    "run_cancelled": WHOLE,
    "run_deleted": WHOLE,
    "run_tuned": WHOLE,
    "run_refused": "cannot continue {}",
    "run_of_another_version": WHOLE,
    "recalled": WHOLE,
    "recall_dropped": WHOLE,
    "recall_failed": "could not read the pages of earlier runs: {}",
    "host_reassigned": WHOLE,
    "host_moves": WHOLE,
    "people_changed": WHOLE,
    "lease_overdue": WHOLE,
    "lease_taken_back": "a worker gave up request {}",
    "stray_attempt": WHOLE,
    "result_of_cancelled": "dropped the result of a cancelled request",
    "settled_by_welcome": "request {} was already in the database",
    e.ASSIGNMENT_LOST: WHOLE,
    e.CRASH_COUNTED: WHOLE,
    e.CODE_REFUSED: "refused the code of a job: {}",
    e.REFILL_FAILED: "could not read queued URLs from the database: {}",
    BAD_RESULT: WHOLE,
    e.PLAN_ERROR: "internal error in {}",
    e.PLUGIN_NOT_CLOSED: WHOLE,
    PLUGIN_MISSING: WHOLE,
    TRAP_SHAPE: WHOLE,
    # People and their requests.
    "asked": WHOLE,
    e.REQUEST_REFUSED: WHOLE,
    e.REQUEST_LIMITED: WHOLE,
    e.MESSAGE_IGNORED: WHOLE,
    e.CONFIG_CHANGED: "the configuration has changed: {}",
    e.CONFIG_NEEDS_RESTART: WHOLE,
    e.RELOAD_REFUSED: "kept the old configuration: {}",
    "config_unchanged": WHOLE,
    "data_folder_open": WHOLE,
    "not_vouched": WHOLE,
    # Messages between nodes.
    e.TOLD_STALE: WHOLE,
    STORE_BEHIND: "the database has lost results of {}",
    "stale_epoch_dropped": "ignored a message of an older epoch",
    "meant_for_a_predecessor": "ignored a message to the process before this one: {}",
    "unexpected_message": "ignored a message that does not belong here: {}",
    "unexpected_outcome": "ignored an answer of the database that does not belong here: {}",
    "message_unsendable": "could not send a message: {}",
    e.WRONG_ROUTE: "ignored a message from another process than the one that joined: {}",
    e.NO_ROUTE: "cannot answer {}",
    e.BAD_BODY: "ignored a message that cannot be read: {}",
    e.FRAME_REFUSED: "refused a message: {}",
    e.FRAME_TOO_LARGE: "refused a message that is too large: {}",
    e.NAME_REFUSED: WHOLE,
    BAD_FRAME: "ignored a message: {}",
    UNKNOWN_TYPE: "ignored a message: {}",
    VERSION: WHOLE,
    BAD_ENDPOINT: "cannot connect to a master: {}",
    e.HANDSHAKE_FAILED: "a connection failed: {}",
    e.KEY_REFUSED: "a master refused this key: {}",
    e.PEER_REFUSED: "refused a connection from {}",
    e.EVENTS_NOT_BOUND: "cannot listen for subscribers again: {}",
    e.BAD_ZAP_REQUEST: "ignored a check of a key that is not valid: {}",
    "allow_list_read": "read the list of allowed keys again: {}",
    BAD_ALLOW_LIST: "kept the old list of allowed keys: {}",
    # The database, Consul, outputs, the browser.
    "database_away": WHOLE,
    CONSUL_AWAY: "Consul does not answer: {}",
    "consul_back": WHOLE,
    "no_master_answers": WHOLE,
    e.SETTINGS_NOT_KEPT: "could not save the settings for worker processes: {}",
    # Standalone nodes.
    "standalone": "works without a master: {}",
    "node_list_changed": "the list of nodes changed: {}",
    "node_back": WHOLE,
    "node_lists_agree": WHOLE,
    "shares_moved": WHOLE,
    "job_submitted": "started the job {}",
    "job_kept": WHOLE,
    "bad_beat": "a beat of a node is not valid: {}",
    e.NODE_LIST_KEPT: "the new list of nodes is not used: {}",
    e.NODE_LISTS_DIFFER: WHOLE,
    e.NODE_OUT_OF_LIST: WHOLE,
    e.NODE_SILENT: WHOLE,
    e.MASTERS_NOT_KEPT: "could not save the list of masters: {}",
    e.OUTPUT_FENCED: "stopped writing an output, because another master leads: {}",
    e.OUTPUT_NOT_CLOSED: "could not close an output: {}",
    OUTPUT_CHANGED: "an output was changed by another program: {}",
    "output_problem_not_stored": "could not save the problem of an output: {}",
    "output_body_lost": WHOLE,
    "browser_unsandboxed": "the browser runs without its sandbox: {}",
    "browser_keeper_failed": "internal error in the care for the browser: {}",
    # This process.
    INTERNAL_ERROR: "internal error: {}",
    MACHINE_ERROR: "internal error: {}",
    "task_failed": "internal error in a background task: {}",
    "tick_failed": "internal error in a periodic task: {}",
    "unhandled_error": "internal error: {}",
    "measure_failed": "could not measure this process: {}",
    e.LOG_LINES_DROPPED: WHOLE,
    e.EVENTS_DROPPED: WHOLE,
}
# Events whose name has the code of an error in it.
FAMILY_TEXTS: Final[dict[str, str]] = {
    "store_": "the database failed: {}",
    "commit_": "a commit failed: {}",
    "output_": "could not write an output: {}",
    "retention_": "could not remove old runs: {}",
}


def template(name: str) -> str:
    """Return the text around the detail of an event; all of it is the detail for an error's code,
    because messages of errors are sentences."""
    exact = EVENT_TEXTS.get(name)
    if exact is not None:
        return exact
    return next((text for start, text in FAMILY_TEXTS.items() if name.startswith(start)), WHOLE)


def event_text(name: str, detail: str) -> str:
    """Return an event as a sentence: `worker_died` and `w1: ...` become `a worker process failed:
    w1: ...`. The error is before its traceback, because displays cut long texts."""
    detail = detail.strip()
    if TRACEBACK in detail:
        detail = _error_first(detail)
    text = template(name).replace("{}", detail, 1)
    if not detail:
        text = text.strip().removesuffix(":")
    return text or name.replace("_", " ")


def _error_first(detail: str) -> str:
    head, _, trace = detail.partition(TRACEBACK)
    error = trace.rstrip().rpartition("\n")[2].strip()
    return f"{head.strip()} {error}\n{TRACEBACK}{trace}".strip()
