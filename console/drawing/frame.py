"""The line above every page: who is watched, how the connection is, what the page is about."""

from __future__ import annotations

from typing import Final

from console.drawing.charts import subject
from console.drawing.lines import Line, Span, cut
from console.plain import plain
from console.state import GROUPED, MAIN_PAGES, ConsolePage, LinkState, View
from console.units import clock_text, duration

LINK_MARK: Final = {
    LinkState.CONNECTING: ("○ connecting", "warn"),
    LinkState.LIVE: ("● live", "good"),
    LinkState.LOST: ("○ lost", "bad"),
}
# Where a page about one thing belongs, when nobody came to it from another page.
PARENTS: Final = {
    ConsolePage.NODE: ConsolePage.NODES,
    ConsolePage.JOB: ConsolePage.JOBS,
    ConsolePage.TAG_QUEUES: ConsolePage.QUEUES,
    ConsolePage.HOST_QUEUES: ConsolePage.QUEUES,
    ConsolePage.LANES: ConsolePage.QUEUES,
    ConsolePage.HOST: ConsolePage.HOSTS,
    ConsolePage.FAILED: ConsolePage.ERRORS,
    ConsolePage.ITEM: ConsolePage.ITEMS,
    ConsolePage.LINE: ConsolePage.LOG,
}


def top_line(view: View, cells: int) -> Line:
    """`zcrawl  NAME  ● live  leader m1  epoch 3          12:01:22`."""
    mark, style = LINK_MARK[view.link.state]
    if view.replay is not None and view.link.state is LinkState.LIVE:
        mark, style = "◆ recorded", "warn"
    name = plain(view.cluster, 40)
    left = [Span(" zcrawl ", "tab"), Span(f" {name}  ", "bold"), Span(mark, style)]
    if about_text(view):
        left.insert(2, Span(f"› {about_text(view)}  ", "accent"))
    snapshot = view.content.snapshot
    if view.paused:
        left.append(Span("  ▮▮ frozen", "warn"))
    if not view.may_act:
        left.append(Span("  read-only", "warn"))
    if view.link.state is not LinkState.LIVE and view.link.text:
        since = duration(max(0.0, view.clock - view.link.since))
        left.append(Span(f"  {plain(view.link.text)} ({since})", style))
    elif snapshot is not None:
        left.append(Span(f"  leader {plain(snapshot.leader, 40)}  epoch {snapshot.epoch}", "dim"))
    if view.bad_messages:
        left.append(Span(f"  {view.bad_messages} unreadable", "bad"))
    right = Span(clock_text(snapshot.at) + " " if snapshot else "", "dim")
    room = cells - len(right.text) - 1
    return (*cut(tuple(left), room), Span(" "), right)


def root_page(view: View) -> ConsolePage:
    """The tab that the View is under."""
    root = view.trail[0].page if view.trail and view.page not in MAIN_PAGES else view.page
    if root in MAIN_PAGES:
        return root
    return PARENTS[root]


def about_text(view: View) -> str:
    """What the page is about, beyond its tab; empty on a page about nothing."""
    about, ref = view.place.about, view.place.ref
    if view.page in GROUPED:
        return str(view.page).removeprefix(f"{ConsolePage.QUEUES} ")
    if view.page is ConsolePage.CHARTS:
        return subject(view) if ref else ""
    if view.page in MAIN_PAGES:
        what = "tag" if view.page is ConsolePage.QUEUES else "run"
        return f"{what} {plain(ref, 40)}" if ref else ""
    if view.page is ConsolePage.LANES:
        return f"hosts of {plain(about.get('name', ref), 60)}"
    if view.page is ConsolePage.LINE:
        return "failed URL" if about.get("reason") else "event"
    named = {
        ConsolePage.JOB: about.get("name", ref),
        ConsolePage.HOST: about.get("host", ref),
        ConsolePage.FAILED: f"{about.get('reason', '')} at {about.get('host', '')}",
    }
    return f"{view.page} {plain(named.get(view.page, ref), 60)}"
