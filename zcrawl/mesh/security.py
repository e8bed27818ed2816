"""Who may join the mesh: keys, the masters' allow-list, and what may be bound without them. Pure.

All masters of a cluster share one key pair, whose public half every node knows; each worker and
client has a pair of its own, whose public half stands in the masters' allow-list. Keys are written
as 64 hexadecimal digits and not as ZeroMQ's Z85, which has quotes' and comments' enemies in it
(`#`, `$`, `&`, a leading `-`) and cannot be pasted into a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from zcrawl.errors import ConfigError
from zcrawl.mesh.address import parse_endpoint
from zcrawl.mesh.ports import Endpoints

_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
UNNAMED = "unnamed"
MASTERS = "masters"  # the name under which masters let each other in
WATCH = "watch"  # the role of who may look and change nothing; a line without a role may do all
_WATCHER = "watch:"  # begins the name of such a one; no name in the list holds a colon
REPORTS_DOMAIN = b"zcrawl-reports"  # where workers' results come in: nothing for a watcher
ZAP_VERSION = b"1.0"
_ZAP_FIELDS = 7  # version, request id, domain, address, identity, mechanism, key


class KeyPair(msgspec.Struct, frozen=True):
    """One node's own keys. The secret half shows up in no representation."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r}, secret=…)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("public", self.public), ("secret", "…")]


class MeshKeys(msgspec.Struct, frozen=True):
    """What an end of the mesh needs for encryption. A master's own public key is `server`."""

    own: KeyPair
    server: str  # the masters' public key

    def check_master(self) -> None:
        if self.own.public != self.server:
            raise ConfigError(
                f"this master's public key is {self.own.public}, but the cluster's is "
                f"{self.server}: all masters share one key file",
                code="bad_key",
            )


def check_key(text: str, what: str = "key") -> str:
    key = text.strip().lower()
    if not _KEY.fullmatch(key):
        # The text is not repeated: a secret may have been pasted by mistake.
        raise ConfigError(f"{what}: a key is 64 hexadecimal digits", code="bad_key")
    return key


def check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(
            f"{text!r} is no name for a key: 1 to 64 of letters, digits, . _ @ -", code="bad_name"
        )
    return text


# ---------------------------------------------------------------- the texts of files


def key_file_text(pair: KeyPair) -> str:
    return (
        "# A zcrawl mesh key. Whoever reads the secret can act as this node.\n"
        f'public = "{pair.public}"\n'
        f'secret = "{pair.secret}"\n'
    )


def parse_key_file(text: str, source: str) -> KeyPair:
    import tomllib  # 5 ms of a start without such a file

    try:
        pair = msgspec.convert(tomllib.loads(text), KeyPair)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError):
        # No detail: it could quote the secret.
        raise ConfigError(
            f"{source}: no key file; `zcrawl keys new` writes one", code="bad_key"
        ) from None
    return KeyPair(check_key(pair.public, source), check_key(pair.secret, source))


def watcher(name: str) -> str:
    """The name under which a key is let in that may only watch."""
    return _WATCHER + name


def is_watcher(name: str) -> bool:
    return name.startswith(_WATCHER)


def allow_list_line(public: str, name: str, role: str = "") -> str:
    return f"{public} {name} {role}".rstrip() + "\n"


def parse_allow_list(text: str, source: str) -> dict[str, str]:
    """Public key → name. One `KEY NAME` or `KEY NAME watch` a line; empty lines and those with #
    are left out."""
    allowed: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{source}:{number}"
        if len(words) > 3 or (len(words) == 3 and words[2] != WATCH):
            raise ConfigError(
                f"{where}: a line is KEY NAME, or KEY NAME {WATCH}", code="bad_allow_list"
            )
        key = check_key(words[0], where)
        if key in allowed:
            raise ConfigError(
                f"{where}: this key stands there already, as {allowed[key]}", code="bad_allow_list"
            )
        name = check_name(words[1]) if len(words) > 1 else UNNAMED
        allowed[key] = watcher(name) if len(words) == 3 else name
    return allowed


# ---------------------------------------------------------------- decisions


def check_bind(endpoints: Endpoints, keys: MeshKeys | None, insecure: bool = False) -> None:
    """Whoever reaches an open master can read all results and give it any work."""
    for endpoint in (endpoints.control, endpoints.reports, endpoints.events):
        address = parse_endpoint(endpoint)
        if address is None or address.is_loopback or keys is not None or insecure:
            continue
        raise ConfigError(
            f"{endpoint} can be reached from other machines, and no keys are configured: make "
            "some with `zcrawl keys new`, bind 127.0.0.1, or say insecure = true",
            code="insecure_bind",
        )


class Verdict(msgspec.Struct, frozen=True):
    """The answer to one ZAP request, and who asked."""

    reply: list[bytes]
    admitted: bool
    address: str
    key: str


def judge(request: Sequence[bytes], server: str, allowed: Mapping[str, str]) -> Verdict | None:
    """A peer's handshake, as ZAP (RFC 27) asks about it; None for what is no such question.

    The answer to a stranger is 400: unlike 300 it tells the peer why, so that its log can say it.
    """
    if len(request) != _ZAP_FIELDS or request[0] != ZAP_VERSION:
        return None
    _, id, domain, address, _, mechanism, credentials = request
    key = credentials.hex()
    name = MASTERS if key == server else allowed.get(key)
    admitted = mechanism == b"CURVE" and name is not None
    if admitted and is_watcher(name or "") and domain == REPORTS_DOMAIN:
        admitted = False
    outcome = [b"200", b"OK", (name or "").encode()] if admitted else [b"400", b"unknown key", b""]
    reply = [ZAP_VERSION, id, *outcome, b""]
    return Verdict(reply, admitted, address.decode("ascii", "replace"), key)
