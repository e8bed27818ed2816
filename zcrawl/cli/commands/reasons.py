"""`zcrawl reasons [CODE]`: what a code in a report, a log or an error message means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zcrawl.cli.base import Command
from zcrawl.errors import UsageError

if TYPE_CHECKING:
    from zcrawl.model.reasons.reason import Reason


@click.command("reasons", cls=Command)
@click.argument("code", required=False)
@click.option("--markdown", is_flag=True, help="Print docs/reasons.md.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def reasons_command(code: str | None, markdown: bool, as_json: bool) -> int:
    """Explain why URLs are skipped or fail, and why requests wait or are refused.

    Without CODE: all reasons by class. With CODE, for example `robots`, `http_404` or
    'duplicate of https://example.com/': what it means and what to do.
    """
    from zcrawl.cli import output
    from zcrawl.model.reasons.registry import all_reasons, find_reason, reasons_page

    if markdown and (code is not None or as_json):
        raise UsageError("--markdown prints the whole page; leave out CODE and --json")
    if markdown:
        output.page(reasons_page().rstrip("\n"))
    elif code is None and as_json:
        output.print_json([_view(reason) for reason in all_reasons()])
    elif code is None:
        rows = [(reason.kind.value, reason.pattern, reason.meaning) for reason in all_reasons()]
        output.table(("class", "code", "meaning"), rows)
    else:
        reason = find_reason(code)
        if reason is None:
            raise UsageError(_unknown(code))
        if as_json:
            output.print_json(_view(reason))
        else:
            output.fields(
                {
                    "code": reason.pattern,
                    "class": ", ".join(kind.value for kind in reason.kinds),
                    "meaning": reason.meaning,
                    "remedy": reason.remedy,
                }
            )
    return 0


def _view(reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code,
        "pattern": reason.pattern,
        "class": [kind.value for kind in reason.kinds],
        "meaning": reason.meaning,
        "remedy": reason.remedy,
    }


def _unknown(code: str) -> str:
    from zcrawl.model.reasons.registry import similar_codes

    near = similar_codes(code)
    meant = f"; did you mean {', '.join(near)}?" if near else "."
    return (
        f"no reason {code[:200]!r}{meant} `zcrawl reasons` lists all. Spiders and plugins may give "
        "reasons of their own"
    )
