"""The keys of the main screen, each with a name by which `[console] keys` can change it."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from console.actions import ACTIONS
from console.state import MAIN_PAGES


def key_mistake(user_keys: dict[str, str]) -> str:
    """What is wrong with a user's keys: a name that nothing has, a key that two things have."""
    keys = {
        binding.id: binding.key
        for binding in bindings()
        if isinstance(binding, Binding) and binding.id
    }
    unknown = sorted(user_keys.keys() - keys.keys())
    if unknown:
        return f"[console] keys: nothing is called {', '.join(unknown)}"
    taken: dict[str, str] = {}
    for name, value in (keys | user_keys).items():
        for key in value.split(","):
            other = taken.setdefault(key.strip(), name)
            if other != name:
                return f"[console] keys: {key.strip()} is both {other} and {name}"
    return ""


def bindings() -> list[BindingType]:
    pages = [
        Binding(str(n), f"page('{page}')", str(page), id=f"page.{page}", show=False)
        for n, page in enumerate(MAIN_PAGES, 1)
    ]
    moves = [
        ("down,j", "move(1)", "move.down"),
        ("up,k", "move(-1)", "move.up"),
        ("pagedown", "move_page(1)", "move.page_down"),
        ("pageup", "move_page(-1)", "move.page_up"),
        ("home", "move_to(0)", "move.first"),
        ("end", "move_to(-1)", "move.last"),
    ]
    plain_keys = [
        ("q", "quit", "quit"),
        ("p", "pause_view", "view.pause"),
        ("enter", "drill", "view.open"),
        ("escape", "go_back", "view.back"),
        ("space", "mark", "row.mark"),
        ("ctrl+a", "mark_all", "row.mark_all"),
        ("slash", "filter", "view.filter"),
        ("colon", "command", "view.command"),
        ("question_mark", "help", "view.help"),
        ("s", "span", "charts.span"),
        ("v", "level", "log.level"),
        ("b", "group", "queues.by"),
        ("i", "items", "job.items"),
        ("n", "submit", "job.new"),
        ("y", "copy", "row.copy"),
    ]
    acts = {action.key: f"act.{action.key}" for action in ACTIONS}
    return [
        *pages,
        *(Binding(key, action, id=id, show=False) for key, action, id in (*moves, *plain_keys)),
        *(Binding(key, f"act('{key}')", id=id, show=False) for key, id in acts.items()),
    ]
