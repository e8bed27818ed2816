"""The one function that changes the console's state: `reduce(view, event) -> view`.

Events come from the feed (what the cluster said, how the line is) and from keys (commands).
Frozen data in, frozen data out, no clock: times come with the events. Called by `app`, by
`--snapshot` and by tests, which need no terminal.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

import msgspec

from console.columns.pages import TABLES
from console.columns.work import run_row
from console.questions import SPANS_S
from console.rates import measure
from console.state import (
    ARROW,
    GROUPED,
    MAIN_PAGES,
    Acted,
    ActionMessage,
    Answer,
    Answered,
    Back,
    ConsoleEvent,
    ConsolePage,
    Drill,
    GoTo,
    Happening,
    HappeningCame,
    Known,
    Link,
    LinkChanged,
    LinkState,
    LoadAround,
    Mark,
    MarkAll,
    MessageUnreadable,
    Move,
    MoveTo,
    NextLevel,
    Place,
    ReplayMoved,
    Rewound,
    Say,
    SetFilter,
    SetSpan,
    SnapshotCame,
    SortBy,
    TableState,
    Ticked,
    TogglePause,
    ToggleRow,
    View,
    rows_of,
)
from console.tables import LOADED, STEP, Row, Shown, Table, number, shown, text, trend_in
from zcrawl.master.desk.rights import ROLE

EVENTS_KEPT: Final = 500
ANSWERS_KEPT: Final = 30
TABLES_KEPT: Final = 50
EDGE: Final = 20  # rows: as close as the cursor comes to the end of what is loaded
TREND: Final = 12  # points of a queue's trend
TRAIL: Final = 20
MESSAGE_S: Final = 15.0
# What enter opens: the page, and the field of the row that it is about.
DRILLS: Final = {
    ConsolePage.NODES: (ConsolePage.NODE, "id"),
    ConsolePage.JOBS: (ConsolePage.JOB, "run"),
    ConsolePage.QUEUES: (ConsolePage.LANES, "id"),
    ConsolePage.TAG_QUEUES: (ConsolePage.QUEUES, "tag"),
    ConsolePage.HOST_QUEUES: (ConsolePage.HOST, "id"),
    ConsolePage.LANES: (ConsolePage.HOST, "id"),
    ConsolePage.HOSTS: (ConsolePage.HOST, "id"),
    ConsolePage.ERRORS: (ConsolePage.FAILED, "run"),
    ConsolePage.ITEMS: (ConsolePage.ITEM, "id"),
    ConsolePage.LOG: (ConsolePage.LINE, "name"),
    ConsolePage.FAILED: (ConsolePage.LINE, "seq"),
}


def reduce(view: View, event: ConsoleEvent) -> View:
    match event:
        case SnapshotCame():
            return _on_snapshot(view, event)
        case MessageUnreadable(at):
            return _changed(view, bad_messages=view.bad_messages + 1, clock=at)
        case HappeningCame():
            return _on_happening(view, event)
        case Answered():
            return _on_answer(view, event)
        case Acted():
            return _on_acted(view, event)
        case LinkChanged(state, what, at):
            return _changed(view, link=Link(state, what, at), clock=at)
        case Rewound():
            return _changed(view, live=Known(), held=None, link=Link())
        case ReplayMoved(replay):
            return _changed(view, replay=replay)
        case Ticked(at):
            if view.replay is not None:
                return view  # the clock of a replay is that of the recording
            old = view.message.text and at - view.message.at > MESSAGE_S
            return _changed(view, clock=at, **({"message": ActionMessage()} if old else {}))
        case GoTo(place):
            return _go(view, place)
        case Back():
            return _back(view)
        case Drill():
            return _drill(view)
        case Move(by):
            return _move(view, by, relative=True)
        case MoveTo(index):
            return _move(view, index, relative=False)
        case LoadAround(index):
            return _load_around(view, index)
        case ToggleRow():
            return _toggle_row(view)
        case Mark():
            return _mark(view)
        case MarkAll():
            return _mark_all(view)
        case SortBy(letter):
            return _sort(view, letter)
        case SetFilter(filter_text):
            return _filter(view, filter_text)
        case TogglePause():
            return _changed(view, held=None if view.paused else view.live)
        case SetSpan(span_s):
            following = SPANS_S[(SPANS_S.index(view.span_s) + 1) % len(SPANS_S)]
            return _changed(view, span_s=span_s if span_s in SPANS_S else following)
        case NextLevel():
            return _next_level(view)
        case Say(what, style):
            return _changed(view, message=ActionMessage(what, style, view.clock))
        case _:
            assert_never(event)


def _changed(view: View, **fields: Any) -> View:
    return msgspec.structs.replace(view, **fields)


# ---------------------------------------------------------------- what the cluster says


def _on_snapshot(view: View, event: SnapshotCame) -> View:
    """A snapshot of an older epoch is that of a leader who does not know yet that it is none."""
    snapshot = event.data
    live, before = view.live, view.live.snapshot
    if before is not None and snapshot.epoch < before.epoch:
        return _changed(view, clock=event.at)
    happenings = live.happenings
    if before is not None and snapshot.epoch != before.epoch:
        message = f"{snapshot.leader} leads in epoch {snapshot.epoch}, before: {before.leader}"
        happenings = _with(happenings, Happening(snapshot.at, "new_leader", message, "console"))
    live = Known(snapshot, measure(live.rates, snapshot), happenings, live.answers)
    link = view.link
    if link.state is not LinkState.LIVE:
        link = Link(LinkState.LIVE, "", event.at)
    return _changed(view, live=live, link=link, clock=event.at)


def _on_happening(view: View, event: HappeningCame) -> View:
    fields = event.fields
    at = fields.get("at")
    happening = Happening(
        at=float(at) if isinstance(at, int | float) else 0.0,
        name=event.name,
        text=str(fields.get("text", "")),
        source=str(fields.get("source", "")),
        level=str(fields.get("level", "info")),
        run=run if isinstance(run := fields.get("run"), int) else 0,
    )
    live = msgspec.structs.replace(view.live, happenings=_with(view.live.happenings, happening))
    return _changed(view, live=live, clock=event.at)


def _with(happenings: tuple[Happening, ...], happening: Happening) -> tuple[Happening, ...]:
    return (*happenings[-EVENTS_KEPT + 1 :], happening)


def _on_answer(view: View, event: Answered) -> View:
    data = event.data
    before = view.live.answers.get(event.slot)
    if event.error and before is not None:
        data = before.data  # an old answer is better than none, and the error is shown with it
    elif event.slot == "log:" and before is not None:
        data = _with_older(before, data)
    elif event.slot.startswith(("queues", "lanes:")):
        data = _with_trend(before, data)
    answers = {key: answer for key, answer in view.live.answers.items() if key != event.slot}
    while len(answers) >= ANSWERS_KEPT:
        del answers[next(iter(answers))]
    answers[event.slot] = Answer(data, event.at, event.error)
    live = msgspec.structs.replace(view.live, answers=answers)
    if event.slot == ROLE and not event.error:
        view = _changed(view, role=str(data.get("role", "")))
    held = view.held
    if held is not None and event.slot not in held.answers:
        # A page that was not looked at before the view was paused: its first answer is kept.
        first = {**held.answers, event.slot: answers[event.slot]}
        held = msgspec.structs.replace(held, answers=first)
    return _changed(view, live=live, held=held, clock=event.at)


def _with_older(before: Answer, data: dict[str, Any]) -> dict[str, Any]:
    """A new leader has no lines of the time before it: those that were here stay."""
    rows = rows_of(data)
    oldest = min((number(row, "at") for row in rows), default=float("inf"))
    older = [row for row in before.rows if number(row, "at") < oldest]
    return {**data, "rows": [*rows, *older][:EVENTS_KEPT]}


def _with_trend(before: Answer | None, data: dict[str, Any]) -> dict[str, Any]:
    """Each queue's length over the last answers, where the leader does not remember it."""
    rows = before.rows if before else []
    trends = {text(row, "id"): trend_in(row) for row in rows}
    rows = [
        {"trend": (*trends.get(text(row, "id"), ()), row.get("queued", 0))[-TREND:], **row}
        for row in Answer(data, 0.0).rows
    ]
    return {**data, "rows": rows}


