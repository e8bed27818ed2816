"""User names and passwords in URLs (`http://user:password@host/`): used, never stored or shown.

A job is stored and shown, so a URL in it must have none (`refuse_login`, by `validate` and the
leader). If the crawl runs on the operator's own machine, the command takes them out of typed URLs
before anything is submitted: `UrlLogins` returns clean URLs, entries of `fetch.auth` with `${NAME}`
in them, and the values, which the workers get in their environment. Pure.

A login is sent to the host and port of its URL only; one that was typed with plain http also to
https of the same host, because sites send their visitors there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import ada_url
import msgspec

from zcrawl.errors import BadUrl, UsageError
from zcrawl.frontier.url import canonicalize, netloc_of
from zcrawl.model.reasons.usage import PASSWORD_IN_URL
from zcrawl.text.patterns import lazy_pattern

ENVIRONMENT: Final = "ZCRAWL_SECRET_"  # what fetch.keyring reads
NAME_PREFIX: Final = "URL_"
_NO_NAME = lazy_pattern(r"[^A-Za-z0-9]+")
_TYPED_REFERENCE = lazy_pattern(r"\$\{(URL_[A-Za-z0-9_]+)\}")


def has_login(url: str) -> bool:
    """Return whether a valid URL has a user name or a password."""
    if "@" not in url:
        return False
    parts = ada_url.URL(url)
    return bool(parts.username or parts.password)


def refuse_login(url: str) -> None:
    """Raise BadUrl for a valid URL that has a user name or a password."""
    if has_login(url):
        raise BadUrl(
            f"{canonicalize(url)} has a user name or password before its host, which would be "
            "stored and shown. Leave it out and write [[fetch.auth]] with host, user and "
            "password = '${NAME}', and set ZCRAWL_SECRET_NAME where the workers run. "
            "(`zcrawl crawl` accepts such URLs.)",
            code=PASSWORD_IN_URL,
        )


class UrlLogin(msgspec.Struct, frozen=True):
    user: str
    password: str
    name: str  # of the secret: ZCRAWL_SECRET_<name>


class UrlLogins:
    """The logins of typed URLs, by host and port."""

    def __init__(self) -> None:
        self._logins: dict[str, UrlLogin] = {}
        self._closed = False  # True after the submission, when another login would be too late

    def close(self) -> None:
        self._closed = True

    def clean(self, url: str) -> str:
        """Return the URL without its login, and remember the login. Invalid URLs stay unchanged."""
        if self._closed or "@" not in url:
            return url
        try:
            canonical = canonicalize(url)
            if not has_login(url):
                return url
        except (BadUrl, ValueError):
            return url
        parts = ada_url.URL(url)
        user, password = unquote(parts.username), unquote(parts.password)
        if ":" in user:
            raise UsageError(
                f"{canonical}: a user name cannot have a colon in it", code=PASSWORD_IN_URL
            )
        self._keep(netloc_of(canonical), user, password)
        parts.username = parts.password = ""
        return str(parts.href)

    def _keep(self, netloc: str, user: str, password: str) -> None:
        login = self._logins.get(netloc)
        if login is None:
            name = self._new_name(netloc)
            self._logins[netloc] = UrlLogin(user, password, name)
        elif (login.user, login.password) != (user, password):
            raise UsageError(
                f"{netloc} is given two different logins; a host has one", code=PASSWORD_IN_URL
            )

    def _new_name(self, netloc: str) -> str:
        base = name = NAME_PREFIX + _NO_NAME.sub("_", netloc).strip("_").upper()
        taken = {login.name for login in self._logins.values()}
        number = 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        return name

    def auth(self, entries: Iterable[Any]) -> list[Any]:
        """Return `fetch.auth` of the job file with the typed logins. For the same host and port,
        the typed one replaces that of the file."""
        own: dict[str, dict[str, str]] = {}
        for netloc, login in self._logins.items():
            values = {"user": f"${{{login.name}_USER}}", "password": f"${{{login.name}}}"}
            own[netloc] = {"host": netloc, **values}
            if netloc.endswith(":80"):
                secure = netloc.removesuffix(":80") + ":443"
                if secure not in self._logins:
                    own[secure] = {"host": secure, **values}
        kept = [
            entry
            for entry in entries
            if not (isinstance(entry, Mapping) and str(entry.get("host", "")).lower() in own)
        ]
        return [*kept, *own.values()]

    def environment(self) -> dict[str, str]:
        """Return the variables that the workers need in their environment."""
        values: dict[str, str] = {}
        for login in self._logins.values():
            values[f"{ENVIRONMENT}{login.name}"] = login.password
            values[f"{ENVIRONMENT}{login.name}_USER"] = login.user
        return values

    def __bool__(self) -> bool:
        return bool(self._logins)


def typed_secrets(spec: bytes) -> list[str]:
    """Return the environment variables of a stored job whose URLs were typed with a login."""
    plain = msgspec.json.decode(spec)
    text = msgspec.json.encode(plain.get("fetch", {}).get("auth", [])).decode()
    return sorted({ENVIRONMENT + name for name in _TYPED_REFERENCE.findall(text)})
