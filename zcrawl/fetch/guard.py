"""Decide which addresses, ports and names may be connected to.

A crawler follows links of unknown authors. Without a guard, a link, a redirect or a DNS answer
could make it read the metadata service of a cloud or a database in the operator's own network. The
engines call it twice for each request: `check` before the look-up, and `pick` with the addresses
after the look-up. Nothing between the check and the connection can change the address. Pure.

A `Guard` is the policy of one run. By default, it refuses every address that is not an ordinary
address of the public internet. An operator can allow more with `private_hosts` (`name:port`): a
literal address allows exactly itself; a name allows its private addresses, but never link-local
ones, where metadata services are. `name:port=network` allows only addresses of that network
(`entries_for`), whatever DNS answers later. `allow_private` allows all private addresses.

`entries_for` decides which private addresses a typed URL allows. Called by `roles.vouching` when a
job is submitted to a master of the operator's own; the addresses come in. A typed name means its
addresses of this moment. Its DNS may belong to somebody else, and answer with a public address
today and with 127.0.0.1 tomorrow (DNS rebinding), so:

- A typed address allows exactly itself.
- A name with only private addresses at submission allows these, and others in the same
  /24 (IPv4) or /64 (IPv6), because a server may move within its network.
- A name with any other address, or with none, allows nothing, neither now nor later.

The results are entries of `fetch.private_hosts`, which the guard of each connection reads.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
from collections.abc import Iterable
from typing import Final

from zcrawl.errors import BadUrl, BlockedAddress
from zcrawl.frontier.url import canonicalize, netloc_of

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_MAX_REMEMBERED: Final = 10_000  # origins


class AddressKind(enum.StrEnum):
    """The kind of an address that is not an ordinary public one."""

    LOOPBACK = "loopback"
    PRIVATE = "private"
    UNIQUE_LOCAL = "unique_local"
    CGNAT = "cgnat"  # shared address space of providers, RFC 6598
    LINK_LOCAL = "link_local"
    METADATA = "metadata"  # services of clouds that give machines their secrets
    MULTICAST = "multicast"
    UNSPECIFIED = "unspecified"
    RESERVED = "reserved"  # documentation, benchmarks, protocols, the future


# The kinds that `allow_private` and private hosts allow. Metadata services, multicast and reserved
# addresses stay refused: they have no pages to crawl.
OPENED_KINDS: Final = frozenset(
    {AddressKind.LOOPBACK, AddressKind.PRIVATE, AddressKind.UNIQUE_LOCAL, AddressKind.CGNAT}
)

_METADATA_ADDRESSES: Final = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # most clouds
        "169.254.170.2",  # AWS, containers
        "169.254.170.23",  # AWS, pods
        "169.254.0.23",  # Tencent
        "168.63.129.16",  # Azure's host, although it looks like a public address
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS, pods
        "fd20:ce::254",  # Google
        "fd00:42::42",  # Scaleway
        "fe80::a9fe:a9fe",  # OpenStack
    )
)

# The IANA special-purpose registries. The first network that contains an address gives its kind.
_NETS_4: Final = tuple(
    (ipaddress.IPv4Network(net), kind)
    for net, kind in (
        ("0.0.0.0/32", AddressKind.UNSPECIFIED),
        ("0.0.0.0/8", AddressKind.RESERVED),  # "this network"; Linux connects some of it to itself
        ("10.0.0.0/8", AddressKind.PRIVATE),
        ("100.64.0.0/10", AddressKind.CGNAT),
        ("127.0.0.0/8", AddressKind.LOOPBACK),
        ("169.254.0.0/16", AddressKind.LINK_LOCAL),
        ("172.16.0.0/12", AddressKind.PRIVATE),
        ("192.0.0.0/24", AddressKind.RESERVED),
        ("192.0.2.0/24", AddressKind.RESERVED),
        ("192.88.99.0/24", AddressKind.RESERVED),
        ("192.168.0.0/16", AddressKind.PRIVATE),
        ("198.18.0.0/15", AddressKind.RESERVED),
        ("198.51.100.0/24", AddressKind.RESERVED),
        ("203.0.113.0/24", AddressKind.RESERVED),
        ("224.0.0.0/4", AddressKind.MULTICAST),
        ("240.0.0.0/4", AddressKind.RESERVED),
    )
)
_NETS_6: Final = tuple(
    (ipaddress.IPv6Network(net), kind)
    for net, kind in (
        ("::/128", AddressKind.UNSPECIFIED),
        ("::1/128", AddressKind.LOOPBACK),
        ("fc00::/7", AddressKind.UNIQUE_LOCAL),
        ("fe80::/10", AddressKind.LINK_LOCAL),
        ("fec0::/10", AddressKind.PRIVATE),  # site-local, deprecated and still routed by some
        ("ff00::/8", AddressKind.MULTICAST),
        ("2001:db8::/32", AddressKind.RESERVED),
        ("2001::/23", AddressKind.RESERVED),  # Teredo addresses are checked before, by the IPv4
        # addresses in them
        ("3fff::/20", AddressKind.RESERVED),
    )
)
_PUBLIC_6: Final = ipaddress.IPv6Network("2000::/3")  # all assigned addresses; the rest is reserved
# Networks whose addresses end with the IPv4 address that receives the packet.
_WITH_IPV4_AT_END: Final = tuple(
    ipaddress.IPv6Network(net)
    for net in (
        "::ffff:0:0/96",  # mapped
        "::ffff:0:0:0/96",  # translated, RFC 2765
        "64:ff9b::/96",  # NAT64
        "::/96",  # compatible
    )
)
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_SIX_TO_FOUR: Final = ipaddress.IPv6Network("2002::/16")
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})  # upper half of the interface's id

# Names that always mean a service of the cloud or this machine, whatever DNS answers.
_METADATA_NAMES: Final = frozenset(
    {
        "metadata",
        "metadata.azure.internal",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "metadata.tencentyun.com",
        "instance-data",
        "instance-data.ec2.internal",
        "100-100-100-200.metadata.aliyun.com",
    }
)
_LOCAL_NAMES: Final = frozenset(
    {"localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"}
)

# The ports that browsers refuse (the Fetch standard), and those of databases, brokers and remote
# desktops: services that may read a line of HTTP as a command, and are not web servers.
_BAD_PORTS = """
    0 1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111
    113 115 117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548
    554 556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566
    6665 6666 6667 6668 6669 6679 6697 10080
    445 1433 1521 2181 3306 3389 5432 5672 5900 6379 9042 9092 11211 27017
