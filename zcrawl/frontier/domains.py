"""Return the registered domain of an origin, or the IP address written in it.

Called by the leader and the engines for jobs that limit domains or addresses, and for cookies. The
public suffix list comes with its library and is read by the first job that asks. Pure.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING

from zcrawl.errors import AddressMoved

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


@functools.lru_cache(10_000)
def registered_domain(origin: str) -> str:
    """Return the registered domain, `example.co.uk` of `https://www.example.co.uk:8443`.

    Names that nobody can register (a suffix, a single word) and addresses are returned as they are.
    """
    name = name_of(origin)
    if literal_address(origin):
        return name
    return _suffixes().privatesuffix(name) or name


@functools.lru_cache(10_000)
def is_public_suffix(name: str) -> bool:
    """Return whether anybody can register names below this one: `co.uk`, `github.io`, `com`."""
    return bool(_suffixes().is_public(name))


def name_of(origin: str) -> str:
    """Return the host's name without brackets, port and final dot."""
    netloc = origin.partition("://")[2]
    if netloc.startswith("["):
        return netloc[1:].partition("]")[0]
    return netloc.partition(":")[0].rstrip(".")


def literal_address(origin: str) -> str:
    """Return the IP address that is written in an origin; empty if it has a name."""
    return plain_address(name_of(origin))


def plain_address(text: str) -> str:
    """Return an address in its normal spelling; empty if it is not an address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:192.0.2.1 is 192.0.2.1
    return str(mapped or address)


def preferred_address(addresses: list[str]) -> str:
    """Return the address to which the limits of a name apply and workers connect.

    It does not depend on the order of the DNS answer. IPv4 comes first, because more machines reach
    it.
    """
    return min(addresses, key=_order)


def only_at(address: str, name: str, addresses: Iterable[str]) -> list[str]:
    """Return the limited address if it is among a name's addresses, else raise AddressMoved."""
    candidates = list(addresses)
    there = [candidate for candidate in candidates if plain_address(candidate) == address]
    if not there and candidates:
        raise AddressMoved(name, plain_address(preferred_address(candidates)))
    return there


def _order(text: str) -> tuple[int, int]:
    address = ipaddress.ip_address(text.partition("%")[0])
    return address.version, int(address)


@functools.cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # reads 10,000 rules: most crawls need none

    return PublicSuffixList()
