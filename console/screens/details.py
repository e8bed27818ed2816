"""The pages about one thing: a node, a job, a host, an item, a line of the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from console.drawing.details import details
from console.help_text import help_text
from console.keymap import page_bindings
from console.screens.page import PageScreen
from console.state import ConsolePage, View
from console.widgets.document import Document


class DetailsScreen(PageScreen):
    """A page of text that scrolls."""

    def compose_body(self) -> Iterable[Widget]:
        """The text."""
        yield Document(id="body")

    def show_body(self, view: View) -> None:
        """Show the facts."""
        if view.page is self.PAGE:
            body = self.query_one(Document)
            body.paint(details(view, body.scrollable_content_region.width))


class NodeScreen(DetailsScreen):
    """One master or worker."""

    PAGE = ConsolePage.NODE
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class JobScreen(DetailsScreen):
    """One run of a job."""

    PAGE = ConsolePage.JOB
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class HostScreen(DetailsScreen):
    """One host."""

    PAGE = ConsolePage.HOST
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class ItemScreen(DetailsScreen):
    """One item, field by field."""

    PAGE = ConsolePage.ITEM
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)


class LineScreen(DetailsScreen):
    """One line of the log, or one failed URL, field by field."""

    PAGE = ConsolePage.LINE
    BINDINGS: ClassVar[list[BindingType]] = page_bindings(PAGE)
    HELP = help_text(PAGE)
