"""The lines around every page: who is watched, how the line is, which page this is, which keys."""

from __future__ import annotations

from typing import Final

from console.actions import RUN_PAGES, key_of, offered
from console.columns import TABLES
from console.columns_queues import next_grouping
from console.lines import Line, Span, cut, line, line_width
from console.plain import fit, plain, width
from console.state import ARROW, GROUPED, MAIN_PAGES, ConsolePage, LinkState, View
from console.units import clock_text, duration

LINK_MARK: Final = {
    LinkState.CONNECTING: ("○ connecting", "warn"),
    LinkState.LIVE: ("● live", "good"),
    LinkState.LOST: ("○ lost", "bad"),
}


def top_line(view: View, cells: int) -> Line:
    """`zcrawl  NAME  ● live  leader m1  epoch 3          12:01:22`."""
    mark, style = LINK_MARK[view.link.state]
    name = plain(view.cluster, 40)
    left = [Span(" zcrawl ", "tab"), Span(f" {name}  ", "bold"), Span(mark, style)]
    snapshot = view.known.snapshot
    if view.paused:
        left.append(Span("  ▮▮ paused", "warn"))
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


def tab_line(view: View, cells: int) -> Line:
    """The nine pages by their keys; the one that is shown stands out, with what it is about."""
    root = view.trail[0].page if view.trail and view.page not in MAIN_PAGES else view.page
    root = ConsolePage.QUEUES if root in GROUPED else root
    spans: list[Span] = [Span(" ")]
    narrow = cells < 100
    for n, page in enumerate(MAIN_PAGES, 1):
        here = page is root
        name = str(page).capitalize()
        gap = "" if narrow else " "
        spans.append(
            Span(f"{gap}{n} {name}{gap}" if not narrow else f"{n}{name}", "tab" if here else "dim")
        )
        spans.append(Span(" "))
    if view.page not in MAIN_PAGES:
        spans.append(Span(f"› {_about(view)}", "accent"))
    elif view.place.ref:
        what = "tag" if view.page is ConsolePage.QUEUES else "run"
        spans.append(Span(f"› {what} {plain(view.place.ref, 40)}", "accent"))
    return tuple(spans)


def _about(view: View) -> str:
    about = view.place.about
    if view.page in GROUPED:
        return str(view.page).removeprefix(f"{ConsolePage.QUEUES} ")
    named = {
        ConsolePage.JOB: about.get("name", view.place.ref),
        ConsolePage.LANES: about.get("name", view.place.ref),
        ConsolePage.HOST: about.get("host", view.place.ref),
        ConsolePage.FAILED: f"{about.get('reason', '')} at {about.get('host', '')}",
    }
    return f"{view.page} {plain(named.get(view.page, view.place.ref), 60)}"


def foot_line(view: View, cells: int) -> Line:
    """What an action did just now, else the keys of this page."""
    if view.message.text:
        return line(Span(f" {_message(plain(view.message.text), cells - 1)}", view.message.style))
    spans: list[Span] = []
    for key, label in key_hints(view):
        spans += [Span(f" {key}", "accent"), Span(f" {label} ", "dim")]
    spans = [span for span in spans if span.text]
    while line_width(tuple(spans)) > cells and len(spans) > 2:
        del spans[-4:-2]  # the last hint, `?`, stays
    return tuple(spans)


def _message(text: str, cells: int) -> str:
    """Where a command line and its result do not fit, the command line is cut."""
    command, arrow, result = text.partition(ARROW)
    room = cells - width(arrow) - width(result)
    if not arrow or width(text) <= cells or room < 8:
        return text
    return fit(command, room) + arrow + result


def key_hints(view: View) -> list[tuple[str, str]]:
    hints: list[tuple[str, str]] = []
    if view.page in TABLES:
        hints += [("↵", "open"), ("/", "filter"), ("␣", "mark")]
    grouping = next_grouping(view.page)
    if grouping:
        hints.append((view.keys.get("queues.by", "b"), f"by {grouping}"))
    if view.page is ConsolePage.CHARTS:
        hints.append(("s", "span"))
    if view.page in RUN_PAGES:
        hints.append((view.keys.get("job.items", "i"), "items"))
    if view.page is ConsolePage.LOG:
        hints.append(("v", "level"))
    hints += [(key_of(view, action), action.label) for action in offered(view)]
    if view.may_act:
        hints.append((view.keys.get("job.new", "n"), "new job"))
    resume = "go on" if view.paused else "pause the view"
    ends = (
        ("view.pause", "p", resume),
        ("view.command", ":", "command"),
        ("quit", "q", "quit"),
        ("view.help", "?", "help"),
    )
    return [*hints, *((view.keys.get(name, key), label) for name, key, label in ends)]
