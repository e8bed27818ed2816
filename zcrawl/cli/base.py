"""Code that all commands share: lazy loading, common options, and settings.

Start-up is the reason for most of this file. `zcrawl --help` imports click and nothing else when
it is piped; on a terminal rich-click draws it, which costs about 0.1 s and is spent for help only.
A command's module is imported when the command is run, its short help is in `main.COMMANDS`.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zcrawl.cli.text_files import UnreadableText, read_text_file
from zcrawl.errors import ConfigError, UsageError
from zcrawl.model.reasons.usage import DATA_UNWRITABLE
from zcrawl.text.spelling import near_names

if TYPE_CHECKING:
    from zcrawl.config import Config, Resolved
    from zcrawl.fetch.keyring import JobRights
    from zcrawl.model.spec import Retention, ScheduleDefaults
    from zcrawl.roles.config_references import ReferenceOpener
    from zcrawl.submit.output_rights import OutputRights
    from zcrawl.telemetry.logs.files import EventLog
    from zcrawl.text.references import Reference


STDERR = 2
# Names that other programs use for a command.
OTHER_NAMES = {
    "check": "doctor",
    "fetch": "test",
    "help": "--help",
    "kill": "cancel",
    "list": "jobs",
    "ls": "jobs",
    "new": "init",
    "remove": "delete",
    "rm": "delete",
    "run": "crawl",
    "serve": "up",
    "show": "job",
    "start": "up",
    "status": "jobs",
    "stop": "cancel",
    "top": "console",
    "version": "--version",
}


def wants_rich_help(args: Sequence[str], terminal: bool) -> bool:
    return terminal and ("--help" in args or not args)


if TYPE_CHECKING or not wants_rich_help(
    sys.argv[1:], sys.stdout is not None and sys.stdout.isatty()
):
    from click import Command as Command
    from click import Group as Group
else:
    from rich_click import RichCommand as Command
    from rich_click import RichGroup as Group


class ReaderGone(Exception):
    """The reader of stdout is gone. Not an OSError, because click handles those itself."""


class LazyGroup(Group):
    """A group whose commands are named in a table and imported when one of them is run."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table  # name → (module, short help)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a placeholder with name and short help, which is all that `--help` shows."""
        if cmd_name not in self.table:
            return None
        return Command(cmd_name, short_help=self.table[cmd_name][1])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.table:
            ctx.fail(f"No such command {args[0]!r}.{self._meant(args[0])}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, self.load(name) if name and command else command, rest

    def _meant(self, word: str) -> str:
        """Return a hint about the command that the user probably meant."""
        if "crawl" in self.table and ("://" in word or word.endswith(".toml")):
            return f" To crawl it: `zcrawl crawl {word}`."
        close = near_names(word, self.table)
        name = close[0] if close else OTHER_NAMES.get(word, "")
        exists = name in self.table or name.startswith("--")
        return f" Did you mean {name!r}?" if name and exists else ""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # click would exit with 1, but it is not an error if `head` has read enough lines.
            raise ReaderGone from None

    def load(self, name: str) -> click.Command:
        module = importlib.import_module(self.table[name][0])
        command = getattr(module, f"{name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command


class Settings(NamedTuple):
    """The combined values of the shared options and the configuration."""

    data: Path
    json: bool
    config: Config
    resolved: Resolved
    config_file: str | None = None  # the value of --config
    data_named: bool = False  # --data was given: use this folder even if a cluster is configured

    @property
    def in_cluster(self) -> bool:
        """Return whether commands talk to the cluster of the configuration."""
        return self.config.is_cluster and not self.data_named

    @property
    def place(self) -> str:
        """Return the name of the cluster, or the data folder, for messages."""
        return f"the cluster {self.config.cluster.name}" if self.in_cluster else str(self.data)

    def blobs(self) -> str:
        """Return the place where a cluster on this machine stores bodies."""
        from zcrawl.roles.blobs import blobs_place

        return blobs_place(self.config, self.data, cluster=False)

    def worker_limits(self) -> dict[str, Any]:
        """Return the limits of workers and jobs, as arguments of EmbeddedCluster."""
        from zcrawl.roles.vault import read_vault

        worker = self.config.worker
        return {
            "slots": worker.slots,
            "task_slots": worker.task_slots,
            "labels": worker.labels,
            "rate": worker.rate,
            "bandwidth": worker.bandwidth,
            "stuck_after": worker.stuck_after,
            "rights": self.job_rights(),
            "outputs": self.output_rights(),
            "retention": self.retention(),
            "label_limits": self.config.tasks.label_limits,
            "schedule_defaults": self.schedule_defaults(),
            "vault": read_vault(self.config, private=True),
        }

    def job_rights(self) -> JobRights:
        """Return what jobs of this machine's own user may use."""
        from zcrawl.roles.cluster import job_rights

        return job_rights(self.config, owner=True)

    def output_rights(self) -> OutputRights:
        """Return where jobs of this machine's own user may write."""
        from zcrawl.submit.output_rights import OutputRights

        return OutputRights(self.config.outputs.allow, owner=True)

    def retention(self) -> Retention:
        """Return which runs are kept of jobs that do not say it."""
        from zcrawl.roles.cluster import retention_defaults

        return retention_defaults(self.config)

    def schedule_defaults(self) -> ScheduleDefaults:
        """Return what counts for schedules of jobs that do not say it."""
        from zcrawl.roles.cluster import schedule_defaults

        return schedule_defaults(self.config)

    def named(self, node: str | None) -> Config:
        """Return the configuration with the node's name from a flag."""
        return self.config if node is None else self.again(node)

    def again(self, node: str | None) -> Config:
        """Read the configuration again and return it."""
        data = str(self.data) if self.data_named else None
        return load_settings(self.config_file, {"cluster.id": node, "data.dir": data}).config

    def config_files(self) -> list[str]:
        """Return the configuration file, or an empty list if there is none."""
        text, source = read_config(self.config_file)
        return [str(Path(source).absolute())] if text is not None else []

    def require_cluster(self) -> None:
        if not self.config.is_cluster:
            raise ConfigError(
                "no cluster is configured: set consul.address, or cluster.masters "
                "(configs/worker.toml is an example); `zcrawl up` needs neither"
            )

    def daemon_log(self, source: str) -> EventLog:
        """Return a log on standard error, in the form of log.format."""
        from zcrawl.telemetry.logs.files import EventLog

        log = self.config.log
        return EventLog(STDERR, source, as_text=log.format == "text", level=log.level)

    def workers(self, flag: int | None) -> int:
        """Return the number of worker processes: flag, configuration, or one per core."""
        if flag is not None:
            return flag
        return self.config.worker.processes or len(os.sched_getaffinity(0))


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --data, --json and --config, and give the command a `settings` argument."""

    @click.option("--config", "config_file", metavar="FILE", help="Configuration, a TOML file.")
    @click.option("--data", metavar="DIR", help="Data folder. [default: ./zcrawl-data]")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
    @functools.wraps(function)
    def wrapper(
        *args: Any, config_file: str | None, data: str | None, as_json: bool, **kwargs: Any
    ) -> Any:
        settings = load_settings(config_file, {"data.dir": data}, as_json)
        check_data_folder(settings, "--data" if data is not None else "data.dir")
        return function(*args, settings=settings, **kwargs)

    return wrapper


def check_data_folder(settings: Settings, origin: str) -> None:
    """Raise UsageError if the data folder is a file, or may not be read. It need not exist.

    `origin` is what named it: a flag or a key."""
    data = settings.data
    try:
        with os.scandir(data):
            pass
    except FileNotFoundError:
        return
    except NotADirectoryError:
        file = next(place for place in (data, *data.parents) if place.exists())
        inner = "" if file == data else f" is not a folder: {file}"
        raise UsageError(
            f"{origin} {data}{inner} is a file; name a folder", code=DATA_UNWRITABLE
        ) from None
    except OSError as error:
        if settings.in_cluster:
            return  # only the daemons of a cluster use it, and they report it when they open it
        raise UsageError(
            f"{origin} {data}: cannot be read: {error.strerror}. Use a folder of your own with "
            "--data DIR, or work as the user who owns this one",
            code=DATA_UNWRITABLE,
        ) from None


run_option = click.option(
    "--run", type=click.IntRange(1), metavar="N", help="A run's number. [default: the newest]"
)


def load_settings(
    config_file: str | None, flags: Mapping[str, Any], as_json: bool = False
) -> Settings:
    from zcrawl.config import resolve

    text, source = read_config(config_file)
    resolved = resolve(text, source, os.environ, flags, _open_references())
    data = Path(resolved.config.data.dir).expanduser().resolve()
    named = flags.get("data.dir") is not None
    return Settings(data, as_json, resolved.config, resolved, config_file, named)


def _open_references() -> Callable[[Reference, str], str]:
    """Return what opens the references of one reading of the configuration."""
    openers: list[ReferenceOpener] = []

    def open_reference(reference: Reference, key_file: str) -> str:
        if not openers:  # few configurations have references
            from zcrawl.roles.config_references import ReferenceOpener

            openers.append(ReferenceOpener(os.environ))
        return openers[0].open(reference, key_file)

    return open_reference


def read_config(config_file: str | None) -> tuple[str | None, str]:
    """Return text and name of the configuration file. A file named by --config must exist."""
    named = config_file or os.environ.get("ZCRAWL_CONFIG")
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    places = [Path(named)] if named else [Path("zcrawl.toml"), home / "zcrawl" / "config.toml"]
    for place in places:
        try:
            return read_text_file(place), str(place)
        except FileNotFoundError:
            if named:
                by = "--config" if config_file else "ZCRAWL_CONFIG"
                raise ConfigError(f"{by} {place}: no such file") from None
        except UnreadableText as error:
            raise ConfigError(f"{place}: {error}") from None
    return None, "configuration"
