"""`zcrawl secret`: store, list and delete secrets of jobs; seal values of a configuration.

A value comes from a prompt or from stdin, never from the command line, which other users can see.
No command prints a value.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from zcrawl.cli.base import Command, Group, Settings, common
from zcrawl.errors import UsageError

MOST_VALUE = 65_536  # bytes


@click.group("secret", cls=Group)
def secret_command() -> None:
    """Store secrets of jobs, sealed with a key.

    A job names a stored secret as ${secret:NAME}. It goes only to its hosts and commands.
    """


@secret_command.command("set", cls=Command)
@click.argument("name")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="May get it: name, *.name.")
@click.option("--command", "commands", multiple=True, metavar="LINE", help="May get it.")
@click.option("--keep", is_flag=True, help="Keep the value; change only who may get it.")
@common
def set_(
    settings: Settings, name: str, hosts: tuple[str, ...], commands: tuple[str, ...], keep: bool
) -> int:
    """Store a secret. The value is typed twice at a prompt, or read from stdin.

    Without --host and --command, a secret that is stored already keeps those that it has.
    """
    args: dict[str, Any] = {"secret": name}
    args |= {} if keep else {"value": _read_value(name)}
    args |= {"hosts": list(hosts)} if hosts or commands else {}
    args |= {"commands": list(commands)} if hosts or commands else {}
    reply = _ask(settings, "secret_set", args)
    receivers = ", ".join([*reply["hosts"], *reply["commands"]])
    text = f"goes to {receivers}" if receivers else "goes nowhere yet: name hosts with --host"
    return _told(settings, reply, f"{name} is stored; it {text}")


@secret_command.command("list", cls=Command)
@common
def list_(settings: Settings) -> int:
    """List the stored secrets, without their values."""
    from zcrawl.cli import output

    rows = _ask(settings, "secret_list", {})["secrets"]
    if settings.json:
        output.print_json({"secrets": rows})
        return 0
    output.table(
        ("secret", "hosts", "commands", "key", "by", "problem"),
        [
            (
                row["secret"],
                ", ".join(row["hosts"]),
                ", ".join(row["commands"]),
                row["key"],
                row["updated_by"],
                row["problem"],
            )
            for row in rows
        ],
    )
    return 0


@secret_command.command("delete", cls=Command)
@click.argument("name")
@common
def delete(settings: Settings, name: str) -> int:
    """Delete a stored secret. Runs that name it wait."""
    return _told(settings, _ask(settings, "secret_delete", {"secret": name}), f"{name} is deleted")


@secret_command.command("rotate", cls=Command)
@common
def rotate(settings: Settings) -> int:
    """Seal all stored secrets with the newest key. Then old keys can go."""
    reply = _ask(settings, "secret_rotate", {})
    return _told(settings, reply, f"{len(reply['rotated'])} secrets are sealed with the newest key")


@secret_command.command("key", cls=Command)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def key(file: Path, as_json: bool) -> int:
    """Add a new key to FILE (mode 600), for vault.key_file. The key is not printed, only its id."""
    from zcrawl.cli import output
    from zcrawl.roles.vault import add_key

    key_id = add_key(file)
    if as_json:
        output.print_json({"key": key_id, "file": str(file)})
    else:
        output.data(key_id)
    return 0


@secret_command.command("seal", cls=Command)
@click.option("--for", "public", required=True, metavar="PUBLIC", help="The node's public key.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def seal(public: str, as_json: bool) -> int:
    """Print a value as ${sealed:…} for the configuration of the node with this public key."""
    from zcrawl.cli import output
    from zcrawl.mesh.security import check_key
    from zcrawl.text.sealing import seal_for

    key = check_key(public, "--for")
    sealed = f"${{sealed:{seal_for(key, _read_value('value'), os.urandom(32))}}}"
    if as_json:
        output.print_json({"sealed": sealed})
    else:
        output.data(sealed)
    return 0


def _read_value(name: str) -> str:
    """Return a value from a prompt, or from stdin without the newline at its end."""
    if sys.stdin.isatty():
        value = click.prompt(name, hide_input=True, confirmation_prompt=True, err=True)
        return str(value)
    data = sys.stdin.buffer.read(MOST_VALUE + 1)
    if len(data) > MOST_VALUE:
        raise UsageError(f"the value on stdin is larger than {MOST_VALUE} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsageError("the value on stdin is not UTF-8 text") from None
    text = text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
    if not text:
        raise UsageError(f"there is no value on stdin: printf %s VALUE | zcrawl secret set {name}")
    return text


def _told(settings: Settings, reply: dict[str, Any], text: str) -> int:
    from zcrawl.cli import output

    if settings.json:
        output.print_json(reply)
    else:
        output.note(text)
    return 0


def _ask(settings: Settings, op: str, args: dict[str, Any]) -> dict[str, Any]:
    from zcrawl.cli import connect
    from zcrawl.runtime.loop import run_async

    async def ask() -> dict[str, Any]:
        async with connect.for_actions(settings) as running:
            return await running(op, args)

    return run_async(ask())
