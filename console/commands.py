"""The command line of the console: what was typed becomes an event or an action. Pure.

`:nodes` goes to a page, `:queues by tag` to a face of it, `:job docs` to a job, `:pause docs` acts,
`:theme nord` is the app's. The completions are what the View knows: pages, jobs, tags, workers,
hosts on the screen.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from console.actions import BY_NAME, Action
from console.columns.cells import tags_in
from console.columns.queues import BY
from console.columns.work import job_rows, node_rows
from console.state import MAIN_PAGES, ConsoleEvent, ConsolePage, GoTo, Place, SetFilter, View
from console.tables import Row, number, text

JOB_ACTIONS: Final = ("pause", "resume", "cancel", "delete", "retry", "tune")
WORDS: Final = (
    *(str(page) for page in MAIN_PAGES),
    "job",
    "node",
    "host",
    *JOB_ACTIONS,
    "drain",
    "undrain",
    "reassign",
    "stepdown",
    "submit",
    "filter",
    "theme",
    "cluster",
    "help",
    "quit",
)


class Do(NamedTuple):
    """An action on rows that were named, not chosen."""

    action: Action
    rows: list[Row]
    typed: str = ""


class AppCommand(NamedTuple):
    """For the app itself: theme, submit, cluster, help, quit."""

    name: str
    argument: str = ""


class Mistake(NamedTuple):
    text: str


ParsedCommand: TypeAlias = ConsoleEvent | Do | AppCommand | Mistake


def parse(typed: str, view: View) -> ParsedCommand:
    try:
        words = shlex.split(typed)
    except ValueError as error:
        return Mistake(f"{error}")
    if not words:
        return Mistake("nothing was typed")
    name, rest = _expand(words[0].lower()), words[1:]
    if name in (str(page) for page in MAIN_PAGES):
        if name == ConsolePage.LOG and rest:
            return GoTo(Place(ConsolePage.LOG, "", (("filter", " ".join(rest)),)))
        if name == ConsolePage.ITEMS and rest:
            run = text(_job(rest[0], view), "run")
            return (
                GoTo(Place(ConsolePage.ITEMS, run)) if run else Mistake(f"no job {rest[0]!r} here")
            )
        if name == ConsolePage.QUEUES and rest:
            return _queues(rest)
        return GoTo(Place(ConsolePage(name)))
    if name in ("theme", "cluster", "submit", "help", "quit"):
        return AppCommand(name, " ".join(rest))
    if name == "filter":
        return SetFilter(" ".join(rest))
    if name == "stepdown":
        return Do(BY_NAME["step_down"], [{}])
    if name not in WORDS:
        return Mistake(f"no command {words[0]!r}; tab completes, ? helps")
    if not rest:
        return Mistake(f"{name} needs a name or a number")
    return _about(name, rest, view)


def _queues(rest: Sequence[str]) -> ParsedCommand:
    """`:queues by tag`, or `:queues shop`: of the jobs with that tag."""
    if rest[0] != "by":
        return GoTo(Place(ConsolePage.QUEUES, rest[0]))
    page = BY.get(" ".join(rest[1:]))
    return GoTo(Place(page)) if page else Mistake(f"queues by {', '.join(BY)}")


def _expand(word: str) -> str:
    """A beginning that fits one word only is that word."""
    word = {"q": "quit", "e": "errors", "h": "hosts"}.get(word, word)
    fits = [command for command in WORDS if command.startswith(word)]
    return word if word in WORDS or len(fits) != 1 else fits[0]


def _about(name: str, rest: Sequence[str], view: View) -> ParsedCommand:
    ref, more = rest[0], " ".join(rest[1:])
    if name == "node":
        return GoTo(Place(ConsolePage.NODE, ref, (("id", ref),)))
    if name == "host":
        return GoTo(
            Place(ConsolePage.HOSTS, "", (("filter", ref),))
        )  # it has no number that one knows
    if name in ("drain", "undrain"):
        return Do(BY_NAME[name], [{"id": ref, "kind": "worker"}])
    if name == "reassign":
        return (
            Do(BY_NAME["reassign"], [{"host": ref}], more) if more else Mistake("to which worker?")
        )
    row = _job(ref, view)
    if name in JOB_ACTIONS:
        return _act_on_job(name, row, rest[1:])
    if name == "job":
        run = text(row, "run") or ref
        plain_row = tuple((k, v) for k, v in row.items() if isinstance(v, str | int | float))
        return GoTo(Place(ConsolePage.JOB, run, plain_row))
    return Mistake(f"no command {name!r}")


def _act_on_job(name: str, row: Row, words: Sequence[str]) -> ParsedCommand:
    """`:cancel docs run=3`, or `--run 3`; without a number it is the newest run that is known here,
    and for `delete` all of them."""
    joined = " ".join(words).replace("--run ", "run=").replace("--run=", "run=").split()
    run_numbers = [word.removeprefix("run=") for word in joined if word.startswith("run=")]
    more = " ".join(word for word in joined if not word.startswith("run="))
    if any(not digits.isdecimal() for digits in run_numbers):
        return Mistake(f"run={run_numbers[0]} is not a run's number")
    if name == "tune" and not more:
        return Mistake("which rate limit? e.g. :tune docs rate=5 concurrency=2")
    if name != "tune" and more:
        return Mistake(f"{name} takes a job and run=N, not {more!r}")
    if run_numbers:
        runs = {int(number(run, "run")): run for run in row.get("all_runs", ())}
        # A run that is not on the screen: its state is not known here.
        row = runs.get(int(run_numbers[0]), {"job": row.get("job"), "run": int(run_numbers[0])})
    return Do(BY_NAME[name], [row], more)


def _job(ref: str, view: View) -> Row:
    """The newest run of the job that is meant; the leader knows jobs that are not on the screen."""
    rows = [row for row in job_rows(view) if ref in (text(row, "job"), text(row, "name"))]
    return max(rows, key=lambda row: int(row["run"]), default={"job": ref})


def completions(typed: str, view: View) -> list[str]:
    """Whole command lines that begin with what was typed."""
    word, space, rest = typed.partition(" ")
    if not space:
        return [command for command in WORDS if command.startswith(word.lower())]
    name = _expand(word.lower())
    values: list[str] = []
    if name in ("job", "items") or name in JOB_ACTIONS:
        values = [text(row, "name") for row in job_rows(view)]
    elif name in ("node", "drain", "undrain"):
        values = [text(row, "id") for row in node_rows(view) if row["kind"] == "worker"]
    elif name in ("host", "reassign"):
        values = [text(row, "host") for row in view.content.rows("hosts:")]
    elif name == ConsolePage.QUEUES:
        ways = [f"{word} by {grouping}" for grouping in BY]
        tags = {tag for row in job_rows(view) for tag in tags_in(row)}
        ways += [f"{word} {tag}" for tag in sorted(tags)]
        return [line for line in ways if line.startswith(typed)]
    elif name == "cluster":
        values = list(view.clusters)
    quoted = [shlex.quote(argument) for argument in dict.fromkeys(values) if argument]
    return [
        f"{word} {argument}"
        for argument in quoted
        if argument.strip("'").startswith(rest.strip("'"))
    ]
