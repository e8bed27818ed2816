"""Decides as whom a host is asked: user agent, header set, credentials.

Called by `worker.pipeline.session` for runs that ask for any of it. Pure. A host keeps its identity
for the whole run, in every worker: it is chosen by a hash of the host, so that no server sees one
visitor with changing clothes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from zcrawl.fetch.keyring import HeaderSecrets, RunSecrets, Sealed
from zcrawl.frontier.url import host_name_of, netloc_of
from zcrawl.model.spec import Fetch

T = TypeVar("T")
_MAX_REMEMBERED: Final = 10_000  # origins
_BASIC: Final = "{}:{}"  # what basic authentication encodes


class Identity:
    """The headers that a run adds, by origin. Raises JobError for a secret that is not set."""

    def __init__(self, fetch: Fetch, secrets: RunSecrets) -> None:
        self._agents = fetch.user_agents
        self._sets = [HeaderSecrets(headers, secrets) for headers in fetch.header_sets]
        self._auth: dict[str, Sealed] = {}
        for entry in fetch.auth:
            sealed = (
                secrets.sealed("Bearer {}", entry.bearer)
                if entry.bearer
                else secrets.sealed(_BASIC, entry.user, entry.password)
            )
            self._auth[entry.host.lower()] = sealed
        self._headers: dict[str, dict[str, str]] = {}

    def user_agent(self, origin: str, default: str) -> str:
        return _pick(self._agents, origin) if self._agents else default

    def headers(self, origin: str) -> dict[str, str]:
        """What is sent to this origin, besides what is sent to all. Secrets that are not released
        for it are left out: `missing_secrets` names them."""
        headers = self._headers.get(origin)
        if headers is None:
            if len(self._headers) >= _MAX_REMEMBERED:
                self._headers.clear()
            headers = self._headers[origin] = self._make(origin)
        return headers

    def missing_secrets(self, origin: str) -> frozenset[str]:
        """The names of the secrets that this origin would be sent, if it were allowed to."""
        url, auth = origin + "/", self._auth_for(origin)
        names = frozenset() if auth is None else auth.missing_secrets(url)
        return names | _pick(self._sets, origin).missing_secrets(url) if self._sets else names

    def _make(self, origin: str) -> dict[str, str]:
        made: dict[str, str] = {}
        url = origin + "/"
        if self._agents:
            made["User-Agent"] = _pick(self._agents, origin)
        if self._sets:
            made.update(_pick(self._sets, origin).for_url(url))
        auth = self._auth_for(origin)
        values = None if auth is None else auth.values_for(url)
        if auth is not None and values is not None:
            made["Authorization"] = _authorization(auth.template, values)
        return made

    def _auth_for(self, origin: str) -> Sealed | None:
        """`example.com` means any port of it, `example.com:8443` that one."""
        url = origin + "/"
        return self._auth.get(netloc_of(url)) or self._auth.get(host_name_of(url))


def _authorization(template: str, values: tuple[str, ...]) -> str:
    if template != _BASIC:
        return template.format(*values)
    return "Basic " + base64.b64encode(_BASIC.format(*values).encode()).decode()


def _pick(choices: Sequence[T], origin: str) -> T:
    number = int.from_bytes(blake2b(origin.encode(), digest_size=8).digest())
    return choices[number % len(choices)]
