"""`zcrawl console`: the operator's screen, for the cluster of the data folder or of the
configuration.

The console is a package of its own, loaded by its name when this command runs: zcrawl works
without it, and without Textual.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zcrawl.cli.base import Command, Settings, common, load_settings
from zcrawl.errors import UsageError
from zcrawl.model.reasons.usage import NO_CONSOLE, NO_SUCH_CLUSTER

if TYPE_CHECKING:
    from zcrawl.roles.watching import WatchTarget


@click.command("console", cls=Command)
@click.option("--readonly", is_flag=True, help="Allow no changes.")
@click.option(
    "--cluster", metavar="NAME", help="A cluster that [console] in the configuration names."
)
@click.option(
    "--snapshot",
    metavar="PAGE",
    is_flag=False,
    flag_value="overview",
    help="Print one page as text, and end. [default: overview]",
)
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE", help="Record all messages."
)
@click.option("--replay", type=click.Path(path_type=Path), metavar="FILE", help="Show a recording.")
@click.option("--web", is_flag=True, help="Serve the console to a browser on this machine.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8040,
    metavar="N",
    help="For --web. [default: 8040; 0: any]",
)
@common
def console_command(
    settings: Settings,
    readonly: bool,
    cluster: str | None,
    snapshot: str | None,
    record: Path | None,
    replay: Path | None,
    web: bool,
    port: int,
) -> int:
    """Watch the cluster live, and act on it."""
    ways = {"--snapshot": snapshot, "--record": record, "--replay": replay, "--web": web or None}
    chosen = [flag for flag, given in ways.items() if given is not None]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} cannot be used together; give one")
    targets = targets_of(settings, cluster)
    console = load_console("console.main")
    if snapshot is not None:
        return int(console.print_snapshot(next(iter(targets.values())), snapshot))
    if web:
        arguments = _without_web(sys.argv[1:])
        return int(load_console("console.web").serve(arguments, port))
    if not sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ:  # set for a browser
        raise UsageError("the console needs a terminal; --snapshot prints one page as text")
    config = settings.config.console
    return int(console.run(targets, config, readonly=readonly, record=record, replay=replay))


def targets_of(settings: Settings, chosen: str | None) -> dict[str, WatchTarget]:
    """Return the clusters that can be watched, by name; the first one is shown."""
    from zcrawl.roles.watching import in_folder, of_cluster

    flags = f"--config {shlex.quote(settings.config_file)}" if settings.config_file else ""
    if settings.data_named:
        flags = f"--data {shlex.quote(str(settings.data))}"
    if settings.in_cluster:
        here = of_cluster(settings.config, flags)
    else:
        here = in_folder(settings.data, flags)
    targets = {here.name: here}
    for name, place in settings.config.console.clusters.items():
        path = Path(place).expanduser()
        flags = (
            f"--config {shlex.quote(place)}"
            if path.suffix == ".toml"
            else f"--data {shlex.quote(place)}"
        )
        if path.suffix != ".toml":
            targets[name] = in_folder(path.resolve(), flags)
            continue
        other = load_settings(str(path), {})
        target = (
            of_cluster(other.config, flags) if other.in_cluster else in_folder(other.data, flags)
        )
        targets[name] = target
    if chosen is None:
        return targets
    if chosen not in targets:
        names = ", ".join(targets)
        raise UsageError(f"no cluster {chosen!r}; known: {names}", code=NO_SUCH_CLUSTER)
    return {chosen: targets[chosen], **targets}


def _without_web(arguments: list[str]) -> list[str]:
    """Return the command line that runs the console for one browser."""
    kept, skip = [], False
    for argument in arguments:
        if argument == "--port":
            skip = True
        elif skip:
            skip = False
        elif argument != "--web" and not argument.startswith("--port="):
            kept.append(argument)
    return kept


def load_console(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = "'zcrawl[web]'" if "web" in module else "zcrawl"
        raise UsageError(
            f"the console needs {error.name}, which is not installed: pip install {package}",
            code=NO_CONSOLE,
        ) from None
