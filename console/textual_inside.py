"""What the console uses of Textual's inside, for want of a public way; all of it is here.

Textual is pinned exactly (8.2); whoever changes the pin looks at these.
"""

from __future__ import annotations

import functools
from typing import Any

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget


def use_component(widget: Widget, name: str) -> None:
    """Compute the style of a component class, if the widget has not used it before.

    Textual computes the styles of all COMPONENT_CLASSES of a widget whenever it styles the widget.
    With thirty classes in each widget that was a quarter of the console's CPU time. So such a
    widget names none, and Textual computes those again that it has used so far.
    """
    if name in widget._component_styles:
        return
    used = widget._get_component_classes() | {name}
    widget._get_component_classes = functools.cache(lambda: used)
    node = DOMNode(classes=name)
    node._attach(widget)
    widget.app.stylesheet.apply(node, animate=False)
    widget._component_styles[name] = node.styles


def register_screen(app: App[Any], screen: Screen[Any]) -> None:
    """Compose a screen without showing it.

    Textual composes a screen when it is pushed, or when its mode is switched to, and then its loop
    looks at no key until the screen is there. It also reads all CSS again, twice, at the first
    visit of a mode (200 to 350 ms), because it does not know that a new screen has its styles.
    """
    app._register(app, screen)
    screen._css_update_count = app._css_update_count


def forward(event: events.Event, target: Widget) -> None:
    """Hand an event to a widget as one that the app has looked at: it does not come back."""
    target._forward_event(event)


def hide_tooltip(screen: Screen[Any]) -> None:
    """Hide the tooltip, as Textual does it for each key."""
    screen._clear_tooltip()


async def run_binding(app: App[Any], key: str, *, priority: bool = False) -> bool:
    """Run what a key is bound to, and return whether there was a binding."""
    return await app._check_bindings(key, priority=priority)
