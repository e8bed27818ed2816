"""Why the crawl is not faster: the leader's reasons as shares, with advice and expected gain. Pure.

The leader sends them with the answer to `overview`; here they get a colour, a sentence and the page
that shows more.
"""

from __future__ import annotations

from typing import Final

from console.columns.cells import WHY_STYLE
from console.drawing.limits import LimitShare
from console.state import ConsolePage, Place, View
from console.tables import Row, number, text
from console.units import count, plural

FULL: Final = 400  # results that wait for a commit; two full batches


def limits(view: View) -> list[LimitShare]:
    """Return the reasons, the largest share first."""
    answer = view.content.answers.get("overview:")
    data = answer.data if answer is not None else {}
    shares = [_share(row) for row in limit_rows_of(view).values()]
    waiting = number(data, "commit_queue")
    if waiting > FULL:
        words = f"{count(waiting)} results wait to be committed"
        shares.insert(0, LimitShare(1.0, "bad", words, "the database is the bottleneck"))
    return shares


def limit_rows_of(view: View) -> dict[str, Row]:
    """The leader's reasons by their code."""
    answer = view.content.answers.get("overview:")
    rows = answer.data.get("limits") if answer is not None else None
    usable = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {text(row, "code"): row for row in usable}


def _share(row: Row) -> LimitShare:
    host, hosts = text(row, "host"), number(row, "hosts")
    words = text(row, "text")
    what = f"{host}: {words}" if host else f"{words} ({plural(hosts, 'host')})"
    gain = number(row, "gain")
    return LimitShare(
        share=number(row, "share"),
        style=WHY_STYLE.get(text(row, "code"), ""),
        text=what,
        advice=text(row, "advice"),
        gain=f"about {gain:.2g} × faster" if gain > 1 else "",
        place=Place(ConsolePage.HOSTS),
    )
