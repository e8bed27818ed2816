"""How much a log event matters: information, a warning, an error. By its name; nobody passes a
level along. Called by logs' tails, the leader's watch and filters. Pure.
"""

from __future__ import annotations

from typing import Final

INFO, WARNING, ERROR = "info", "warning", "error"
ORDER: Final = (INFO, WARNING, ERROR)
# What an operator should see at once, and what is an error. Everything else is information.
LEVELS: Final = {
    **dict.fromkeys(
        (
            "assignment_lost",
            "bad_body",
            "bad_endpoint",
            "bad_frame",
            "bad_result",
            "bad_zap_request",
            "code_refused",
            "crash_counted",
            "drain_timeout",
            "duplicate_worker_id",
            "forward_failed",
            "epoch_check_failed",
            "frame_refused",
            "frame_too_large",
            "handshake_failed",
            "higher_epoch_heard",
            "left_out",
            "masters_not_kept",
            "no_route",
            "name_refused",
            "not_told",
            "old_leader_heard",
            "output_fenced",
            "output_not_closed",
            "peer_refused",
            "plugin_not_closed",
            "refill_failed",
            "request_limited",
            "request_refused",
            "restarted",
            "told_stale",
            "unknown_type",
            "worker_deaf",
            "worker_died",
            "worker_lost",
            "wrong_route",
        ),
        WARNING,
    ),
    **dict.fromkeys(
        (
            "bad_allow_list",
            "internal_error",
            "key_refused",
            "machine_error",
            "message_ignored",
            "plan_error",
            "plugin_missing",
            "takeover_failed",
            "version",
            "worker_not_started",
        ),
        ERROR,
    ),
}


def level_of(name: str) -> str:
    return LEVELS.get(name, WARNING if name.startswith(("store_", "commit_")) else INFO)


def rank(level: str) -> int:
    """0 to 2; what is no level counts as information."""
    return ORDER.index(level) if level in ORDER else 0
