"""All registered reasons together, and how a reason is looked up by the text that a user sees."""

from __future__ import annotations

from zcrawl.model.reasons import cluster, failure, skip, storage, usage, waiting
from zcrawl.model.reasons.reason import REASONS, Reason, ReasonKind

__all__ = ["MODULES", "REASONS", "all_reasons", "find_reason", "similar_codes"]

# Imported for what they register; named, so that a new module is not forgotten here.
MODULES = (skip, failure, waiting, usage, cluster, storage)


def all_reasons() -> list[Reason]:
    """Return the registered reasons, by class and code."""
    order = list(ReasonKind)
    return sorted(
        REASONS.values(), key=lambda reason: (order.index(reason.kind), reason.code.lower())
    )


def find_reason(text: str) -> Reason | None:
    """Return the reason that a text is, with or without a parameter (`http_404`), or None."""
    exact = REASONS.get(text)
    if exact is not None and exact.covers(text):
        return exact
    return next((reason for reason in REASONS.values() if reason.covers(text)), None)


def similar_codes(text: str) -> list[str]:
    """Return registered codes that a mistyped one may have meant, the nearest first."""
    import difflib  # after a mistake only; the shared nouns import no other package of zcrawl

    text = text.strip().lower().replace("-", "_")
    names = {reason.code.lower(): reason.pattern for reason in REASONS.values()}
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.6)
    inside = [name for name in names if len(text) > 2 and text in name and name not in near]
    return [names[name] for name in (near + sorted(inside))[:3]]
