"""Access to the mesh: keys, the masters' allow-list, and what may be bound without them. Pure.

A line of the list gives a key its name and its roles (`roles` says what those may send). Each
master enforces them on every message (`border`), so a changed line counts from the next one on.

All masters of a cluster share one key pair, whose public half every node knows; each worker and
client has a pair of its own, whose public half is in the masters' allow-list. Keys are written as
64 hexadecimal digits. ZeroMQ's own form (Z85) has characters such as `#`, `$` and `&` that break
shell commands and comments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from zcrawl.errors import ConfigError
from zcrawl.mesh.address import parse_endpoint
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.roles import PRINCIPALS, KeyRole
from zcrawl.model.reasons.cluster import BAD_ALLOW_LIST, BAD_KEY, BAD_NAME, BAD_ROLE, INSECURE_BIND
from zcrawl.text.patterns import lazy_pattern
from zcrawl.text.wildcards import matches

_KEY = lazy_pattern(r"[0-9a-f]{64}")
_NAME = lazy_pattern(r"[A-Za-z0-9._@-]{1,64}")
_PATTERN = lazy_pattern(r"[A-Za-z0-9._@*-]{1,64}")
UNNAMED = "unnamed"
MASTERS = "masters"  # the name under which masters let each other in; no line may have it
WATCH = "watch"  # the old name of the role viewer
NAMES = "names="  # begins the word with the patterns of a worker's names
DEFAULT_ROLES = frozenset({KeyRole.WORKER, KeyRole.OPERATOR})  # of a line without a role
GIVEN_ROLES = (KeyRole.WORKER, *PRINCIPALS, KeyRole.GATEWAY)  # what a line may say
REPORTS_DOMAIN = b"zcrawl-reports"  # the socket for results, open to workers only
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
    """The keys of an end of the mesh. A master's own public key is `server`."""

    own: KeyPair
    server: str  # the masters' public key

    def check_master(self) -> None:
        if self.own.public != self.server:
            raise ConfigError(
                f"this master's public key is {self.own.public}, but the cluster's is "
                f"{self.server}: all masters share one key file",
                code=BAD_KEY,
            )


def check_key(text: str, what: str = "key") -> str:
    key = text.strip().lower()
    if not _KEY.fullmatch(key):
        # The text is not repeated: a secret may have been pasted by mistake.
        raise ConfigError(f"{what}: a key is 64 hexadecimal digits", code=BAD_KEY)
    return key


def check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(
            f"{text!r} is not a name for a key; use 1 to 64 letters, digits, . _ @ -",
            code=BAD_NAME,
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
            f"{source}: no key file; `zcrawl keys new` writes one", code=BAD_KEY
        ) from None
    return KeyPair(check_key(pair.public, source), check_key(pair.secret, source))


class AllowedKey(msgspec.Struct, frozen=True):
    """One line of the list: `KEY NAME [ROLE[,ROLE]] [names=PATTERN[,PATTERN...]]`."""

    name: str
    roles: frozenset[KeyRole] = DEFAULT_ROLES
    patterns: tuple[str, ...] = ()  # of the worker ids it may use; none: its own name
    has_roles: bool = False  # the line names roles

    def may_be(self, worker: str) -> bool:
        """Return whether a worker with this key may have this id."""
        if KeyRole.WORKER not in self.roles:
            return False
        if self.patterns:
            return any(matches(worker, pattern) for pattern in self.patterns)
        # The processes of one host are called NAME-1, NAME-2 and so on.
        base, _, number = worker.rpartition("-")
        return worker == self.name or (base == self.name and number.isascii() and number.isdigit())

    def names_text(self) -> str:
        """The worker ids that it may use, as text."""
        return ", ".join(self.patterns) or f"{self.name}, {self.name}-1, {self.name}-2 ..."


def allow_list_line(
    public: str, name: str, roles: Iterable[KeyRole] = (), patterns: Sequence[str] = ()
) -> str:
    words = [public, name, ",".join(roles), NAMES + ",".join(patterns) if patterns else ""]
    return " ".join(filter(None, words)) + "\n"


def parse_role(text: str, where: str = "role") -> KeyRole:
    """Parse a role; `watch` is the old name of viewer."""
    if text == WATCH:
        return KeyRole.VIEWER
    if text not in GIVEN_ROLES:
        offered = ", ".join(GIVEN_ROLES)
        raise ConfigError(f"{where}: {text!r} is not a role; there are {offered}", code=BAD_ROLE)
    return KeyRole(text)


