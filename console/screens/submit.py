"""The form for a new job: URLs or a job file, checked before it is sent.

The same rules as `zcrawl submit`: what the form says is turned into the same submission, and the
command line that does the same is shown while one types.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import DirectoryTree, Input

from console.actions import ActionRequest
from console.screens.forms import Checked, FormDialog, FormField, FormRefusal
from zcrawl.cli.specs import Submission, prepare
from zcrawl.errors import ZcrawlError
from zcrawl.model.reasons.cluster import NAME_EXISTS

FIELDS: Final = (
    FormField("sources", "URLs or job file", hint="https://…  or job.toml (ctrl+o chooses a file)"),
    FormField("name", "Name", hint="from the first URL"),
    FormField("tags", "Tags", hint="with spaces between them"),
    FormField("rate", "Requests per second and host", "rate", hint="default; 0: no limit"),
    FormField("concurrency", "Concurrency per host", "count", hint="default"),
    FormField("depth", "Max depth", "count", hint="no limit"),
    FormField("pages", "Max pages", "count", hint="no limit"),
    FormField("robots", "Obey robots.txt", "switch", "true"),
)
KEYS: Final = {  # of the job's spec
    "name": "name",
    "tags": "tags",
    "rate": "politeness.rate",
    "concurrency": "politeness.concurrency",
    "depth": "scope.max_depth",
    "pages": "scope.max_pages",
}
FLAGS: Final = {
    "name": "--name",
    "rate": "--rate",
    "concurrency": "--concurrency",
    "depth": "--depth",
    "pages": "--max-pages",
}
UPDATE, AGAIN = "update", "again"
SendRequest = Callable[[ActionRequest], Awaitable[dict[str, Any]]]


class SubmissionDraft(NamedTuple):
    """What was filled in, checked: a submission, or what is wrong with it."""

    submission: Submission | None
    command: str
    field: str = ""  # that the mistake is in
    mistake: str = ""


def draft(values: dict[str, str]) -> SubmissionDraft:
    """Turn the form into a submission, by the rules of the command line."""
    sources = values["sources"].split()
    files = [source for source in sources if "://" not in source and source.endswith(".toml")]
    flags = [f"{FLAGS[name]} {shlex.quote(values[name])}" for name in FLAGS if values[name]]
    flags += [f"--tag {shlex.quote(tag)}" for tag in values["tags"].split()]
    flags += [] if values["robots"] else ["--no-robots"]
    command = " ".join(["zcrawl submit", *map(shlex.quote, sources), *flags])
    if not sources:
        return SubmissionDraft(None, command, "sources", "give a URL or a job file")
    if files and len(sources) > 1:
        return SubmissionDraft(None, command, "sources", "give one job file, or URLs, not both")
    try:
        changes = _changes(values)
    except ValueError as error:
        name, _, reason = str(error).partition(": ")
        return SubmissionDraft(None, command, name, reason)
    try:
        urls = () if files else tuple(sources)
        submission = prepare(urls, files[0] if files else None, None, changes)
    except ZcrawlError as error:
        return SubmissionDraft(None, command, _field_of(str(error)), str(error))
    if submission.more:
        reason = "more than 1,000 seeds: use zcrawl submit on the command line"
        return SubmissionDraft(None, command, "sources", reason)
    return SubmissionDraft(submission, command)


def _field_of(message: str) -> str:
    """The field that a message of the spec's reader is about."""
    place = message.partition(": ")[2] if message.startswith("command line: ") else message
    return next((name for name, key in KEYS.items() if place.startswith((key, name))), "sources")


def _changes(values: dict[str, str]) -> dict[str, Any]:
    changes: dict[str, Any] = {} if values["robots"] else {"politeness.robots": False}
    for name, key in KEYS.items():
        typed = values[name].strip()
        if not typed:
            continue
        if name in ("name", "tags"):
            changes[key] = typed.split() if name == "tags" else typed
            continue
        try:
            changes[key] = float(typed) if name == "rate" else int(typed)
        except ValueError:
            raise ValueError(f"{name}: not a number: {typed!r}") from None
    return changes


class SubmitForm(FormDialog):
    """A new job. A refusal keeps what was typed; a taken name offers what would work."""

    SEND = "Submit"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+o", "choose", "choose a file", priority=True),
    ]

    def __init__(self, sources: str, send: SendRequest) -> None:
        fields = [
            field._replace(value=sources) if not n else field for n, field in enumerate(FIELDS)
        ]
        super().__init__("New job", fields)
        self._request = send

    def extra(self) -> Iterable[Widget]:
        """The files to choose from."""
        files = DirectoryTree(Path.cwd(), id="files")
        files.display = False
        yield files

    def check(self, values: dict[str, str]) -> Checked:
        """As the command line would."""
        made = draft(values)
        return Checked(made.command, {made.field: made.mistake} if made.mistake else {})

    async def send(self, values: dict[str, str], offer: str) -> FormRefusal | None:
        """Submit it: as a new job, or as what was offered."""
        made = draft(values)
        assert made.submission is not None  # it was checked
        args = made.submission.args(offer or "new", None)
        flag = f" --{offer}" if offer else ""
        if offer == AGAIN:
            name = made.submission.spec.name
            args = {"ref": name, "mode": AGAIN, "seeds": [], "seeding": False, "vouched": []}
            request = ActionRequest("submit", args, f"zcrawl submit {shlex.quote(name)} --again")
        else:
            request = ActionRequest("submit", args, made.command + flag)
        try:
            await self._request(request)
        except ZcrawlError as error:
            if error.code == NAME_EXISTS:
                name = made.submission.spec.name
                reason = f"a job named {name!r} exists: type another name, or"
                offers = ((UPDATE, "Update it and run"), (AGAIN, "Run it again as it is"))
                return FormRefusal("name", reason, offers)
            return FormRefusal(_field_of(str(error)), str(error))
        return None

    def action_choose(self) -> None:
        """Show or hide the files."""
        files = self.query_one("#files")
        files.display = not files.display
        (files if files.display else self.query_one("#field-sources")).focus()

    def on_directory_tree_file_selected(self, event: DirectoryTree.FileSelected) -> None:
        """Take the file."""
        self.query_one("#field-sources", Input).value = str(event.path)
        self.query_one("#files").display = False
        self.query_one("#field-sources", Input).focus()
