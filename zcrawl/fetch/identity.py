"""Choose user agent, header set and credentials for each host.

Called by `worker.pipeline.session` for runs that configure any of them. Pure. The choice follows
from a hash of the host, so a host sees the same identity during the whole run, from every worker.
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
_BASIC: Final = "{}:{}"  # the text that basic authentication encodes


class Identity:
    """The additional headers of a run, by origin. Raises JobError for a secret that is not set."""

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
        """Return the additional headers for this origin. Headers with secrets that it may not get
        are left out: `missing_secrets` returns their names."""
        headers = self._headers.get(origin)
        if headers is None:
            if len(self._headers) >= _MAX_REMEMBERED:
                self._headers.clear()
            headers = self._headers[origin] = self._make(origin)
        return headers

    def missing_secrets(self, origin: str) -> frozenset[str]:
        """Return the names of the secrets that are left out because this origin may not get
        them."""
        url, auth = origin + "/", self._auth_for(origin)
        names = frozenset() if auth is None else auth.missing_secrets(url)
        return names | _pick(self._sets, origin).missing_secrets(url) if self._sets else names

    def _make(self, origin: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        url = origin + "/"
        if self._agents:
            headers["User-Agent"] = _pick(self._agents, origin)
        if self._sets:
            headers.update(_pick(self._sets, origin).for_url(url))
        auth = self._auth_for(origin)
        values = None if auth is None else auth.values_for(url)
        if auth is not None and values is not None:
            headers["Authorization"] = _authorization(auth.template, values)
        return headers

    def _auth_for(self, origin: str) -> Sealed | None:
        """Return the credentials for an origin: `example.com` is for any port, `example.com:8443`
        for one."""
        url = origin + "/"
        return self._auth.get(netloc_of(url)) or self._auth.get(host_name_of(url))


def _authorization(template: str, values: tuple[str, ...]) -> str:
    if template != _BASIC:
        return template.format(*values)
    return "Basic " + base64.b64encode(_BASIC.format(*values).encode()).decode()


def _pick(choices: Sequence[T], origin: str) -> T:
    number = int.from_bytes(blake2b(origin.encode(), digest_size=8).digest())
    return choices[number % len(choices)]
