"""Textual's footer, with the keys that fit, made again only when they have changed.

Textual composes it anew whenever the focus or the screen changes: 40 ms of the time of a page key,
for the same keys. And it cuts what does not fit; here the least important keys are left out whole,
and `?` says that it has all of them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

HELP: Final = "view.help"
ALL_KEYS: Final = "more"  # what `?` is called where keys are left out
PALETTE: Final = "palette"
# What is left out first where there is little room; all other keys are those of the page.
LEAST: Final = (PALETTE, "row.mark", "view.freeze", "job.new", "quit", "view.command")
FIRST: Final = (HELP, "view.open")
BORDER: Final = 1  # of the palette's key


class ShownKey(NamedTuple):
    """One key of the footer."""

    id: str
    key: str
    display: str
    label: str
    action: str
    enabled: bool
    tooltip: str

    @property
    def cells(self) -> int:
        """Its width: the key, its label, and a space after each."""
        return cell_len(self.display) + cell_len(self.label) + 2


def fitting(keys: tuple[ShownKey, ...], cells: int) -> tuple[ShownKey, ...]:
    """Return the keys that there is room for, in their order; `?` then says that it has all."""
    if sum(key.cells for key in keys) + BORDER <= cells:
        return keys
    keys = tuple(key._replace(label=ALL_KEYS) if key.id == HELP else key for key in keys)
    room = cells - BORDER
    kept: set[ShownKey] = set()
    for key in sorted(keys, key=_rank):
        if key.cells <= room:
            room -= key.cells
            kept.add(key)
    return tuple(key for key in keys if key in kept)


def _rank(key: ShownKey) -> int:
    if key.id in FIRST:
        return -1
    return 1 + len(LEAST) - LEAST.index(key.id) if key.id in LEAST else 0


class PageFooter(Footer):
    """The keys of a page."""

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._shown: tuple[ShownKey, ...] | None = None

    def bindings_changed(self, screen: Screen[Any]) -> None:
        """Compose again, if another key is to be shown.

        Textual's own would not while the terminal has no focus. A browser's often has none.
        """
        if not self.is_attached or screen is not self.screen:
            return
        keys = self._fitting(screen)
        if keys != self._shown:
            self._shown = keys
            self.call_after_refresh(self.recompose)

    def on_resize(self) -> None:
        """Show the keys that the new width has room for."""
        self.bindings_changed(self.screen)

    def compose(self) -> ComposeResult:
        """Yield a button for each key.

        They are compact by themselves. Bound to `Footer.compact`, as Textual has it, each would be
        kept for ever by the footer that it watches.
        """
        for key in self._shown or ():
            yield FooterKey(
                key.key,
                key.display,
                key.label,
                key.action,
                classes="-command-palette" if key.id == PALETTE else "",
                disabled=not key.enabled,
                tooltip=key.tooltip,
            )

    def _fitting(self, screen: Screen[Any]) -> tuple[ShownKey, ...]:
        palette = self.app.COMMAND_PALETTE_BINDING
        by_action: dict[str, ShownKey] = {}  # the first key of each
        for active in screen.active_bindings.values():
            binding = active.binding
            is_palette = binding.key == palette
            if (binding.show or is_palette) and binding.action not in by_action:
                by_action[binding.action] = ShownKey(
                    PALETTE if is_palette else binding.id or binding.action,
                    binding.key,
                    self.app.get_key_display(binding),
                    binding.description,
                    binding.action,
                    active.enabled,
                    active.tooltip or binding.description,
                )
        # The palette is docked at the right end.
        keys = sorted(by_action.values(), key=lambda key: key.id == PALETTE)
        return fitting(tuple(keys), self.size.width or self.app.size.width)