"""
BAD_PORTS: Final = frozenset(map(int, _BAD_PORTS.split()))


def kind_of(address: Address) -> AddressKind | None:
    """Return the special kind of an address; None for an ordinary public one."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        address = ipaddress.IPv6Address(int(address))  # fe80::1%eth0 is fe80::1
    if address in _METADATA_ADDRESSES:
        return AddressKind.METADATA
    if isinstance(address, ipaddress.IPv4Address):
        return next((kind for net, kind in _NETS_4 if address in net), None)
    own = next((kind for net, kind in _NETS_6[:6] if address in net), None)
    if own is not None:
        return own
    inner = _inner(address)
    for inner_address in inner:
        kind = kind_of(inner_address)
        if kind is not None:
            return kind
    if inner and address not in _PUBLIC_6:
        return None  # only a wrapping of a public IPv4 address
    if address in _TEREDO:
        return None
    if address not in _PUBLIC_6:
        return AddressKind.RESERVED
    return next((kind for net, kind in _NETS_6 if address in net), None)


def _inner(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address contains."""
    number = int(address)
    last = number & 0xFFFF_FFFF
    if any(address in net for net in _WITH_IPV4_AT_END):
        return [ipaddress.IPv4Address(last)]
    if address in _SIX_TO_FOUR:
        return [ipaddress.IPv4Address(number >> 80 & 0xFFFF_FFFF)]
    if address in _TEREDO:  # the server, and the client with inverted bits
        server = number >> 64 & 0xFFFF_FFFF
        return [ipaddress.IPv4Address(server), ipaddress.IPv4Address(last ^ 0xFFFF_FFFF)]
    if number >> 32 & 0xFFFF_FFFF in _ISATAP:
        return [ipaddress.IPv4Address(last)]
    return []


class Guard:
    """The policy of one run. Guards with different `policy` do not share connections."""

    def __init__(self, allow_private: bool = False, private_hosts: Iterable[str] = ()) -> None:
        self.policy = (allow_private, frozenset(private_hosts))
        self._allow_private = allow_private
        self._vouched = _by_host(self.policy[1])
        self.is_strict = not allow_private and not self._vouched
        self._verdicts: dict[str, str | None] = {}

    def check(self, url: str) -> None:
        """Raise BlockedAddress for a URL that may not be requested, whatever DNS answers."""
        path = url.find("/", 8)  # a URL that is not canonical may have no path
        why = self.refuse_origin(url[:path] if path > 0 else url)
        if why is not None:
            raise BlockedAddress(url, why)

    def pick(self, name: str, port: int, addresses: Iterable[str]) -> list[str]:
        """Return the allowed addresses of `name:port`; BlockedAddress if all of them are
        refused."""
        refused, good = "", []
        for address in addresses:
            why = self.refuse_address(name, port, address)
            if why is None:
                good.append(address)
            else:
                refused = refused or why
        if refused and not good:
            raise BlockedAddress(f"{name}:{port}", refused)
        return good

    def refuse_origin(self, origin: str) -> str | None:
        """Return why this origin (scheme://name[:port]) may not be requested; None if it may.

        Checks everything that does not need DNS: scheme, port, name, and a literal address.
        """
        try:
            return self._verdicts[origin]
        except KeyError:
            pass  # not checked yet
        if len(self._verdicts) >= _MAX_REMEMBERED:
            self._verdicts.clear()
        why = self._verdicts[origin] = self._judge(origin)
        return why

    def refuse_address(self, name: str, port: int, address: str) -> str | None:
        """Return why a connection for `name:port` may not use `address`; None if it may."""
        if ":" in name and not name.startswith("["):
            name = f"[{name}]"
        why = self._judge_name(name, port)
        kind = _kind_of_text(address)
        if why is not None or kind is None:
            return why
        opened = self._allow_private and kind in OPENED_KINDS
        if not opened and f"{name}:{port}" in self._vouched:
            opened = self._vouches(f"{name}:{port}", name, address, kind)
        return None if opened else f"{kind} ({address})"

    def _vouches(self, netloc: str, name: str, address: str, kind: AddressKind) -> bool:
        literal, target = as_address(name), as_address(address)
        if literal is not None:
            return target == literal
        bounds = self._vouched[netloc]
        if target is None or kind not in OPENED_KINDS:
            return False
        return bounds is None or any(target in network for network in bounds)

    def _judge(self, origin: str) -> str | None:
        try:
            url = canonicalize(origin + "/")  # odd spellings of an address become the address
        except BadUrl as error:
            return error.code
        name, _, port = netloc_of(url).rpartition(":")
        address = as_address(name)
        if address is not None:
            return self.refuse_address(name, int(port), str(address))
        return self._judge_name(name, int(port))

    def _judge_name(self, name: str, port: int) -> str | None:
        vouched = f"{name}:{port}" in self._vouched
        if port in BAD_PORTS and not vouched:
            return f"port ({port})"
        bare = name.rstrip(".")
        if bare in _METADATA_NAMES:
            return f"{AddressKind.METADATA} ({bare})"
        if bare in _LOCAL_NAMES or bare.endswith(".localhost"):
            return None if vouched or self._allow_private else f"{AddressKind.LOOPBACK} ({bare})"
        return None


def _by_host(entries: Iterable[str]) -> dict[str, tuple[Network, ...] | None]:
    """Return the allowed networks of each `name:port`; None: any private address."""
    hosts: dict[str, tuple[Network, ...] | None] = {}
    for entry in entries:
        netloc, bound, network = entry.partition("=")
        if not bound:
            hosts[netloc] = None
        elif (networks := hosts.get(netloc, ())) is not None:
            hosts[netloc] = (*networks, ipaddress.ip_network(network))
    return hosts


def as_address(name: str) -> Address | None:
    """Parse a canonical host as an IP address; None if it is a name."""
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


@functools.lru_cache(_MAX_REMEMBERED)
def _kind_of_text(address: str) -> AddressKind | None:
    ip_address = as_address(address)
    return (
        AddressKind.RESERVED if ip_address is None else kind_of(ip_address)
    )  # not an address: refused


STRICT: Final = Guard()

PREFIX_4 = 24
PREFIX_6 = 64
_LOCAL_NETS_6 = (ipaddress.IPv6Network("fc00::/7"), ipaddress.IPv6Network("fec0::/10"))


def entries_for(netloc: str, addresses: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of `fetch.private_hosts` for a typed `name:port`; `addresses` are the
    current addresses of its name."""
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
    # Neighbours of ::1, and of addresses that contain an IPv4 address, may be in any network.
    own = any(address in net for net in _LOCAL_NETS_6)
    return ipaddress.IPv6Network((address, PREFIX_6 if own else 128), strict=False)
