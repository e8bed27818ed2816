"""Match the host of a URL with a pattern from the configuration.

Used by `keyring` for the hosts that a secret may go to. Pure. A pattern is a name or an address
(`example.com`, any port of it), one with a port (`example.com:8443`, `[::1]:80`), or the subdomains
of a name (`*.example.com`, without `example.com` itself). It is compared with the host of a
canonical URL: lower case, international names in punycode, no user name in front. A name with a
dot at its end is a different name, and does not match.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.errors import BadUrl
from zcrawl.frontier.url import canonicalize, host_name_of, netloc_of
from zcrawl.text.patterns import lazy_pattern

_PATTERN: Final = lazy_pattern(r"(\*\.)?(\[[0-9A-Fa-f:.]+\]|[^\s*/\\?#@:\[\]%]+)(?::([0-9]{1,5}))?")
_MOST_PORT: Final = 65_535


class HostPattern(msgspec.Struct, frozen=True):
    name: str
    port: int | None = None  # None: any
    subdomains: bool = False  # only its subdomains, not the name itself

    def has(self, canonical_url: str) -> bool:
        """Return whether the URL's host matches."""
        if self.port is not None and self.port != port_of(canonical_url):
            return False
        name = host_name_of(canonical_url)
        return name.endswith(f".{self.name}") if self.subdomains else name == self.name


def port_of(canonical_url: str) -> int:
    return int(netloc_of(canonical_url).rpartition(":")[2])


def parse_pattern(text: str) -> HostPattern:
    """Parse a pattern; ValueError, with the reason, if it is not valid."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a host: write name, name:port or *.name")
    subdomains, name, port = match[1] is not None, match[2], match[3]
    if port is not None and not 0 < int(port) <= _MOST_PORT:
        raise ValueError(f"{text!r}: the port must be 1 to {_MOST_PORT}")
    try:
        canonical = host_name_of(canonicalize(f"http://{name}/"))
    except BadUrl:
        raise ValueError(f"{text!r} is not the name of a host") from None
    if canonical.endswith("."):
        raise ValueError(f"{text!r}: leave out the dot at the end")
    is_address = canonical.startswith("[") or canonical.rpartition(".")[2].isdigit()
    if subdomains and (is_address or "." not in canonical):
        raise ValueError(f"{text!r}: a wildcard needs a domain such as *.example.com")
    return HostPattern(canonical, None if port is None else int(port), subdomains)
