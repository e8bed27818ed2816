"""Our own themes can be read: every text has enough contrast on its background."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.style import Style
from textual.app import App, ComposeResult
from textual.color import Color

import console
from console.drawing.lines import STYLES
from console.themes import THEMES
from console.widgets.painted import Painted

LEAST = 4.5  # WCAG 2 AA, text
LEAST_DRAWN = 3.0  # WCAG 2 AA, graphics: curves
DRAWN = ("bar", "series1", "series2", "series3", "series4")
# Rules, guides, the area below a curve: they carry no meaning alone.
DECORATION = ("rest", "area1", "area2", "area3", "area-bad")


class Sheet(App[None]):
    """One painted widget in one theme."""

    CSS_PATH = str(Path(console.__file__).parent / "paint.tcss")

    def __init__(self, theme: str) -> None:
        super().__init__()
        for own in THEMES:
            self.register_theme(own)
        self.theme = theme

    def compose(self) -> ComposeResult:
        yield Painted()


def contrast(style: Style) -> float:
    """The ratio of WCAG 2."""
    assert style.color is not None and style.bgcolor is not None

    def luminance(color: Color) -> float:
        parts = [part / 255 for part in color.rgb]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lights = sorted(
        luminance(Color.from_rich_color(color)) for color in (style.color, style.bgcolor)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_every_style_of_our_themes_is_readable(theme: str) -> None:
    """4.5 to 1 for text, 3 to 1 for what is drawn."""
    app = Sheet(theme)
    async with app.run_test():
        painted = app.query_one(Painted)
        ratios = {
            name: contrast(painted.line_style(name)) for name in STYLES if name not in DECORATION
        }
    least = {name: LEAST_DRAWN if name in DRAWN else LEAST for name in ratios}
    assert not {name: ratio for name, ratio in ratios.items() if ratio < least[name]}


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_titles_and_keys_of_our_themes_are_readable(theme: str) -> None:
    """What Textual's own widgets take from the theme."""
    app = Sheet(theme)
    async with app.run_test():
        variables = app.get_css_variables()
    pairs = [
        ("text-primary", "background"),
        ("text-primary", "surface"),
        ("footer-key-foreground", "footer-background"),
        ("footer-description-foreground", "footer-background"),
        ("block-cursor-foreground", "block-cursor-background"),
        ("block-cursor-blurred-foreground", "block-cursor-blurred-background"),
        ("foreground", "block-hover-background"),
        ("foreground", "panel"),
    ]
    ratios = {
        (front, back): contrast(
            Style(
                color=Color.parse(variables[front]).rich_color,
                bgcolor=Color.parse(variables[back]).rich_color,
            )
        )
        for front, back in pairs
    }
    assert not {pair: ratio for pair, ratio in ratios.items() if ratio < LEAST}


def test_the_measure_of_contrast_can_fail() -> None:
    """Grey on grey is below, black on white is 21 to 1."""
    grey = Style(color="#777777", bgcolor="#999999")
    assert contrast(grey) < LEAST
    assert contrast(Style(color="#000000", bgcolor="#ffffff")) == pytest.approx(21)
