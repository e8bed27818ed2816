"""Why a leader refuses a worker, in words; a worker that stays refused ends with them. Pure."""

from __future__ import annotations

from zcrawl.mesh.messages import Stale
from zcrawl.model.reasons.cluster import DUPLICATE_ID, KEY_NOT_ALLOWED, NAME_NOT_ALLOWED


def refusal_text(worker: str, stale: Stale) -> str:
    """Empty if this STALE is about something else than whether the worker may join at all."""
    if stale.reason == DUPLICATE_ID:
        return f"another live process has the id {worker}: {stale.other}"
    return stale.other if stale.reason in (NAME_NOT_ALLOWED, KEY_NOT_ALLOWED) else ""