def parse_allow_list(text: str, source: str) -> dict[str, AllowedKey]:
    """Return public key → line. Empty lines and comments (#) are left out."""
    allowed: dict[str, AllowedKey] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{source}:{number}"
        key = check_key(words[0], where)
        if key in allowed:
            raise ConfigError(
                f"{where}: this key is in the list already, as {allowed[key].name}",
                code=BAD_ALLOW_LIST,
            )
        allowed[key] = _parse_line(words[1:], where)
    return allowed


def without_key(text: str, which: str, source: str) -> tuple[str, dict[str, AllowedKey]]:
    """Return the list without the lines of a key or a name, and the keys that these lines gave.

    Comments and all other lines stay as they are. A wrong line raises, as in `parse_allow_list`.
    """
    allowed = parse_allow_list(text, source)
    name = which.strip()
    removed = {
        key: line for key, line in allowed.items() if name == line.name or name.lower() == key
    }
    kept = [
        line
        for line in text.splitlines(keepends=True)
        if (line.partition("#")[0].split() or [""])[0].lower() not in removed
    ]
    return "".join(kept), removed


def _parse_line(words: list[str], where: str) -> AllowedKey:
    """Parse one line of the list."""
    patterns: list[str] = []
    if words and words[-1].startswith(NAMES):
        patterns = words.pop().removeprefix(NAMES).split(",")
    if len(words) > 2:
        raise ConfigError(
            f"{where}: write KEY NAME [ROLE[,ROLE]] [{NAMES}PATTERN[,PATTERN]]",
            code=BAD_ALLOW_LIST,
        )
    name = check_name(words[0]) if words else UNNAMED
    if name == MASTERS:
        raise ConfigError(f"{where}: the name {MASTERS} is taken by the masters", code=BAD_NAME)
    if len(words) < 2:
        return AllowedKey(name, patterns=check_patterns(patterns, DEFAULT_ROLES, where))
    roles = frozenset(parse_role(word, where) for word in words[1].split(","))
    return AllowedKey(name, roles, check_patterns(patterns, roles, where), has_roles=True)


def check_patterns(
    patterns: Sequence[str], roles: frozenset[KeyRole], where: str = "names"
) -> tuple[str, ...]:
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise ConfigError(
                f"{where}: {pattern!r} is not a pattern of names: letters, digits, . _ @ - and "
                "* for any characters",
                code=BAD_NAME,
            )
    if patterns and KeyRole.WORKER not in roles:
        raise ConfigError(f"{where}: {NAMES} is for workers, which this key is not", code=BAD_ROLE)
    return tuple(patterns)


# ---------------------------------------------------------------- decisions


def check_bind(endpoints: Endpoints, keys: MeshKeys | None, insecure: bool = False) -> None:
    """Refuse an open address without keys: others could read all results and give any work."""
    for endpoint in (endpoints.control, endpoints.reports, endpoints.events):
        address = parse_endpoint(endpoint)
        if address is None or address.is_loopback or keys is not None or insecure:
            continue
        raise ConfigError(
            f"{endpoint} can be reached from other machines, and no keys are configured: make "
            "some with `zcrawl keys new`, bind 127.0.0.1, or say insecure = true",
            code=INSECURE_BIND,
        )


class AccessDecision(msgspec.Struct, frozen=True):
    """The answer to one ZAP request, with its sender."""

    reply: list[bytes]
    admitted: bool
    address: str
    key: str


def judge(
    request: Sequence[bytes], server: str, allowed: Mapping[str, AllowedKey]
) -> AccessDecision | None:
    """Answer a ZAP request (RFC 27) about a handshake; None if it is not a valid request.

    An unknown key gets 400: unlike 300 it tells the peer the reason, for its log. Each later
    message carries the key. Roles are checked with each message, because the list may change
    meanwhile.
    """
    if len(request) != _ZAP_FIELDS or request[0] != ZAP_VERSION:
        return None
    _, id, domain, address, _, mechanism, credentials = request
    key = credentials.hex()
    admitted = mechanism == b"CURVE" and _may_enter(key, domain, server, allowed)
    outcome = [b"200", b"OK", key.encode()] if admitted else [b"400", b"unknown key", b""]
    reply = [ZAP_VERSION, id, *outcome, b""]
    return AccessDecision(reply, admitted, address.decode("ascii", "replace"), key)


def _may_enter(key: str, domain: bytes, server: str, allowed: Mapping[str, AllowedKey]) -> bool:
    if domain == REPORTS_DOMAIN:  # masters hear reports, and make none
        return key in allowed and KeyRole.WORKER in allowed[key].roles
    return key == server or key in allowed
