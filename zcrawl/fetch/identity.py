"""Decides as whom a host is asked: user agent, header set, credentials.

Called by `worker.session_loop` for runs that ask for any of it. Pure. A host keeps its identity
for the whole run, in every worker: it is chosen by a hash of the host, so that no server sees one
visitor with changing clothes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from zcrawl.fetch.secrets import expand
from zcrawl.frontier.url import host_name_of, netloc_of
from zcrawl.submit.spec import Fetch

T = TypeVar("T")
_MAX_REMEMBERED: Final = 10_000  # origins


class Identity:
    """The headers that a run adds, by origin. Raises JobError for a secret that is not set."""

    def __init__(self, fetch: Fetch, environ: Mapping[str, str]) -> None:
        self._agents = fetch.user_agents
        self._sets = [
            {name: expand(value, environ) for name, value in one.items()}
            for one in fetch.header_sets
        ]
        self._auth: dict[str, str] = {}
        for entry in fetch.auth:
            if entry.bearer:
                value = "Bearer " + expand(entry.bearer, environ)
            else:
                plain = f"{expand(entry.user, environ)}:{expand(entry.password, environ)}"
                value = "Basic " + base64.b64encode(plain.encode()).decode()
            self._auth[entry.host.lower()] = value
        self._headers: dict[str, dict[str, str]] = {}

    def user_agent(self, origin: str, default: str) -> str:
        return _pick(self._agents, origin) if self._agents else default

    def headers(self, origin: str) -> dict[str, str]:
        """What is sent to this origin, besides what is sent to all."""
        found = self._headers.get(origin)
        if found is None:
            if len(self._headers) >= _MAX_REMEMBERED:
                self._headers.clear()
            found = self._headers[origin] = self._make(origin)
        return found

    def _make(self, origin: str) -> dict[str, str]:
        made: dict[str, str] = {}
        if self._agents:
            made["User-Agent"] = _pick(self._agents, origin)
        if self._sets:
            made.update(_pick(self._sets, origin))
        url = origin + "/"
        # `example.com` means any port of it, `example.com:8443` that one.
        auth = self._auth.get(netloc_of(url)) or self._auth.get(host_name_of(url))
        if auth is not None:
            made["Authorization"] = auth
        return made


def _pick(choices: Sequence[T], origin: str) -> T:
    number = int.from_bytes(blake2b(origin.encode(), digest_size=8).digest())
    return choices[number % len(choices)]
