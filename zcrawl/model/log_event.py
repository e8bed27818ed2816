"""Log events: the name, the text for people, and the fields that programs read.

Programs never parse the text, so a log call about a run names the run. Everything that logs gets a
`Log`; `telemetry.logs.files` has the real one.

An event that an operator should see at once is declared here, with its level, and logged by its
constant. All others are information, and the
log call has their name. Some events are named
after reasons, because they are logged as `error.code`.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from zcrawl.model.reasons.cluster import (
    BAD_ALLOW_LIST,
    BAD_ENDPOINT,
    BAD_FRAME,
    MACHINE_ERROR,
    UNKNOWN_TYPE,
    VERSION,
)
from zcrawl.model.reasons.failure import BAD_RESULT, INTERNAL_ERROR
from zcrawl.model.reasons.usage import PLUGIN_MISSING

INFO, WARNING, ERROR = "info", "warning", "error"
LEVELS: Final = (INFO, WARNING, ERROR)

_LEVEL_OF: Final[dict[str, str]] = {}
_STORE, _COMMIT = "store_", "commit_"  # how all events of the store and of commits begin


def _declare(level: str, name: str) -> str:
    _LEVEL_OF[name] = level
    return name


def store_event(code: str) -> str:
    """Return the event of a store that failed with this code. A warning."""
    return f"{_STORE}{code}"


def commit_event(code: str) -> str:
    """Return the event of a commit that failed with this code. A warning."""
    return f"{_COMMIT}{code}"


def level_of(name: str) -> str:
    """Return how much an event matters."""
    return _LEVEL_OF.get(name) or (WARNING if name.startswith((_STORE, _COMMIT)) else INFO)


def declared_events() -> frozenset[str]:
    """Return the events that have a level other than information."""
    return frozenset(_LEVEL_OF)


class Note(msgspec.Struct, frozen=True):
    """A counter and a log event, as the machines of masters and workers return it among their
    effects. Their drivers count and log it."""

    name: str
    detail: str = ""
    run: int = 0  # that it is about; 0: about none


class Log(Protocol):
    def __call__(self, name: str, detail: str, *, run: int = 0) -> object:
        """Write an event. `run`: the run that it is about, 0 if about none."""


# ---------------------------------------------------------------- what an operator should see

ARCHIVE_FAILED: Final = _declare(WARNING, "archive_failed")
ASSIGNMENT_LOST: Final = _declare(WARNING, "assignment_lost")
BAD_BODY: Final = _declare(WARNING, "bad_body")
BAD_ZAP_REQUEST: Final = _declare(WARNING, "bad_zap_request")
CODE_REFUSED: Final = _declare(WARNING, "code_refused")
CONFIG_CHANGED: Final = _declare(WARNING, "config_changed")
RELOAD_REFUSED: Final = _declare(WARNING, "reload_refused")
CONFIG_NEEDS_RESTART: Final = _declare(WARNING, "config_needs_restart")
CRASH_COUNTED: Final = _declare(WARNING, "crash_counted")
DRAIN_TIMEOUT: Final = _declare(WARNING, "drain_timeout")
DUPLICATE_WORKER_ID: Final = _declare(WARNING, "duplicate_worker_id")
EPOCH_CHECK_FAILED: Final = _declare(WARNING, "epoch_check_failed")
FORWARD_FAILED: Final = _declare(WARNING, "forward_failed")
FRAME_REFUSED: Final = _declare(WARNING, "frame_refused")
GATEWAY_LINE: Final = _declare(WARNING, "gateway_line")
FRAME_TOO_LARGE: Final = _declare(WARNING, "frame_too_large")
HANDSHAKE_FAILED: Final = _declare(WARNING, "handshake_failed")
HIGHER_EPOCH_HEARD: Final = _declare(WARNING, "higher_epoch_heard")
LOG_LINES_DROPPED: Final = _declare(WARNING, "log_lines_dropped")
MASTERS_NOT_KEPT: Final = _declare(WARNING, "masters_not_kept")
NODE_LIST_KEPT: Final = _declare(WARNING, "node_list_kept")
NODE_LISTS_DIFFER: Final = _declare(WARNING, "node_lists_differ")
NODE_OUT_OF_LIST: Final = _declare(WARNING, "node_out_of_list")
NODE_SILENT: Final = _declare(WARNING, "node_silent")
NAME_REFUSED: Final = _declare(WARNING, "name_refused")
NO_ROUTE: Final = _declare(WARNING, "no_route")
EVENTS_NOT_BOUND: Final = _declare(ERROR, "events_not_bound")
EVENTS_DROPPED: Final = _declare(WARNING, "events_dropped")
OLD_LEADER_HEARD: Final = _declare(WARNING, "old_leader_heard")
OUTPUT_FENCED: Final = _declare(WARNING, "output_fenced")
OUTPUT_NOT_CLOSED: Final = _declare(WARNING, "output_not_closed")
PEER_REFUSED: Final = _declare(WARNING, "peer_refused")
PLUGIN_NOT_CLOSED: Final = _declare(WARNING, "plugin_not_closed")
REFILL_FAILED: Final = _declare(WARNING, "refill_failed")
REQUEST_LIMITED: Final = _declare(WARNING, "request_limited")
REQUEST_REFUSED: Final = _declare(WARNING, "request_refused")
RESTARTED: Final = _declare(WARNING, "restarted")
SETTINGS_NOT_KEPT: Final = _declare(WARNING, "settings_not_kept")
TOLD_STALE: Final = _declare(WARNING, "told_stale")
WORKER_DEAF: Final = _declare(WARNING, "worker_deaf")
WORKER_DIED: Final = _declare(WARNING, "worker_died")
WORKER_LOST: Final = _declare(WARNING, "worker_lost")
WRONG_ROUTE: Final = _declare(WARNING, "wrong_route")
for _reason in (BAD_ENDPOINT, BAD_FRAME, BAD_RESULT, UNKNOWN_TYPE):
    _declare(WARNING, _reason)

# ---------------------------------------------------------------- errors

KEY_REFUSED: Final = _declare(ERROR, "key_refused")
MESSAGE_IGNORED: Final = _declare(ERROR, "message_ignored")
PLAN_ERROR: Final = _declare(ERROR, "plan_error")
TAKEOVER_FAILED: Final = _declare(ERROR, "takeover_failed")
WORKER_NOT_STARTED: Final = _declare(ERROR, "worker_not_started")
for _reason in (BAD_ALLOW_LIST, INTERNAL_ERROR, MACHINE_ERROR, PLUGIN_MISSING, VERSION):
    _declare(ERROR, _reason)
