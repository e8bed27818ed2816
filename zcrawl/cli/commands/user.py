"""`zcrawl user`: add, list and change the users of a cluster. Only an admin may."""

from __future__ import annotations

from typing import Any

import click

from zcrawl.cli.base import Command, Group, Settings, common

_ROLES = ("viewer", "submitter", "operator", "admin")
_RIGHTS = ("code", "shell", "private")
_right = click.option(
    "--right",
    "rights",
    multiple=True,
    type=click.Choice((*_RIGHTS, "none")),
    help="What a submitter may also do; may be given several times.",
)
_live_runs = click.option("--max-live-runs", type=click.IntRange(-1), help="-1: no limit.")
_queued = click.option("--max-queued", type=click.IntRange(-1), help="URLs; -1: no limit.")
_rate = click.option("--max-rate", type=click.FloatRange(-1), help="Requests/s; -1: no limit.")


@click.group("user", cls=Group)
def user_command() -> None:
    """Add, list and change users, who have API tokens and own jobs.

    Roles: viewer (reads everything), submitter (also submits, and acts on its own jobs), operator
    (also all jobs, nodes, configuration), admin (also users, tokens, secrets, audit).
    """


@user_command.command("add", cls=Command)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    default="submitter",
    show_default=True,
    help="What it may do.",
)
@_right
@_live_runs
@_queued
@_rate
@common
def add(settings: Settings, name: str, role: str, rights: tuple[str, ...], **limits: Any) -> int:
    """Add a user. It can do nothing without a token: `zcrawl token create --user NAME`."""
    args = {"name": name, "role": role, "rights": _given(rights), "quotas": _quotas({}, limits)}
    return _show(settings, "user_add", args)


@user_command.command("change", cls=Command)
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), default=None, help="What it may do.")
@_right
@_live_runs
@_queued
@_rate
@common
def change(
    settings: Settings, name: str, role: str | None, rights: tuple[str, ...], **limits: Any
) -> int:
    """Change a user's role, rights or limits; what is not named stays."""
    from zcrawl.errors import RefusedError
    from zcrawl.model.reasons.cluster import NO_SUCH_USER

    args: dict[str, Any] = {"name": name}
    if role is not None:
        args["role"] = role
    if rights:
        args["rights"] = _given(rights)
    if any(limit is not None for limit in limits.values()):
        users = {user["name"]: user for user in _users(settings)}
        if name not in users:
            raise RefusedError(f"there is no user {name!r}", code=NO_SUCH_USER)
        args["quotas"] = _quotas(users[name]["quotas"], limits)
    return _show(settings, "user_change", args)


@user_command.command("disable", cls=Command)
@click.argument("name")
@common
def disable(settings: Settings, name: str) -> int:
    """Let none of a user's tokens in any more, until it is enabled."""
    return _show(settings, "user_change", {"name": name, "disabled": True})


@user_command.command("enable", cls=Command)
@click.argument("name")
@common
def enable(settings: Settings, name: str) -> int:
    """Let a disabled user in again."""
    return _show(settings, "user_change", {"name": name, "disabled": False})


@user_command.command("list", cls=Command)
@common
def list_users(settings: Settings) -> int:
    """List all users."""
    from zcrawl.cli import output
    from zcrawl.cli.people import moment

    users = _users(settings)
    if settings.json:
        output.print_json({"users": users})
        return 0
    if not users:
        output.note("no users; `zcrawl token create --admin` makes the first one")
        return 0
    rows = [
        (
            user["name"],
            user["role"],
            ", ".join(user["rights"]),
            _limits_text(user["quotas"]),
            "disabled" if user["disabled"] else "",
            moment(user["created_at"]),
            user["created_by"],
        )
        for user in users
    ]
    output.table(("user", "role", "rights", "limits", "", "created", "by"), rows)
    return 0


def _users(settings: Settings) -> list[dict[str, Any]]:
    from zcrawl.cli.people import request

    users: list[dict[str, Any]] = request(settings, "users", {})["users"]
    return users


def _show(settings: Settings, op: str, args: dict[str, Any]) -> int:
    from zcrawl.cli import output
    from zcrawl.cli.people import request

    reply = request(settings, op, args)
    if settings.json:
        output.print_json(reply)
        return 0
    user = reply["user"]
    words = [f"{user['name']}: {user['role']}", *user["rights"], _limits_text(user["quotas"])]
    words.append("disabled" if user["disabled"] else "")
    output.note(", ".join(word for word in words if word))
    return 0


def _given(rights: tuple[str, ...]) -> list[str]:
    return [right for right in rights if right != "none"]


def _quotas(before: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """Return the quotas with the given limits; -1 lifts one."""
    names = {
        "max_live_runs": "most_live_runs",
        "max_queued": "most_queued",
        "max_rate": "most_rate",
    }
    given = {names[key]: value for key, value in limits.items() if value is not None}
    return before | {name: None if value < 0 else value for name, value in given.items()}


def _limits_text(quotas: dict[str, Any]) -> str:
    words = {"most_live_runs": "live runs", "most_queued": "queued URLs", "most_rate": "requests/s"}
    return ", ".join(
        f"≤ {value:g} {words[name]}" for name, value in quotas.items() if value is not None
    )
