"""`zcrawl token`: make, list and revoke API tokens.

The token is made here and printed once on stdout; only its digest leaves this process.
"""

from __future__ import annotations

import secrets
from typing import Any

import click

from zcrawl.cli.base import Command, Group, Settings, common

_ROLES = ("viewer", "submitter", "operator", "admin")
FIRST_ADMIN = "admin"  # the name of the user that --admin makes, if none is named


@click.group("token", cls=Group)
def token_command() -> None:
    """Make, list and revoke API tokens, for programs that use the REST gateway."""


@token_command.command("create", cls=Command)
@click.option("--user", metavar="NAME", help="Whose token it is. [default: your own]")
@click.option(
    "--role", type=click.Choice(_ROLES), help="At most the user's role. [default: submitter]"
)
@click.option("--days", type=click.FloatRange(0), default=0.0, help="It expires after so many.")
@click.option(
    "--admin",
    is_flag=True,
    help="Make the first admin: add the user (default name: admin) and give it a token.",
)
@common
def create(
    settings: Settings, user: str | None, role: str | None, days: float, *, admin: bool
) -> int:
    """Make an API token and print it once; it cannot be shown again."""
    from zcrawl.cli import output
    from zcrawl.cli.people import Ask, moment, with_cluster
    from zcrawl.errors import UsageError
    from zcrawl.text.tokens import (
        SECRET_BYTES,
        VISIBLE,
        format_token,
        prefix_of,
        token_digest,
    )

    if admin and role not in (None, "admin"):
        raise UsageError("--admin makes a token with the role admin; leave out --role")
    token = format_token(secrets.token_bytes(VISIBLE), secrets.token_bytes(SECRET_BYTES))
    args: dict[str, Any] = {
        "user": user or (FIRST_ADMIN if admin else ""),
        "role": role or ("admin" if admin else "submitter"),
        "days": days,
        "prefix": prefix_of(token),
        "digest": token_digest(token),
    }

    async def work(ask: Ask) -> dict[str, Any]:
        if admin:
            await _add_admin(ask, args["user"])
        return await ask("token_create", args)

    view = with_cluster(settings, work)["token"]
    if settings.json:
        output.print_json({**view, "token": token})
        return 0
    output.data(token)
    until = f"until {moment(view['expires_at'])} UTC" if view["expires_at"] else "without an end"
    output.note(
        f"a token of {view['user']} with the role {view['role']}, {until}. It is shown only now; "
        f"`zcrawl token revoke {view['prefix']}` ends it"
    )
    return 0


async def _add_admin(ask: Any, name: str) -> None:
    """Add the admin, unless it exists."""
    from zcrawl.errors import RefusedError
    from zcrawl.model.reasons.cluster import USER_EXISTS

    try:
        await ask("user_add", {"name": name, "role": "admin"})
    except RefusedError as error:
        if error.code != USER_EXISTS:
            raise


@token_command.command("list", cls=Command)
@click.option("--user", metavar="NAME", default="", help="Only those of this user.")
@common
def list_tokens(settings: Settings, user: str) -> int:
    """List tokens: your own, or as an admin those of all."""
    from zcrawl.cli import output
    from zcrawl.cli.people import moment, request

    reply = request(settings, "tokens", {"user": user})
    if settings.json:
        output.print_json(reply)
        return 0
    rows = [
        (
            row["prefix"],
            row["user"],
            row["role"],
            moment(row["created_at"]),
            row["created_by"],
            moment(row["expires_at"]) or "never",
            moment(row["last_used_at"]) or "never",
            f"revoked {moment(row['revoked_at'])}" if row["revoked_at"] else "",
        )
        for row in reply["tokens"]
    ]
    head = ("token", "user", "role", "created", "by", "expires", "last used", "")
    output.table(head, rows)
    return 0


@token_command.command("revoke", cls=Command)
@click.argument("prefix")
@common
def revoke(settings: Settings, prefix: str) -> int:
    """Revoke the token with this PREFIX (zc_ab12cd34); gateways refuse it within 2 s."""
    from zcrawl.cli import output
    from zcrawl.cli.people import request
    from zcrawl.text.tokens import prefix_of

    # Also the whole token: its secret part is not sent.
    reply = request(settings, "token_revoke", {"prefix": prefix_of(prefix) or prefix})
    if settings.json:
        output.print_json(reply)
        return 0
    token = reply["token"]
    already = "" if reply["changed"] else " already"
    output.note(f"{token['prefix']} of {token['user']} is{already} revoked")
    return 0
