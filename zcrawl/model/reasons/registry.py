"""All registered reasons: look one up by the text that a user sees, render docs/reasons.md."""

from __future__ import annotations

from typing import Final

from zcrawl.model.reasons import cluster, failure, skip, storage, usage, waiting
from zcrawl.model.reasons.reason import REASONS, Reason, ReasonKind

__all__ = ["MODULES", "REASONS", "all_reasons", "find_reason", "reasons_page", "similar_codes"]

# These imports register the reasons; each module is named, so that none is forgotten.
MODULES = (skip, failure, waiting, usage, cluster, storage)

TITLES: Final = {
    ReasonKind.SKIP: "Skipped: left out on purpose",
    ReasonKind.FAILURE: "Failed",
    ReasonKind.WAITING: "Waiting",
    ReasonKind.REFUSAL: "Refused",
}
ABOUT: Final = {
    ReasonKind.SKIP: "A URL, a link or an item is left out. Nothing failed.",
    ReasonKind.FAILURE: "A URL failed. Temporary failures are tried again first (`fetch.retries`).",
    ReasonKind.WAITING: "A host or a run makes no requests for the moment.",
    ReasonKind.REFUSAL: "A command, a message, a file or a setting is not accepted.",
}
HEAD: Final = """\
# Reasons

<!-- Written by `make docs/reasons.md` from zcrawl/model/reasons; do not edit it by hand. -->

Everything that is skipped, fails, waits or is refused has a reason. Its code is short and stable.
`zcrawl job`, `zcrawl export --failed`, the console, logs and error messages (`[code]`) show it.
`zcrawl reasons` prints this list, `zcrawl reasons CODE` one entry.

Words in capitals stand for a value: `http_STATUS` is `http_404`, `duplicate of URL` names the page.
Spiders and plugins may give reasons of their own, which are not listed here.
"""


def all_reasons() -> list[Reason]:
    """Return the registered reasons, by class and code."""
    order = list(ReasonKind)
    return sorted(
        REASONS.values(), key=lambda reason: (order.index(reason.kind), reason.code.lower())
    )


def find_reason(text: str) -> Reason | None:
    """Return the reason of a text, with or without a parameter (`http_404`), or None."""
    exact = REASONS.get(text)
    if exact is not None and exact.covers(text):
        return exact
    return next((reason for reason in REASONS.values() if reason.covers(text)), None)


def similar_codes(text: str) -> list[str]:
    """Return registered codes that are similar to a mistyped one, the nearest first."""
    import difflib  # after a mistake only; the shared nouns import no other package of zcrawl

    text = text.strip().lower().replace("-", "_")
    names = {reason.code.lower(): reason.pattern for reason in REASONS.values()}
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.6)
    inside = [name for name in names if len(text) > 2 and text in name and name not in near]
    return [names[name] for name in (near + sorted(inside))[:3]]


def reasons_page() -> str:
    """Return the text of docs/reasons.md."""
    reasons = all_reasons()
    parts = [HEAD]
    for kind in ReasonKind:
        parts.append(f"## {TITLES[kind]}\n\n{ABOUT[kind]}\n")
        rows = sorted(
            (reason for reason in reasons if kind in reason.kinds), key=lambda reason: reason.code
        )
        parts.append("| code | meaning | what to do |\n|---|---|---|")
        parts.append("\n".join(map(_row, rows)) + "\n")
    return "\n".join(parts)


def _row(reason: Reason) -> str:
    cells = (f"`{reason.pattern}`", reason.meaning, reason.remedy)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
