"""`zcrawl keys`: makes and shows key files, writes the masters' list. Prints no secret, ever."""

from __future__ import annotations

from pathlib import Path

import click

from zcrawl.cli.base import Command, Group

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


@click.group("keys", cls=Group)
def keys_command() -> None:
    """Make and allow the keys of an encrypted mesh.

    All masters share one key file. Every worker and client has its own, and the masters' list
    holds the public half of it.
    """


@keys_command.command("new", cls=Command)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_JSON
def new(file: Path, as_json: bool) -> int:
    """Write a new key pair to FILE (mode 600) and print its public key."""
    from zcrawl.mesh.keys_zmq_file import new_pair, write_key_file

    pair = new_pair()
    write_key_file(file, pair)
    _print_public(pair.public, file, as_json)
    return 0


@keys_command.command("show", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@_JSON
def show(file: Path, as_json: bool) -> int:
    """Print the public key of a key file, after checking the file."""
    from zcrawl.mesh.keys_zmq_file import read_key_file

    _print_public(read_key_file(file).public, file, as_json)
    return 0


@keys_command.command("allow", cls=Command)
@click.argument("public")
@click.option("--name", default=None, help="Who has this key, for people. [default: unnamed]")
@click.option(
    "--file",
    "file",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The masters' list of allowed keys.",
)
@click.option("--watch", is_flag=True, help="It may look, and change nothing.")
@_JSON
def allow(public: str, name: str | None, file: Path, watch: bool, as_json: bool) -> int:
    """Add a PUBLIC key to the masters' list; running masters read it again by themselves."""
    from zcrawl.cli import output
    from zcrawl.mesh.keys_zmq_file import AllowList
    from zcrawl.mesh.security import UNNAMED, WATCH, check_key

    key = check_key(public, "PUBLIC")
    role = WATCH if watch else ""
    AllowList(file).add(key, name or UNNAMED, role)
    if as_json:
        told = {"public": key, "name": name or UNNAMED, "role": role, "file": str(file)}
        output.print_json(told)
    else:
        output.note(f"{file}: {name or UNNAMED} may {'watch' if watch else 'join'}")
    return 0


def _print_public(public: str, file: Path, as_json: bool) -> None:
    from zcrawl.cli import output

    if as_json:
        output.print_json({"public": public, "file": str(file)})
    else:
        output.data(public)