def _on_acted(view: View, event: Acted) -> View:
    level = "info" if event.ok else "error"
    name = "done" if event.ok else "refused"
    summary = f"{event.command}{ARROW}{event.result}"
    happening = Happening(event.utc, name, summary, "console", level)
    live = msgspec.structs.replace(view.live, happenings=_with(view.live.happenings, happening))
    message = ActionMessage(summary, "good" if event.ok else "bad", event.at)
    return _changed(view, live=live, message=message, clock=event.at)


# ---------------------------------------------------------------- where one is


def _go(view: View, place: Place) -> View:
    if place == view.place:
        return view
    top = place.page in (*MAIN_PAGES, *GROUPED) and not place.ref
    trail = () if top else (*view.trail, view.place)
    view = _changed(view, place=place, trail=trail[-TRAIL:])
    filter_text = place.about.get("filter")
    return _filter(view, filter_text) if isinstance(filter_text, str) else view


def _back(view: View) -> View:
    """Out of a filter first, then out of marks, then to where one came from."""
    state = view.table
    if state.filter:
        return _filter(view, "")
    if state.marks:
        return _look(view, msgspec.structs.replace(state, marks={}))
    if view.trail:
        return _changed(view, place=view.trail[-1], trail=view.trail[:-1])
    return _changed(view, place=Place())


