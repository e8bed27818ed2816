"""The registry as a Markdown page: docs/reasons.md. Pure; `zcrawl reasons --markdown` prints it."""

from __future__ import annotations

from typing import Final

from zcrawl.model.reasons.reason import Reason, ReasonKind
from zcrawl.model.reasons.registry import all_reasons

TITLES: Final = {
    ReasonKind.SKIP: "Skipped: left out on purpose",
    ReasonKind.FAILURE: "Failed",
    ReasonKind.WAITING: "Waiting",
    ReasonKind.REFUSAL: "Refused",
}
ABOUT: Final = {
    ReasonKind.SKIP: "A URL, a link or an item is left out. Nothing failed.",
    ReasonKind.FAILURE: "A URL failed. Passing failures are tried again first (`fetch.retries`).",
    ReasonKind.WAITING: "A host or a run makes no requests for the moment.",
    ReasonKind.REFUSAL: "A command, a message, a file or a setting is not accepted.",
}
HEAD: Final = """\
# Reasons

<!-- Written by `make docs/reasons.md` from zcrawl/model/reasons; do not edit it by hand. -->

Whatever is skipped, fails, waits or is refused has a reason. Its code is short and stable.
`zcrawl job`, `zcrawl export --failed`, the console, logs and error messages (`[code]`) show it.
`zcrawl reasons` prints this list, `zcrawl reasons CODE` one entry.

Words in capitals stand for a value: `http_STATUS` is `http_404`, `duplicate of URL` names the page.
Spiders and plugins may give reasons of their own, which are not listed here.
"""


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
