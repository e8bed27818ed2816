"""Decide who may crawl addresses that are not on the public internet.

Called by the leader for each submission and for each run that it works on. Pure. The rule:

- Users of their own master (`crawl`, `up`: a data folder on this machine) may use
  `fetch.allow_private` and `fetch.private_hosts`. Typed URLs open the addresses that their names
  had when they were submitted: `opened`, found by `roles.vouching`.
- People who cannot reach the network of a cluster can still reach its masters. So a master accepts
  such a job only if its own configuration allows it. Typed URLs open nothing there: the desk passes
  no `opened`.
- A stored job may have been accepted by a master with another configuration. A leader without the
  right removes it from every run (`without_private`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from zcrawl.errors import BadUrl, JobError, RefusedError
from zcrawl.frontier.url import canonicalize, netloc_of
from zcrawl.model.reasons.cluster import BAD_REQUEST
from zcrawl.model.reasons.usage import PRIVATE_NOT_ALLOWED
from zcrawl.model.spec import JobSpec


def with_right(spec: JobSpec, opened: Iterable[str], master_allows: bool) -> JobSpec:
    """Return the spec as it may run; `opened` are the `private_hosts` entries of typed URLs.

    RefusedError if the job wants private addresses and this master does not allow them.
    """
    fetch = spec.fetch
    if not master_allows:
        if fetch.allow_private or fetch.private_hosts:
            option = "allow_private" if fetch.allow_private else "private_hosts"
            raise RefusedError(
                f"fetch.{option}: this cluster does not allow private addresses for jobs; "
                "it needs cluster.allow_private = true in the configuration of its masters",
                code=PRIVATE_NOT_ALLOWED,
            )
        return spec
    # A proxy is usually on the operator's own network, so who may name it may reach it.
    proxies = [_proxy_host(proxy) for proxy in fetch.proxies]
    hosts = [*fetch.private_hosts, *opened, *proxies]
    if not hosts:
        return spec
    unique = tuple(dict.fromkeys(hosts))
    return msgspec.structs.replace(spec, fetch=msgspec.structs.replace(fetch, private_hosts=unique))


def opened_by(args: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entries that typed URLs open; this process has added them (`roles.vouching`)."""
    opened = args.get("opened") or ()
    if not isinstance(opened, list | tuple) or not all(isinstance(text, str) for text in opened):
        raise RefusedError("submit: opened must be a list of texts", code=BAD_REQUEST)
    for entry in opened:
        check_private_host(entry)
    return tuple(opened)


def without_private(spec: JobSpec) -> JobSpec:
    """Return the spec without private addresses, for a leader that does not allow them."""
    fetch = spec.fetch
    if not (fetch.allow_private or fetch.private_hosts):
        return spec
    closed = msgspec.structs.replace(fetch, allow_private=False, private_hosts=())
    return msgspec.structs.replace(spec, fetch=closed)


def _proxy_host(proxy: str) -> str:
    address = proxy.partition("://")[2].rpartition("@")[2].rstrip("/")
    return netloc_of(canonicalize(f"http://{address}/"))


def check_private_host(entry: str) -> None:
    """Raise JobError for an entry that can never match: the guard compares `name:port`, and the
    address with the network after `=`, if there is one."""
    netloc, bound, network = entry.partition("=")
    try:
        good = netloc_of(canonicalize(f"http://{netloc}/")) == netloc.lower()
        if bound:
            ipaddress.ip_network(network)
    except (BadUrl, ValueError):
        good = False
    if not good:
        raise JobError(
            f"fetch.private_hosts: {entry!r} is not a host with its port, such as 'localhost:8000' "
            "or '[fd00::1]:80', or one with a network, such as 'wiki:80=10.1.2.0/24'"
        )