def _drill(view: View) -> View:
    row = current_row(view)
    if view.page is ConsolePage.OVERVIEW:
        return _go(view, Place(ConsolePage.JOBS))
    if row is None or view.page not in DRILLS:
        return view
    page, field = DRILLS[view.page]
    ref = text(row, field)
    if page is ConsolePage.FAILED:
        ref = f"{ref}/{text(row, 'host_id')}/{text(row, 'reason')}"
    plain_row = tuple((k, v) for k, v in row.items() if isinstance(v, str | int | float))
    view = _move(view, 0, relative=True)  # the cursor is on this row when one comes back
    return _go(view, Place(page, ref, plain_row))


# ---------------------------------------------------------------- tables


def current(view: View) -> Shown | None:
    table = TABLES.get(view.page)
    return shown(table, view) if table is not None else None


def current_row(view: View) -> Row | None:
    now = current(view)
    return now.current if now is not None else None


def about(view: View) -> Row:
    """What a page about one thing is about: as it is now, if the snapshot has it."""
    row = view.place.about
    if view.page is not ConsolePage.JOB:
        return row
    return run_row(view, view.place.ref) or row


def here(view: View) -> list[Row]:
    """The row at the cursor, or what the page is about; none on a page about nothing."""
    row = current_row(view) or view.place.about
    return [row] if row else []


def chosen_rows(view: View) -> list[Row]:
    """What an action is about: the marked rows, else the row at the cursor."""
    table = TABLES.get(view.page)
    if table is None:
        return [about(view)] if view.place.row else []
    now = shown(table, view)
    marks = view.table.marks
    if not marks:
        return [now.current] if now.current is not None else []
    # As they are now, if they are on the screen; a long list may show others by now.
    seen = {key: row for row in now.rows if (key := table.key(row)) in marks}
    return [seen.get(key, row) for key, row in marks.items()]


def _look(view: View, state: TableState) -> View:
    tables = {key: table_state for key, table_state in view.tables.items() if key != view.place.key}
    while len(tables) >= TABLES_KEPT:  # somebody who drills into a thousand hosts
        del tables[next(iter(tables))]
    return _changed(view, tables={**tables, view.place.key: state})


