"""Check how a job reaches its pages: proxies, identities, credentials, certificates, login.

Called by `validate`. Pure. Secrets must not be written out in a job: it is stored and shown.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from zcrawl.errors import BadUrl, JobError
from zcrawl.model.reasons.usage import SECRET_WRITTEN_OUT
from zcrawl.model.spec import Fetch, JobSpec, Login
from zcrawl.submit.seeds import check_seed
from zcrawl.text.expressions import compile_pattern
from zcrawl.text.patterns import lazy_pattern

ROTATIONS: Final = ("round_robin", "sticky", "least_failures")
MAX_PROXIES: Final = 10_000
_REFERENCE = lazy_pattern(r"\$\{(?:secret:)?[A-Za-z0-9_]+\}")
_ENVIRONMENT = lazy_pattern(r"\$\{([A-Za-z0-9_]+)\}")
_ONLY_REFERENCES = lazy_pattern(r"(?:\$\{(?:secret:)?[A-Za-z0-9_]+\})+")
# `Bearer ${T}`, `ApiKey ${ID}:${KEY}`, `sid=${S}; user="${U}"`: a scheme, names, and references.
_SCHEME = lazy_pattern(r"[A-Za-z][A-Za-z-]{0,19}(?=\s)")
_BETWEEN_PARTS = lazy_pattern(r"[\s;,]+")
_PART = lazy_pattern(
    r"(?:[A-Za-z0-9_.-]+=)?(\"?)(?:\$\{(?:secret:)?[A-Za-z0-9_]+\})+(?:[:.](?:\$\{(?:secret:)?[A-Za-z0-9_]+\})+)*\1"
)
_SECRET_FIELD = lazy_pattern(r"pass|pwd|\bpw|secret|token|credential|pin\b", re.IGNORECASE)
# Headers with credentials: the standard ones, and common names of APIs.
_SECRET_HEADER = lazy_pattern(
    r"^(proxy-)?authorization$|^cookie2?$|api-?key|(^|-)key$|token|secret|passw|credential"
    r"|authoriz|(^|-)auth(-|$)|session",
    re.IGNORECASE,
)
# `Referer: http://user:password@host/`. Two groups that both take colons would take quadratic time.
_URL_PASSWORD = lazy_pattern(r"://[^\s/@:]*:([^\s/@]+)@")
_CONTROL = lazy_pattern(r"[\x00-\x1f\x7f]")


def check_access(spec: JobSpec) -> None:
    fetch = spec.fetch
    _check_proxies(fetch)
    for number, agent in enumerate(fetch.user_agents, 1):
        if _CONTROL.search(agent) or not agent.strip():
            raise JobError(
                f"fetch.user_agents, entry {number}: {agent!r} is empty or has control characters"
            )
        _refuse_url_password(agent, f"fetch.user_agents, entry {number}")
    _refuse_url_password(fetch.user_agent, "fetch.user_agent")
    for header, value in _headers(fetch):
        check_secret_header(header, value, "fetch.headers")
    for number, entry in enumerate(fetch.auth, 1):
        if not entry.host or bool(entry.bearer) == bool(entry.user):
            raise JobError(
                f"fetch.auth, entry {number}: write a host, and either user and password or bearer,"
                ' such as { host = "example.com", user = "me", password = "${PW}" }'
            )
        if "@" in entry.host:
            raise _written_out(f"fetch.auth, entry {number}, host")
        secret = entry.bearer or entry.password
        check_only_references(secret, f"fetch.auth for {entry.host}")
    if fetch.http2 and fetch.engine != "httpx":
        raise JobError(
            f"fetch.http2 needs fetch.engine = 'httpx'; {fetch.engine!r} has HTTP/1.1 only"
        )
    if fetch.engine == "browser" and (fetch.ca_file or fetch.client_cert):
        raise JobError("fetch.ca_file and fetch.client_cert need engine = 'http' or 'httpx'")
    if fetch.client_key and not fetch.client_cert:
        raise JobError("fetch.client_key needs fetch.client_cert, the certificate of that key")
    if spec.login.url:
        _check_login(spec.login)


def check_secret_header(header: str, value: str, key: str) -> None:
    """Refuse a header of a request that has a secret written out."""
    if _SECRET_HEADER.search(header) and not _has_only_references(value):
        raise _written_out(f"{key}, {header}", value)
    _refuse_url_password(value, f"{key}, {header}")


def environment_secrets(text: str) -> list[str]:
    """Return the names of `${NAME}` in a text; stored secrets and parameters have other forms."""
    return _ENVIRONMENT.findall(text)


def check_only_references(secret: str, where: str) -> None:
    """Refuse a password or token that is anything but references."""
    if not _ONLY_REFERENCES.fullmatch(secret):
        raise _written_out(where, secret)


def _headers(fetch: Fetch) -> list[tuple[str, str]]:
    return [pair for headers in (fetch.headers, *fetch.header_sets) for pair in headers.items()]


def _refuse_url_password(text: str, where: str) -> None:
    for login in _URL_PASSWORD.finditer(text):
        if not _ONLY_REFERENCES.fullmatch(login[1]):
            raise _written_out(where, login[1])


def _has_only_references(value: str) -> bool:
    """Return whether all of a header's value is references, besides a scheme and names."""
    scheme = _SCHEME.match(value.strip())
    parts = _BETWEEN_PARTS.split(value.strip()[scheme.end() if scheme else 0 :].strip(" ;,"))
    return all(map(_PART.fullmatch, parts))


