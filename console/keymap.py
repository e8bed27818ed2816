"""The keys, each with a name by which `[console] keys` can change it.

Screens have those of their page, which the footer shows; the app has those of every page.
"""

from __future__ import annotations

from typing import Final

from textual.binding import Binding, BindingType

from console.actions import ACTIONS, RUN_PAGES, Action
from console.columns.pages import TABLES
from console.columns.queues import next_grouping
from console.drawing.charts import CHARTED
from console.state import MAIN_PAGES, ConsolePage

SIGNS: Final = {"enter": "↵", "space": "␣"}  # of keys, wherever they are shown


def key_mistake(user_keys: dict[str, str]) -> str:
    """Return what is wrong with a user's keys: an unknown name, or a key with two meanings."""
    names = {binding.id for binding in all_bindings()}
    unknown = sorted(user_keys.keys() - names)
    if unknown:
        return f"[console] keys: nothing is called {', '.join(unknown)}"
    for page in ConsolePage:
        taken: dict[str, str] = {}
        for binding in _of(page_bindings(page) + app_bindings()):
            name = binding.id or ""
            for key in user_keys.get(name, binding.key).split(","):
                other = taken.setdefault(key.strip(), name)
                if other != name:
                    return f"[console] keys: {key.strip()} is both {other} and {name}"
    return ""


def all_bindings() -> list[Binding]:
    """Every binding that has a name."""
    pages = [binding for page in ConsolePage for binding in page_bindings(page)]
    return [binding for binding in _of(pages + app_bindings()) if binding.id]


def _of(bindings: list[BindingType]) -> list[Binding]:
    return [binding for binding in bindings if isinstance(binding, Binding)]


def action_binding(action: Action) -> Binding:
    """The key of something that can be done."""
    return Binding(
        action.key,
        f"app.act('{action.name}')",
        action.short or action.label,
        id=f"act.{action.name}",
        tooltip=f"{action.label.capitalize()}. {action.about}",
    )


def page_bindings(page: ConsolePage) -> list[BindingType]:
    """What the keys do on one page only."""
    keys: list[BindingType] = []
    if page in TABLES:
        keys += [
            Binding("enter", "app.drill", "open", id="view.open"),
            Binding("slash", "app.filter", "filter", id="view.filter"),
            Binding("space", "app.mark", "mark", id="row.mark"),
            Binding("ctrl+a", "app.mark_all", "mark all", id="row.mark_all", show=False),
            *(
                Binding(key, f"app.{action}", about, id=name, show=False)
                for key, action, about, name in (
                    ("down,j", "move(1)", "next row", "move.down"),
                    ("up,k", "move(-1)", "previous row", "move.up"),
                    ("pagedown", "move_page(1)", "a screen down", "move.page_down"),
                    ("pageup", "move_page(-1)", "a screen up", "move.page_up"),
                    ("home", "move_to(0)", "first row", "move.first"),
                    ("end", "move_to(-1)", "last row", "move.last"),
                )
            ),
        ]
    keys += [action_binding(action) for action in ACTIONS if page in action.pages]
    grouping = next_grouping(page)
    if grouping:
        keys.append(Binding("b", "app.group", f"by {grouping}", id="queues.by"))
    if page in RUN_PAGES:
        keys.append(Binding("i", "app.items", "items", id="job.items"))
    if page in CHARTED:
        keys.append(Binding("c", "app.charts", "charts", id="view.charts"))
    if page is ConsolePage.JOBS:
        keys.append(Binding("e,right,left", "app.toggle_row", "runs", id="job.runs"))
    if page in (ConsolePage.LOG, ConsolePage.LINE):
        keys.append(Binding("o", "app.jump", "go to", id="log.jump"))
    if page is ConsolePage.LOG:
        keys.append(Binding("v", "app.level", "level", id="log.level"))
    if page is ConsolePage.CHARTS:
        keys.append(Binding("s", "app.span", "time span", id="charts.span"))
    return keys


def app_bindings() -> list[BindingType]:
    """What the keys do on every page."""
    pages: list[BindingType] = [
        Binding(str(n), f"page('{page}')", str(page), id=f"page.{page}", show=False)
        for n, page in enumerate(MAIN_PAGES, 1)
    ]
    return [
        *pages,
        Binding("escape", "go_back", "back", id="view.back", show=False),
        Binding("n", "submit", "new job", id="job.new"),
        Binding("p", "freeze", "freeze", id="view.freeze"),
        *(
            Binding(key, action, label, id=name, show=False)
            for key, action, label, name in (
                ("comma", "replay_seek(-10)", "10 s back", "replay.back"),
                ("full_stop", "replay_seek(10)", "10 s forward", "replay.forward"),
                ("less_than_sign", "replay_seek(-60)", "1 min back", "replay.minute_back"),
                ("greater_than_sign", "replay_seek(60)", "1 min forward", "replay.minute_forward"),
                ("minus", "replay_speed(-1)", "slower", "replay.slower"),
                ("plus", "replay_speed(1)", "faster", "replay.faster"),
            )
        ),
        Binding("y", "copy", "copy selected text or main field", id="row.copy", show=False),
        Binding("ctrl+y", "copy_rows", "copy whole rows", id="row.copy_whole", show=False),
        Binding("colon", "command", "command", id="view.command"),
        Binding("question_mark", "help", "help", id="view.help"),
        Binding("q", "quit", "quit", id="quit"),
    ]
