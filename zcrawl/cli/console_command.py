"""`zcrawl console`: the operator's screen, over whatever cluster the data folder or the
configuration names.

The console is a package of its own, loaded by its name when this command runs: zcrawl works
without it, and without Textual.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.errors import UsageError

if TYPE_CHECKING:
    from zcrawl.mesh.ports import Endpoints


@click.command("console", cls=Command)
@click.option("--readonly", is_flag=True, help="Look, and change nothing.")
@click.option("--snapshot", is_flag=True, help="Print one screen as text, and end.")
@common
def console_command(settings: Settings, readonly: bool, snapshot: bool) -> int:
    """Watch the cluster live, and act on it."""
    nobody = f"no cluster runs in {settings.data}; `zcrawl up --data {settings.data}` starts one"
    target: dict[str, Any] = {"name": settings.data.name, "nobody": nobody}
    find = masters_in(settings.data)
    console = load_console()
    if snapshot:
        return int(console.print_snapshot(find, **target))
    if not sys.stdout.isatty():
        raise UsageError("the console needs a terminal; --snapshot prints one screen as text")
    return int(console.run(find, **target, readonly=readonly))


def masters_in(data: Path) -> Callable[[], list[Endpoints]]:
    """How to look up the master of a data folder, again and again."""

    def find() -> list[Endpoints]:
        from zcrawl.roles.client import is_live
        from zcrawl.roles.place import read_mesh_file

        found = read_mesh_file(data) if is_live(data) else None
        return [found.endpoints] if found is not None else []

    return find


def load_console() -> Any:
    try:
        return importlib.import_module("console.main")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the console needs {error.name}, which is not installed: "
            "pip install 'zcrawl[console]'",
            code="no_console",
        ) from None