def _check_proxies(fetch: Fetch) -> None:
    if fetch.proxy_rotation not in ROTATIONS:
        raise JobError(
            f"fetch.proxy_rotation is {fetch.proxy_rotation!r}; use one of {', '.join(ROTATIONS)}"
        )
    if not 0 <= fetch.proxy_limit <= 100_000:
        raise JobError(
            f"fetch.proxy_limit is {fetch.proxy_limit}; it must be 0 (no limit) to 100000"
        )
    if len(fetch.proxies) > MAX_PROXIES:
        raise JobError(f"fetch.proxies has {len(fetch.proxies)} entries; at most {MAX_PROXIES}")
    for proxy in fetch.proxies:
        try:
            parts = urlsplit(proxy)
            good = parts.hostname and parts.port and not parts.path.strip("/") and not parts.query
        except ValueError:
            good = False
        if not good or parts.scheme not in ("http", "socks5"):
            shown = proxy.rpartition("@")[2][:80]
            raise JobError(
                f"fetch.proxies: {shown!r} is not a proxy; write http://host:port or "
                "socks5://${USER}:${PASSWORD}@host:port"
            )
        if "${" in proxy.partition("://")[2].rpartition("@")[2]:
            # A look-up of the host would send the secret to the DNS servers of the domain.
            raise JobError(
                "fetch.proxies: a secret can be a proxy's user or password, not its host"
            )
        # A user name alone is a token.
        secret = parts.password or parts.username
        if secret and not _REFERENCE.fullmatch(secret):
            raise _written_out(f"fetch.proxies, {parts.hostname}", secret)
        if parts.scheme == "socks5" and fetch.engine == "httpx":
            raise JobError("fetch.proxies: socks5 needs engine = 'http' or 'browser'")


def _check_login(login: Login) -> None:
    try:
        check_seed(login.url)
    except BadUrl as error:
        raise JobError(f"login.url: {error}", code=error.code) from None
    if not login.fields:
        raise JobError(
            "login.fields is empty; name the fields of the form with their values, such as "
            '{ user = "me", password = "${PW}" }'
        )
    for name, value in login.fields.items():
        if _SECRET_FIELD.search(name) and not _ONLY_REFERENCES.fullmatch(value):
            raise _written_out(f"login.fields.{name}", value)
    if login.success:
        compile_pattern(login.success, "login.success")
    # The name of the password field can be anything, but a login must use a secret.
    if not any(_REFERENCE.search(value) for value in login.fields.values()):
        raise _written_out("login.fields (no value is a ${NAME})")


def _written_out(where: str, value: str = "") -> JobError:
    """Return the refusal; it does not repeat the value."""
    beside = _REFERENCE.search(value)
    what = (
        f"a part of the secret is written out beside {beside[0]}"
        if beside
        else ("a secret is written out")
    )
    return JobError(
        f"{where}: {what}; write ${{NAME}} for the whole secret, and set ZCRAWL_SECRET_NAME where "
        "the workers run",
        code=SECRET_WRITTEN_OUT,
    )
