"""The entry point: the table of commands, and the handling of errors.

Every error that zcrawl raises on purpose is one line on stderr (with --json an object on stdout)
and an exit code: 0 ok, 1 the work failed, 2 usage or config, 3 nobody answers, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

import click

from zcrawl import __version__
from zcrawl.cli.base import LazyGroup, ReaderGone
from zcrawl.errors import ZcrawlError
from zcrawl.model.reasons.usage import INTERNAL, USAGE
from zcrawl.model.reasons.usage import INTERRUPTED as INTERRUPTION
from zcrawl.runtime.files import keep_private
from zcrawl.runtime.standard_streams import open_missing

INTERRUPTED: Final = 130
# Hints about the probably intended command, for commands that take no argument.
EXTRA_ARGUMENT: Final = {
    "jobs": " To see one job: `zcrawl job {}`.",
    "demo": " To crawl a site: `zcrawl crawl {}`.",
    "up": " To give it a job: `zcrawl submit {}`.",
    "doctor": " To try a page: `zcrawl test {}`.",
}
JOBS: Final = "zcrawl.cli.commands.jobs"
RUNS: Final = "zcrawl.cli.commands.runs"
COMMANDS: Final = {
    "crawl": ("zcrawl.cli.commands.crawl", "Crawl from URLs, here and now, and write the items."),
    "demo": ("zcrawl.cli.commands.demo", "Crawl a book shop that ships with zcrawl."),
    "up": ("zcrawl.cli.commands.up", "Run a cluster on this machine that accepts jobs."),
    "master": ("zcrawl.cli.commands.daemons", "Run a master of a cluster."),
    "worker": (
        "zcrawl.cli.commands.daemons",
        "Run a worker of a cluster, or with --standalone a node without a master.",
    ),
    "gateway": ("zcrawl.cli.commands.gateway", "Serve the cluster over HTTP."),
    "submit": ("zcrawl.cli.commands.submit", "Give a job to the cluster; print its id."),
    "jobs": (JOBS, "List all jobs."),
    "job": (JOBS, "Show one job."),
    "runs": (RUNS, "List the runs of a job, or of all jobs."),
    "run": (RUNS, "Show one run."),
    "versions": (RUNS, "Show what changed in a job, when and by whom."),
    "archive": (RUNS, "Hide a job."),
    "schedule": ("zcrawl.cli.commands.schedule", "Show and change what runs by itself."),
    "prune": ("zcrawl.cli.commands.prune", "Remove old runs now, as [retention] says."),
    "pause": (JOBS, "Stop fetching for all live runs of a job until it is resumed."),
    "resume": (JOBS, "Resume a paused job."),
    "cancel": (JOBS, "End a job's runs, and keep their items and pages."),
    "delete": (JOBS, "End a job, or one of its runs, and remove its data."),
    "retry": (JOBS, "Try a job's failed URLs again."),
    "tune": ("zcrawl.cli.commands.steer", "Change a job's pace and limits while it runs."),
    "nodes": (
        "zcrawl.cli.commands.nodes",
        "Show masters and workers, and where Consul and the mesh differ.",
    ),
    "drain": (
        "zcrawl.cli.commands.nodes",
        "Let a worker finish its work, and give it no new work.",
    ),
    "undrain": ("zcrawl.cli.commands.nodes", "Give a drained worker work again."),
    "owner": ("zcrawl.cli.commands.owner", "Show which node owns a host, a URL or any other id."),
    "console": ("zcrawl.cli.commands.console", "Watch the cluster live, and act on it."),
    "reassign": ("zcrawl.cli.commands.steer", "Give a host to another worker."),
    "rebalance": (
        "zcrawl.cli.commands.steer",
        "Move hosts from busy workers to others, if it pays.",
    ),
    "step-down": ("zcrawl.cli.commands.steer", "Force a failover: the leader steps down."),
    "reload": ("zcrawl.cli.commands.reload", "Let all nodes read their configuration again."),
    "export": ("zcrawl.cli.commands.export", "Write a run's items, or its failures, to a file."),
    "secret": (
        "zcrawl.cli.commands.secret",
        "Store secrets of jobs, sealed with a key.",
    ),
    "keys": ("zcrawl.cli.commands.keys", "Make and allow the keys of an encrypted mesh."),
    "user": (
        "zcrawl.cli.commands.user",
        "Add, list and change users, who have API tokens and own jobs.",
    ),
    "token": (
        "zcrawl.cli.commands.token",
        "Make, list and revoke API tokens, for programs that use the REST gateway.",
    ),
    "audit": (
        "zcrawl.cli.commands.audit",
        "Show who did what to what, from where, and with which result.",
    ),
    "test": (
        "zcrawl.cli.commands.test",
        "Fetch one page as a worker would, and show what happened.",
    ),
    "init": ("zcrawl.cli.commands.init", "Write a job file with comments."),
    "config": ("zcrawl.cli.commands.config", "Show or check the configuration."),
    "reasons": (
        "zcrawl.cli.commands.reasons",
        "Explain why URLs are skipped or fail, and why requests wait or are refused.",
    ),
    "doctor": ("zcrawl.cli.commands.doctor", "Check this machine and the data folder."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="zcrawl")
def cli() -> None:
    """A distributed web crawler that is operated from a terminal.

    Try `zcrawl demo`, or `zcrawl crawl https://example.com`.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run one command line, and exit."""
    arguments = list(sys.argv[1:] if args is None else args)
    open_missing()
    sys.excepthook = _show_trace
    keep_private()
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    except OSError:  # a full disk, which was already reported
        _forget_stdout()
        code = code or 1
    if args is not None:
        sys.exit(code)
    # Everything is closed and flushed; the normal exit of the interpreter would take 30 ms more.
    with contextlib.suppress(OSError):  # stderr is closed, so the error cannot be reported
        sys.stderr.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code. Raises nothing, unless ZCRAWL_DEBUG is set."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in options
    try:
        # Without arguments: show the help instead of an error.
        outcome: Any = cli.main(arguments or ["--help"], prog_name="zcrawl", standalone_mode=False)
        return outcome if isinstance(outcome, int) else 0
    except ZcrawlError as error:
        _debug(error)
        return _fail(str(error), error.code, error.exit_code, as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        from zcrawl.cli import output

        output.note_lines(error.format_message())
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        message = _with_advice(error, _plain(error.format_message()), context)
        end = "" if message.endswith((".", "?", "?)")) else "."
        hint = f"{message}{end} See `{context.command_path} --help`." if context else message
        return _fail(hint, USAGE, 2, as_json)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTION, INTERRUPTED, as_json)
    except ReaderGone:
        _forget_stdout()
        return 0
    except Exception as error:  # nothing may reach a user as a traceback
        _debug(error)
        name = type(error).__name__
        text = f"internal error: {name}: {error} (ZCRAWL_DEBUG=1 shows where)"
        return _fail(text, INTERNAL, 1, as_json)


def _with_advice(error: click.ClickException, message: str, context: click.Context | None) -> str:
    """Return the message with advice about an unknown option or argument."""
    command = context.command_path.removeprefix("zcrawl").strip() if context else ""
    if isinstance(error, click.NoSuchOption):
        if context is not None and not command:
            name = error.option_name
            return (
                f"No such option {name!r} before a command; write it after: `zcrawl crawl {name}`"
            )
        if error.option_name == "--format" and command in ("crawl", "submit"):
            return "No such option '--format'. The ending of --out FILE sets the format."
    start = "Got unexpected extra argument"
    if message.startswith(start) and "(" in message:
        extra = message.partition("(")[2].rpartition(")")[0]
        hint = EXTRA_ARGUMENT.get(command, "")
        return f"{extra!r} is too much here.{hint.format(extra)}"
    return message


def _plain(message: str) -> str:
    """Rewrite messages of click for users who do not program."""
    import re

    message = message.replace("is not a valid integer range", "is not a whole number")
    message = message.replace("is not a valid float range", "is not a number")
    message = message.replace("is not a valid integer", "is not a whole number")
    message = message.replace("is not a valid float", "is not a number")
    message = re.sub(r"is not in the range x>=([\d.]+)", r"is too small; at least \1", message)
    return re.sub(
        r"is not in the range ([\d.]+)<=x<=([\d.]+)", r"is not allowed; from \1 to \2", message
    )


def _fail(message: str, code: str, exit_code: int, as_json: bool) -> int:
    from zcrawl.cli import output  # `--help` needs none of it

    line = " ".join(message.split())
    try:
        if as_json:
            output.print_json_text(json.dumps({"error": {"code": code, "message": line}}))
    except (output.StdoutFailed, BrokenPipeError):
        as_json = False  # stdout failed, so the error goes to stderr
    if not as_json:
        output.note(f"zcrawl: {line} [{code}]")
    return exit_code


def _debug(error: Exception) -> None:
    if os.environ.get("ZCRAWL_DEBUG") == "1":
        raise error


def _show_trace(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback with ZCRAWL_DEBUG, cleaned, because it may quote text of a page."""
    import traceback

    from zcrawl.cli import output

    output.note_lines("".join(traceback.format_exception(kind, error, trace)).rstrip())


def _forget_stdout() -> None:
    """Point stdout to nothing, so that the last flush of the interpreter does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
