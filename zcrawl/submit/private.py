"""Decides who may point a crawl at addresses that are not on the public internet.

Called by the leader for each submission and for each run that it works on. Pure. The rule:

- Whoever submits to a master of their own (`crawl`, `up`: a data folder on this machine) may say
  `fetch.allow_private` and `fetch.private_hosts`. What was typed there opens what its names meant
  when they were submitted: `opened`, found by `roles.vouching`.
- A master of a cluster is reached by people who could not reach its network otherwise. It takes
  such a job only if its own configuration says so. What was typed opens nothing there: the desk
  hands no `opened` over.
- What is stored was taken by a master that may have had another configuration: a leader that does
  not give the right gives it to no run (`without_private`).
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
    """The spec as it may run; `opened` are the entries of `private_hosts` that typed URLs stand
    for.

    RefusedError if it asks for what this master does not give.
    """
    fetch = spec.fetch
    if not master_allows:
        if fetch.allow_private or fetch.private_hosts:
            option = "allow_private" if fetch.allow_private else "private_hosts"
            raise RefusedError(
                f"fetch.{option}: this cluster does not let jobs reach private addresses; "
                "it needs cluster.allow_private = true in the configuration of its masters",
                code=PRIVATE_NOT_ALLOWED,
            )
        return spec
    # A proxy is mostly on the operator's own network; whoever may name one may reach it.
    proxies = [_proxy_host(proxy) for proxy in fetch.proxies]
    hosts = [*fetch.private_hosts, *opened, *proxies]
    if not hosts:
        return spec
    unique = tuple(dict.fromkeys(hosts))
    return msgspec.structs.replace(spec, fetch=msgspec.structs.replace(fetch, private_hosts=unique))


def opened_by(args: Mapping[str, Any]) -> tuple[str, ...]:
    """What the typed URLs of a submission open: put there by this process (`roles.vouching`)."""
    opened = args.get("opened") or ()
    if not isinstance(opened, list | tuple) or not all(isinstance(text, str) for text in opened):
        raise RefusedError("submit: opened must be a list of texts", code=BAD_REQUEST)
    for entry in opened:
        check_private_host(entry)
    return tuple(opened)


def without_private(spec: JobSpec) -> JobSpec:
    """The spec as a run of it is given to workers by a leader that does not give the right."""
    fetch = spec.fetch
    if not (fetch.allow_private or fetch.private_hosts):
        return spec
    closed = msgspec.structs.replace(fetch, allow_private=False, private_hosts=())
    return msgspec.structs.replace(spec, fetch=closed)


def _proxy_host(proxy: str) -> str:
    address = proxy.partition("://")[2].rpartition("@")[2].rstrip("/")
    return netloc_of(canonicalize(f"http://{address}/"))


def check_private_host(entry: str) -> None:
    """Raise JobError for an entry that the guard would never find: it compares `name:port`, and
    the address with the network behind `=`, if there is one."""
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
