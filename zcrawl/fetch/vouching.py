"""Decides what a typed URL opens of a network that is not public.

Called by `roles.vouching` when a job is submitted to a master of the operator's own. Pure: the
addresses come in. Whoever types a name means what it leads to now. But its DNS may be in other
hands, which answer with a public address today and with 127.0.0.1 tomorrow (DNS rebinding), so:

- An address that was typed opens exactly itself.
- A name that has only private addresses when it is submitted opens these, and others in the same
  /24 (IPv4) or /64 (IPv6): a server may move within its network.
- A name that has any other address, or none, opens nothing, then or later.

The result are entries of `fetch.private_hosts`, which the guard of each connection reads.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from zcrawl.fetch.guard import OPENED_KINDS, Address, as_address, kind_of

PREFIX_4 = 24
PREFIX_6 = 64
_LOCAL_NETS_6 = (ipaddress.IPv6Network("fc00::/7"), ipaddress.IPv6Network("fec0::/10"))


def entries_for(netloc: str, addresses: Iterable[str]) -> tuple[str, ...]:
    """The entries of `fetch.private_hosts` that a typed `name:port` stands for; `addresses` are
    those that its name has now."""
    name = netloc.rpartition(":")[0]
    if as_address(name) is not None:
        return (netloc,)
    bounds: dict[str, None] = {}
    for text in addresses:
        address = as_address(text.partition("%")[0])
        if address is None or kind_of(address) not in OPENED_KINDS:
            return ()
        bounds[str(_bound(address))] = None
    return tuple(f"{netloc}={bound}" for bound in bounds)


def _bound(address: Address) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    if isinstance(address, ipaddress.IPv4Address):
        return ipaddress.IPv4Network((address, PREFIX_4), strict=False)
    # ::1 and what wraps an IPv4 address have neighbours that lead to any network.
    own = any(address in net for net in _LOCAL_NETS_6)
    return ipaddress.IPv6Network((address, PREFIX_6 if own else 128), strict=False)
