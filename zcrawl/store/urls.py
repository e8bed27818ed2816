"""Parse addresses of a cluster's database: `mysql://user:pass@host/db?…`.

Unknown parts are refused. No password is ever shown: not in errors, not in `repr`. Called by
`sql.store.open_mysql` and by other readers of `database.urls`.
"""

from __future__ import annotations

import urllib.parse
from typing import Final

import msgspec

from zcrawl.errors import ConfigError
from zcrawl.text.patterns import lazy_pattern

DEFAULT_PORT: Final = 3306
# The names that MySQL's own tools use. `preferred`: encrypt if possible, do not check the server.
SSL_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_PARAMETERS: Final = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "socket")
_MYSQL_SCHEMES: Final = ("mysql", "mariadb")
_NEEDS_MYSQL: Final = "database.urls: a cluster needs one or more mysql:// addresses"
_PASSWORD: Final = lazy_pattern(r"(//[^/@:]*):.*@")


class MysqlUrl(msgspec.Struct, frozen=True):
    host: str
    port: int
    user: str
    password: str
    database: str
    ssl_mode: str = "preferred"
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    socket: str | None = None  # a Unix socket instead of host and port

    @property
    def address(self) -> str:
        if self.socket is not None:
            return self.socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """Return the address without the password, for messages and logs."""
        return f"mysql://{self.user}@{self.address}/{self.database}"

    def __repr__(self) -> str:
        return f"MysqlUrl({self.shown})"


def parse_url(text: str) -> MysqlUrl:
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _bad(text, str(error)) from None  # its context would show the password
    if parts.scheme == "sqlite":
        raise ConfigError(_NEEDS_MYSQL)
    if parts.scheme not in _MYSQL_SCHEMES:
        raise _bad(text, "it does not begin with mysql://")
    unquote = urllib.parse.unquote
    database = unquote(parts.path[1:])
    if not database or "/" in database or "\0" in database:
        raise _bad(text, "the path is the name of the database: mysql://user@host/name")
    if not parts.username:
        raise _bad(text, "it names no user")
    options = _options(text, parts.query)
    socket = options.get("socket")
    if not parts.hostname and socket is None:
        raise _bad(text, "it names no host")
    return MysqlUrl(
        host=parts.hostname or "localhost",
        port=port or DEFAULT_PORT,
        user=unquote(parts.username),
        password=unquote(parts.password or ""),
        database=database,
        ssl_mode=options.get("ssl_mode", "verify_identity" if "ssl_ca" in options else "preferred"),
        ssl_ca=options.get("ssl_ca"),
        ssl_cert=options.get("ssl_cert"),
        ssl_key=options.get("ssl_key"),
        socket=socket,
    )


def parse_mysql_urls(texts: list[str] | tuple[str, ...]) -> tuple[MysqlUrl, ...]:
    """Parse the addresses of one replicated database; all must name the same database."""
    urls = tuple(parse_url(text) for text in texts)
    if not urls:
        raise ConfigError(_NEEDS_MYSQL)
    names = sorted({url.database for url in urls})
    if len(names) > 1:
        raise ConfigError(
            "database.urls: all addresses are of one replicated database, but they name "
            + " and ".join(names)
        )
    return urls


def _options(text: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in urllib.parse.parse_qsl(query, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise _bad(text, f"unknown parameter {name!r}; known are {', '.join(_PARAMETERS)}")
        options[name] = value
    mode = options.get("ssl_mode")
    if mode is not None and mode not in SSL_MODES:
        raise _bad(text, f"ssl_mode is one of {', '.join(SSL_MODES)}")
    if mode in ("verify_ca", "verify_identity") and "ssl_ca" not in options:
        raise _bad(text, f"ssl_mode={mode} needs ssl_ca")
    if ("ssl_key" in options) and ("ssl_cert" not in options):
        raise _bad(text, "ssl_key needs ssl_cert")
    return options


def _bad(text: str, reason: str) -> ConfigError:
    shown = _PASSWORD.sub(r"\1:***@", text)
    return ConfigError(f"database.urls: {shown}: {reason}")
