"""The two themes of our own. `paint.tcss` says which colour means what.

Each colour has one meaning: green works, amber needs a look, red is broken, blue is where you are.
Text has a contrast of at least 4.5 to 1 on its background; `tests/console/test_themes.py` measures
it. Every other theme of Textual can be chosen too.
"""

from __future__ import annotations

from typing import Final

from textual.theme import Theme

DARK: Final = Theme(
    name="zcrawl-dark",
    primary="#62b0ff",
    secondary="#3fc7b8",
    accent="#c39bf5",
    success="#5fd38d",
    warning="#f2bf56",
    error="#ff7b86",
    foreground="#dbe2ec",
    background="#0e131a",
    surface="#141a23",
    panel="#1d2530",
    dark=True,
    variables={
        "text-primary": "#7fbfff",
        "text-secondary": "#5fd5c8",
        "text-accent": "#cdaaf8",
        "text-success": "#6fdc9a",
        "text-warning": "#f5c96b",
        "text-error": "#ff8f98",
        "border": "#33404f",
        "border-blurred": "#33404f",
        "block-cursor-background": "#24568c",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": "#24405f",
        "block-cursor-blurred-foreground": "#e6edf6",
        "block-hover-background": "#1d2a3a",
        "footer-background": "#141a23",
        "footer-key-foreground": "#7fbfff",
        "footer-description-foreground": "#aab6c5",
        "input-selection-background": "#24568c",
        "scrollbar": "#33404f",
        "scrollbar-hover": "#4a5a6d",
        "scrollbar-active": "#62b0ff",
        "scrollbar-background": "#0e131a",
        "scrollbar-background-hover": "#0e131a",
        "scrollbar-background-active": "#0e131a",
    },
)
LIGHT: Final = Theme(
    name="zcrawl-light",
    primary="#0b5cad",
    secondary="#0c7468",
    accent="#7440a8",
    success="#1b7a41",
    warning="#946000",
    error="#b5222f",
    foreground="#1c2430",
    background="#fafaf7",
    surface="#f1f2ee",
    panel="#e4e7e4",
    dark=False,
    variables={
        "text-primary": "#0b5cad",
        "text-secondary": "#0b675c",
        "text-accent": "#6d3aa0",
        "text-success": "#176a38",
        "text-warning": "#7d5000",
        "text-error": "#a81d29",
        "border": "#bcc3c6",
        "border-blurred": "#bcc3c6",
        "block-cursor-background": "#1763b0",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": "#c7dcf2",
        "block-cursor-blurred-foreground": "#10233a",
        "block-hover-background": "#e3ecf5",
        "footer-background": "#e4e7e4",
        "footer-key-foreground": "#0b5cad",
        "footer-description-foreground": "#46505c",
        "input-selection-background": "#b5d3f2",
        "scrollbar": "#bcc3c6",
        "scrollbar-hover": "#98a2a8",
        "scrollbar-active": "#0b5cad",
        "scrollbar-background": "#fafaf7",
        "scrollbar-background-hover": "#fafaf7",
        "scrollbar-background-active": "#fafaf7",
    },
)
THEMES: Final = (DARK, LIGHT)
