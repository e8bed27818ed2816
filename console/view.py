"""The console's state and the one function that changes it.

`reduce(view, event) -> view`: events come from the feed (what the cluster said, how the line is)
and from keys (commands). Frozen data in, frozen data out, no clock: times come with the events.
Called by `app`, by `--snapshot` and by tests, which need no terminal.
"""

from __future__ import annotations

import enum
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from console.model import Snapshot, read_snapshot
from console.rates import Rates, measure

EVENTS_KEPT: Final = 500


class _Data(msgspec.Struct, frozen=True):
    pass


class Page(enum.StrEnum):
    """What the main screen shows; the first nine have the keys 1 to 9."""

    OVERVIEW = "overview"


class LinkState(enum.StrEnum):
    CONNECTING = "connecting"  # nobody has spoken yet
    LIVE = "live"  # a snapshot came within the last seconds
    LOST = "lost"  # the leader is silent: a failover, or the end


class Link(_Data, frozen=True):
    state: LinkState = LinkState.CONNECTING
    text: str = ""  # what the console is doing about it
    since: float = 0.0


class Happening(_Data, frozen=True):
    """Something notable: said by the leader, or seen by the console itself."""

    at: float  # UTC
    name: str
    text: str = ""
    source: str = ""
    level: str = "info"


class Known(_Data, frozen=True):
    """What was heard of the cluster. Frozen as a whole when the view is paused."""

    snapshot: Snapshot | None = None
    rates: Rates = Rates()
    happenings: tuple[Happening, ...] = ()


class View(_Data, frozen=True):
    cluster: str = ""  # its name, or its data folder
    page: Page = Page.OVERVIEW
    link: Link = Link()
    live: Known = Known()
    held: Known | None = None  # what the screen shows while the view is paused
    clock: float = 0.0  # the time of the newest event
    bad_messages: int = 0
    readonly: bool = False

    @property
    def known(self) -> Known:
        """What is on the screen."""
        return self.held or self.live

    @property
    def paused(self) -> bool:
        return self.held is not None


# ---------------------------------------------------------------- events of the feed


class SnapshotCame(_Data, frozen=True):
    data: dict[str, Any]
    at: float


class HappeningCame(_Data, frozen=True):
    name: str
    fields: dict[str, Any]
    at: float


class LinkChanged(_Data, frozen=True):
    state: LinkState
    text: str
    at: float


class Ticked(_Data, frozen=True):
    at: float


# ---------------------------------------------------------------- commands of a person


class GoTo(_Data, frozen=True):
    page: Page


class TogglePause(_Data, frozen=True):
    pass


Event: TypeAlias = SnapshotCame | HappeningCame | LinkChanged | Ticked | GoTo | TogglePause


def reduce(view: View, event: Event) -> View:
    match event:
        case SnapshotCame():
            return _on_snapshot(view, event)
        case HappeningCame():
            return _on_happening(view, event)
        case LinkChanged(state, text, at):
            return _changed(view, link=Link(state, text, at), clock=at)
        case Ticked(at):
            return _changed(view, clock=at)
        case GoTo(page):
            return _changed(view, page=page)
        case TogglePause():
            return _changed(view, held=None if view.paused else view.live)
        case _:
            assert_never(event)


def _changed(view: View, **fields: Any) -> View:
    return msgspec.structs.replace(view, **fields)


def _on_snapshot(view: View, event: SnapshotCame) -> View:
    """A snapshot of an older epoch is that of a leader who does not know yet that it is none."""
    try:
        snapshot = read_snapshot(event.data)
    except msgspec.ValidationError:
        return _changed(view, bad_messages=view.bad_messages + 1, clock=event.at)
    live, before = view.live, view.live.snapshot
    if before is not None and snapshot.epoch < before.epoch:
        return _changed(view, clock=event.at)
    happenings = live.happenings
    if before is not None and snapshot.epoch != before.epoch:
        text = f"{snapshot.leader} leads in epoch {snapshot.epoch}, before: {before.leader}"
        happenings = _with(happenings, Happening(snapshot.at, "new_leader", text, "console"))
    live = Known(snapshot, measure(live.rates, snapshot), happenings)
    link = view.link
    if link.state is not LinkState.LIVE:
        link = Link(LinkState.LIVE, "", event.at)
    return _changed(view, live=live, link=link, clock=event.at)


def _on_happening(view: View, event: HappeningCame) -> View:
    fields = event.fields
    at = fields.get("at")
    one = Happening(
        at=float(at) if isinstance(at, int | float) else 0.0,
        name=event.name,
        text=str(fields.get("text", "")),
        source=str(fields.get("source", "")),
        level=str(fields.get("level", "info")),
    )
    live = msgspec.structs.replace(view.live, happenings=_with(view.live.happenings, one))
    return _changed(view, live=live, clock=event.at)


def _with(happenings: tuple[Happening, ...], one: Happening) -> tuple[Happening, ...]:
    return (*happenings[-EVENTS_KEPT + 1 :], one)
