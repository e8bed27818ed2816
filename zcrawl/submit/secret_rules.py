"""Check the name, value and release of a stored secret. Pure; used by the desk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zcrawl.errors import RefusedError
from zcrawl.model.reasons.cluster import BAD_REQUEST
from zcrawl.text.commands import parse_command_pattern
from zcrawl.text.patterns import lazy_pattern

MOST_SECRETS: Final = 1_000
MOST_VALUE: Final = 65_536  # characters
MOST_ENTRIES: Final = 100  # hosts, or commands
_NAME: Final = lazy_pattern(r"[A-Za-z0-9_]{1,64}")
_HOST: Final = lazy_pattern(r"(\*\.)?[^\s/*@]{1,300}")


def check_secret_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise RefusedError(
            f"{name[:70]!r} is not a name of a secret; use 1 to 64 letters, digits and _",
            code=BAD_REQUEST,
        )


def check_secret_value(value: str) -> None:
    """Refuse a value that cannot be sent. The error does not contain it."""
    if not value or len(value) > MOST_VALUE:
        raise RefusedError(
            f"the value of a secret has 1 to {MOST_VALUE} characters", code=BAD_REQUEST
        )
    if "\0" in value:
        raise RefusedError("the value of a secret cannot contain a NUL", code=BAD_REQUEST)


def check_release(hosts: Iterable[str], commands: Iterable[str]) -> None:
    """Check the patterns of hosts and commands that may get a secret."""
    hosts, commands = list(hosts), list(commands)
    if len(hosts) > MOST_ENTRIES or len(commands) > MOST_ENTRIES:
        raise RefusedError(f"a secret has at most {MOST_ENTRIES} hosts", code=BAD_REQUEST)
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise RefusedError(
                f"{host[:80]!r} is not a host; write name, name:port or *.name", code=BAD_REQUEST
            )
    for command in commands:
        try:
            parse_command_pattern(command)
        except ValueError as error:
            raise RefusedError(f"commands: {error}", code=BAD_REQUEST) from None