def _move(view: View, to: int, relative: bool) -> View:
    """Move the cursor, within the whole table; what is not loaded yet is asked for."""
    table, state = TABLES.get(view.page), view.table
    if table is None:
        return view
    now = shown(table, view)
    if not now.rows:
        return view
    first, last = 0, now.total - 1
    if not _pages(table, view):
        first, last = now.offset, now.offset + len(now.rows) - 1
    index = now.offset + now.index + to if relative else to if to >= 0 else last
    index = max(first, min(last, index))
    offset = state.offset
    if _pages(table, view) and not offset + EDGE <= index < offset + LOADED - EDGE:
        offset = _page_around(index)
    loaded = 0 <= index - now.offset < len(now.rows)
    cursor = table.key(now.rows[index - now.offset]) if loaded else ""
    return _look(
        view, msgspec.structs.replace(state, cursor=cursor, index=index - offset, offset=offset)
    )


def _pages(table: Table, view: View) -> bool:
    """Whether other rows than those that are here can be asked for."""
    return bool(table.op) and not table.newest_first and not view.paused


def _page_around(index: int) -> int:
    """The offset of a page that has rows before and after this one."""
    return max(0, (index - STEP // 2) // STEP * STEP)


def _load_around(view: View, index: int) -> View:
    table, state = TABLES.get(view.page), view.table
    if table is None or not _pages(table, view):
        return view
    offset = _page_around(index)
    place = state.index + state.offset - offset  # of the cursor, in the page that will come
    return _look(view, msgspec.structs.replace(state, index=place, offset=offset))


def _toggle_row(view: View) -> View:
    """Open or close the row at the cursor, or the row that it is inside of."""
    row = current_row(view)
    if row is None or not (outer := text(row, "outer")):
        return view
    state = view.table
    is_open = outer in state.expanded
    expanded = state.expanded - {outer} if is_open else state.expanded | {outer}
    cursor = outer if is_open else state.cursor
    return _look(view, msgspec.structs.replace(state, expanded=expanded, cursor=cursor))


def _mark(view: View) -> View:
    table, row = TABLES.get(view.page), current_row(view)
    if table is None or row is None:
        return view
    key, marks = table.key(row), dict(view.table.marks)
    if marks.pop(key, None) is None:
        marks[key] = row
    return _move(_look(view, msgspec.structs.replace(view.table, marks=marks)), 1, relative=True)


def _mark_all(view: View) -> View:
    table, now = TABLES.get(view.page), current(view)
    if table is None or now is None:
        return view
    all_ = {table.key(row): row for row in now.rows}
    marks = {} if all_.keys() <= view.table.marks.keys() else view.table.marks | all_
    return _look(view, msgspec.structs.replace(view.table, marks=marks))


def _sort(view: View, letter: str) -> View:
    """The second press turns the order round."""
    table, state = TABLES.get(view.page), view.table
    columns = table.columns if table is not None and not table.newest_first else ()
    column = next((candidate for candidate in columns if candidate.letter == letter), None)
    if column is None or table is None:
        return view
    name, desc = (state.sort, state.desc) if state.sort else (table.sort, table.desc)
    desc = not desc if name == column.sort else column.desc
    state = msgspec.structs.replace(
        state, sort=column.sort, desc=desc, offset=0, index=0, cursor=""
    )
    return _look(view, state)


def _filter(view: View, filter_text: str) -> View:
    inverse = filter_text.startswith("!")
    state = msgspec.structs.replace(
        view.table,
        filter=filter_text.removeprefix("!"),
        inverse=inverse,
        offset=0,
        index=0,
        cursor="",
    )
    return _look(view, state)


def _next_level(view: View) -> View:
    """All, warnings and worse, errors: the filter says which, and what else is in it stays."""
    words = view.table.filter.split()
    now = next((word for word in words if word.startswith("level:")), "")
    after = {"": "level:warning", "level:warning": "level:error"}.get(now, "")
    kept = [word for word in words if not word.startswith("level:")]
    sign = "!" if view.table.inverse else ""
    return _filter(view, sign + " ".join([*([after] if after else []), *kept]))
