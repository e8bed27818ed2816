"""`zcrawl keys`: make and show key files, write the masters' list. Never prints a secret."""

from __future__ import annotations

from pathlib import Path

import click

from zcrawl.cli.base import Command, Group

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


@click.group("keys", cls=Group)
def keys_command() -> None:
    """Make and allow the keys of an encrypted mesh.

    All masters share one key file. Every worker and client has its own key file, and its public
    key is in the masters' list.
    """


@keys_command.command("new", cls=Command)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_JSON
def new(file: Path, as_json: bool) -> int:
    """Write a new key pair to FILE (mode 600) and print its public key."""
    from zcrawl.mesh.sockets.keys import new_pair, write_key_file

    pair = new_pair()
    write_key_file(file, pair)
    _print_public(pair.public, file, as_json)
    return 0


@keys_command.command("show", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@_JSON
def show(file: Path, as_json: bool) -> int:
    """Print the public key of a key file, after checking the file."""
    from zcrawl.mesh.sockets.keys import read_key_file

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
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="What it may do: worker, viewer, submitter, operator, admin or gateway; may be repeated.",
)
@click.option(
    "--names",
    default="",
    metavar="PATTERN",
    help="Ids of the workers that share this key, e.g. 'pool-*'. [default: its name]",
)
@click.option("--watch", is_flag=True, help="The same as --role viewer (old).")
@_JSON
def allow(
    public: str,
    name: str | None,
    file: Path,
    roles: tuple[str, ...],
    names: str,
    watch: bool,
    as_json: bool,
) -> int:
    """Add a PUBLIC key to the masters' list; running masters read it again by themselves."""
    from zcrawl.cli import output
    from zcrawl.mesh.security import DEFAULT_ROLES, UNNAMED, WATCH, check_key, parse_role
    from zcrawl.mesh.sockets.keys import AllowList

    key = check_key(public, "PUBLIC")
    words = [word for text in (*roles, *([WATCH] if watch else [])) for word in text.split(",")]
    given = sorted({parse_role(word, "--role") for word in words})
    AllowList(file).add(key, name or UNNAMED, given, names.split(",") if names else ())
    if as_json:
        shown = {"public": key, "name": name or UNNAMED, "role": ",".join(given), "names": names}
        output.print_json({**shown, "file": str(file)})
    else:
        may = " and ".join(given or sorted(DEFAULT_ROLES))
        hint = "" if given else "; choose one with --role, it probably does not need both"
        output.note(f"{file}: {name or UNNAMED} may join as {may}{hint}")
    return 0


@keys_command.command("revoke", cls=Command)
@click.argument("which", metavar="NAME|PUBLIC")
@click.option(
    "--file",
    "file",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The masters' list of allowed keys.",
)
@_JSON
def revoke(which: str, file: Path, as_json: bool) -> int:
    """Remove a key from the masters' list, by its name or its public key.

    A name may have several keys: all of them are removed. Running masters cut them off within 2 s.
    Do it on every master.
    """
    from zcrawl.cli import output
    from zcrawl.mesh.sockets.keys import AllowList

    removed = AllowList(file).revoke(which)
    if as_json:
        keys = [{"public": key, "name": line.name} for key, line in removed.items()]
        output.print_json({"removed": keys, "file": str(file)})
    for key, line in {} if as_json else removed.items():
        output.note(f"{file}: {line.name} ({key}) may not join any more; revoke it on each master")
    return 0


def _print_public(public: str, file: Path, as_json: bool) -> None:
    from zcrawl.cli import output

    if as_json:
        output.print_json({"public": public, "file": str(file)})
    else:
        output.data(public)
