"""The form for a new job: URLs or a job file, with a file picker, checked before it is sent.

The same rules as `zcrawl submit`: what the form says is turned into the same submission, and the
command line that does the same is shown while one types.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DirectoryTree, Input

from console.lines import Span, line, title
from console.widgets.canvas import Canvas
from zcrawl.cli.specs import Submission, prepare
from zcrawl.errors import ZcrawlError

FIELDS = (
    ("sources", "URLs or a job file (ctrl+o chooses one)", ""),
    ("name", "name (empty: from the first URL)", "name"),
    ("tags", "tags, with spaces between them", "tags"),
    ("rate", "requests a second and host, 0: no limit", "politeness.rate"),
    ("concurrency", "at a time and host", "politeness.concurrency"),
    ("depth", "how deep", "scope.max_depth"),
    ("pages", "how many pages at most", "scope.max_pages"),
)
FLAGS = {"name": "--name", "rate": "--rate", "concurrency": "--concurrency"}
FLAGS |= {"depth": "--depth", "pages": "--max-pages"}


class Form(NamedTuple):
    """What was filled in, checked: a submission, or what is wrong with it."""

    submission: Submission | None
    command: str
    mistake: str


def check(values: dict[str, str]) -> Form:
    sources = values["sources"].split()
    files = [source for source in sources if "://" not in source and source.endswith(".toml")]
    flags = [f"{FLAGS[name]} {shlex.quote(values[name])}" for name in FLAGS if values[name]]
    flags += [f"--tag {shlex.quote(tag)}" for tag in values["tags"].split()]
    command = " ".join(["zcrawl submit", *map(shlex.quote, sources), *flags])
    if not sources:
        return Form(None, command, "give a URL or a job file")
    if files and len(sources) > 1:
        return Form(None, command, "give one job file, or URLs, not both")
    try:
        changes = _changes(values)
        urls = () if files else tuple(sources)
        return Form(prepare(urls, files[0] if files else None, None, changes), command, "")
    except (ZcrawlError, ValueError) as error:
        return Form(None, command, str(error))


def _changes(values: dict[str, str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, _, key in FIELDS:
        typed = values[name].strip()
        if not key or not typed:
            continue
        if name == "tags":
            changes[key] = typed.split()
            continue
        try:
            changes[key] = (
                typed if name == "name" else float(typed) if name == "rate" else int(typed)
            )
        except ValueError:
            raise ValueError(f"{name}: {typed!r} is no number") from None
    return changes


class SubmitScreen(ModalScreen[Form | None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave"),
        Binding("ctrl+o", "choose", "choose a file", priority=True),
        Binding("ctrl+s", "send", "submit", priority=True),
    ]

    def __init__(self, sources: str = "") -> None:
        super().__init__()
        self._sources = sources

    def compose(self) -> ComposeResult:
        with Vertical(classes="box form"):
            yield Canvas("form-head")
            for name, hint, _ in FIELDS:
                value = self._sources if name == "sources" else ""
                yield Input(value, placeholder=hint, id=f"field-{name}", compact=True)
            yield DirectoryTree(Path.cwd(), id="files")
            yield Canvas("form-foot")

    def on_mount(self) -> None:
        head = [
            title("New job", 60),
            line(Span("  tab: next field   enter or ctrl+s: submit   escape: leave", "dim")),
        ]
        self.query_one("#form-head", Canvas).show(head)
        self.query_one("#files").display = False
        self.query_one("#field-sources", Input).focus()
        self._say(self._form())

    def _form(self) -> Form:
        return check({name: self.query_one(f"#field-{name}", Input).value for name, _, _ in FIELDS})

    def _say(self, form: Form) -> None:
        said = Span(f"  {form.mistake}", "warn") if form.mistake else Span("  ready", "good")
        foot = [line(Span(f"  {form.command}", "dim")), line(said)]
        self.query_one("#form-foot", Canvas).show(foot)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._say(self._form())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_send()

    def action_send(self) -> None:
        form = self._form()
        self._say(form)
        if form.submission is not None:
            self.dismiss(form)

    def action_choose(self) -> None:
        files = self.query_one("#files")
        files.display = not files.display
        if files.display:
            files.focus()

    def on_directory_tree_file_selected(self, event: DirectoryTree.FileSelected) -> None:
        self.query_one("#field-sources", Input).value = str(event.path)
        self.query_one("#files").display = False
        self.query_one("#field-sources", Input).focus()

    def action_leave(self) -> None:
        self.dismiss(None)
