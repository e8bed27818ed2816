"""Text selection in widgets that paint their own lines."""

from __future__ import annotations

from textual.strip import Strip
from textual.widget import Widget


def with_selection(widget: Widget, strip: Strip, y: int) -> Strip:
    """Return the strip with what is selected of line `y`, and with the offsets that Textual needs
    to find the text under the mouse."""
    selection = widget.text_selection
    span = selection.get_span(y) if selection is not None else None
    if span is not None:
        cells = strip.cell_length
        start, end = span[0], cells if span[1] == -1 else min(cells, span[1])
        style = widget.screen.get_component_rich_style("screen--selection", partial=True)
        strip = Strip.join(
            [strip.crop(0, start), strip.crop(start, end).apply_style(style), strip.crop(end)]
        )
    return strip.apply_offsets(0, y)
