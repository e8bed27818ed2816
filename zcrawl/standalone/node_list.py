"""Read a list of nodes: JSON, or one entry a line. Pure.

An entry is `id`, or `id=tcp://host:port`. JSON may be a list of entries, or an object of ids and
addresses (empty: none). In a text of lines, empty lines, comments (#), a leading `- ` and quotes
are left out, so the list of a YAML file can be mounted as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from zcrawl.errors import ConfigError
from zcrawl.mesh.address import parse_endpoint
from zcrawl.model.reasons.usage import BAD_NODE_LIST, DUPLICATE_NODES
from zcrawl.ownership import check_nodes, fingerprint
from zcrawl.text.patterns import lazy_pattern

_ID = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class NodeList(msgspec.Struct, frozen=True):
    """The nodes of a list, sorted, with the addresses that are known."""

    ids: tuple[str, ...]
    addresses: dict[str, str] = {}  # id → tcp://host:port

    @property
    def fingerprint(self) -> str:
        """Return what is the same for the same ids and addresses in any order."""
        return fingerprint(f"{id}={self.addresses.get(id, '')}" for id in self.ids)

    @property
    def has_addresses(self) -> bool:
        """Return whether all nodes can be reached, so that they can watch each other."""
        return len(self.addresses) == len(self.ids)


def parse_nodes(text: str, source: str) -> NodeList:
    """Read a list. Raise ConfigError, with the name of the source, if it cannot be meant."""
    stripped = text.lstrip("\ufeff").strip()
    entries = _from_json(stripped, source) if stripped[:1] in ("[", "{") else _from_lines(stripped)
    return of_entries(entries, source)


def is_id(text: str) -> bool:
    """Return whether a text can be the id of a node."""
    return _ID.fullmatch(text) is not None


def of_entries(entries: Iterable[str], source: str) -> NodeList:
    """Check entries. Raise ConfigError, with the name of the source, if they cannot be meant."""
    ids: list[str] = []
    addresses: dict[str, str] = {}
    for entry in entries:
        id, equals, address = entry.strip().partition("=")
        if not _ID.fullmatch(id):
            raise ConfigError(
                f"{source}: {entry[:80]!r} is not a node; write an id of letters, digits, . _ and "
                "-, or id=tcp://host:port",
                code=BAD_NODE_LIST,
            )
        ids.append(id)
        if equals:
            addresses[id] = _address(address, entry, source)
    try:
        listed = check_nodes(ids)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}", code=error.code) from None
    shared = {address for address in addresses.values() if _count(address, addresses) > 1}
    if shared:
        raise ConfigError(
            f"{source}: two nodes have the address {min(shared)}; give each node its own",
            code=DUPLICATE_NODES,
        )
    if addresses and len(addresses) < len(listed):
        lacking = next(id for id in listed if id not in addresses)
        raise ConfigError(
            f"{source}: {lacking!r} has no address, and others have one; write one for each node, "
            "or none at all",
            code=BAD_NODE_LIST,
        )
    return NodeList(listed, addresses)


def _count(address: str, addresses: dict[str, str]) -> int:
    return sum(other == address for other in addresses.values())


def _address(address: str, entry: str, source: str) -> str:
    try:
        parsed = parse_endpoint(address)
    except ConfigError as error:
        raise ConfigError(f"{source}: {entry[:80]!r}: {error}", code=BAD_NODE_LIST) from None
    if parsed is None or parsed.is_wildcard or not parsed.port:
        raise ConfigError(
            f"{source}: {entry[:80]!r} is not an address that others can connect to; write "
            "id=tcp://host:port",
            code=BAD_NODE_LIST,
        )
    return str(parsed)


def _from_json(text: str, source: str) -> list[str]:
    try:
        value: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source}: not valid JSON: {error}", code=BAD_NODE_LIST) from None
    if isinstance(value, dict):
        value = [f"{id}={address}" if address else id for id, address in value.items()]
    if not all(isinstance(entry, str) for entry in value):
        raise ConfigError(
            f'{source}: an entry is not a text; write ["node-1", "node-2"]', code=BAD_NODE_LIST
        )
    return list(value)


def _from_lines(text: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    entries = (line.removeprefix("- ").strip().strip("\"'") for line in lines)
    return [entry for entry in entries if entry]
