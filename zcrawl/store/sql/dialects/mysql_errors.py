"""Translate errors of MySQL, MariaDB and PyMySQL into the errors of the port.

The numbers are the servers' own; both families share those below 1900. Called by
`mysql` and `mysql_session`.
"""

from __future__ import annotations

import ssl
from typing import Final

import peewee
import pymysql

from zcrawl.errors import (
    CommitUnknown,
    DiskFull,
    StoreCorrupt,
    StoreDataError,
    StoreError,
    StoreUnavailable,
)
from zcrawl.model.reasons.storage import DUPLICATE_KEY as ROW_EXISTS
from zcrawl.model.reasons.storage import NO_DATABASE as MISSING_DATABASE
from zcrawl.model.reasons.storage import (
    STORE_DENIED,
    STORE_READONLY,
    STORE_TLS,
    TOO_MANY_CONNECTIONS,
)

NO_SUCH_THREAD: Final = 1094
KILL_DENIED: Final = 1095
DUPLICATE_KEY: Final = 1062
LOCK_WAIT: Final = 1205
NO_DATABASE: Final = 1049

# fmt: off
LOST: Final = frozenset({
    0, 1053, 1077, 1079, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055, 4031,
})
READONLY: Final = frozenset({1290, 1792, 1836})
# After these a connection is thrown away; a new one may find another, writable server.
USELESS: Final = LOST | READONLY | {1153}
UNREACHABLE: Final = frozenset({2002, 2003, 2005})
_TLS: Final = frozenset({2026, 3159})
_DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1251, 1698, 1820, 1862, 2059, 2061})
_CROWDED: Final = frozenset({1040, 1203, 1226})
_TRY_AGAIN: Final = frozenset({1020, 1047, 1205, 1213, 1317, 1969, 3024})
_FULL: Final = frozenset({1021, 1026, 1114, 3675})
_BAD_DATA: Final = frozenset({
    1048, 1118, 1136, 1153, 1263, 1264, 1265, 1292, 1300, 1364, 1366, 1367, 1406, 1690, 3854, 3988,
})
_CORRUPT: Final = frozenset({126, 127, 144, 145, 1034, 1035, 1194, 1195, 1712, 1877})
# After one of these as the answer to COMMIT, nothing was applied.
_NOT_COMMITTED: Final = READONLY | _FULL | {1047, 1205, 1213}
# fmt: on
_OTHER_NAME: Final = (
    "the server's certificate is for another host name: use a name that it has in database.urls, "
    "or ssl_mode=verify_ca, which does not compare names"
)
# By OpenSSL's number of why a certificate is refused.
_REMEDIES: Final = {
    9: "the server's certificate is not valid yet: check the clocks",
    10: "the server's certificate has expired: renew it on the server",
    62: _OTHER_NAME,
    64: _OTHER_NAME,  # an IP address
}
_OTHER_CA: Final = (
    "ssl_ca in database.urls is not the authority that signed the server's certificate"
)


def code_of(error: BaseException) -> int:
    """Return the error number of the server or the driver; -1: none."""
    if isinstance(error, pymysql.err.MySQLError) and error.args and isinstance(error.args[0], int):
        return error.args[0]
    return -1


def named_error(error: BaseException, where: str, user: str, database: str) -> StoreError | None:
    """Return the error of the port; None: not an error of the database.

    `where` is shown, so it must not contain a password.
    """
    if isinstance(error, StoreError):
        return None
    error = _unwrapped(error)
    if isinstance(error, OverflowError | UnicodeEncodeError):
        return StoreDataError(f"this cannot be stored: {error}")
    if isinstance(error, peewee.PeeweeException):
        return StoreUnavailable(f"{where}: {error}")
    if not isinstance(error, pymysql.err.MySQLError):
        return None
    original = getattr(error, "original_exception", None)
    if isinstance(original, ssl.SSLError):
        return _tls(where, str(original), _remedy(original))
    return _by_code(code_of(error), _text(error), where, user, database)


def _unwrapped(error: BaseException) -> BaseException:
    """Return the driver's error without peewee's wrapping."""
    if isinstance(error, peewee.PeeweeException):
        for inner in (*error.args[:1], error.__cause__, error.__context__):
            if isinstance(inner, pymysql.err.MySQLError):
                return inner
    return error


def _by_code(code: int, text: str, where: str, user: str, database: str) -> StoreError:
    message = f"{where}: {text} ({code})"
    if code in LOST:
        return StoreUnavailable(f"{where}: the connection was lost: {text} ({code})")
    if code in READONLY:
        return StoreUnavailable(
            f"{message}: the server does not accept writes", code=STORE_READONLY
        )
    if code in UNREACHABLE:
        return StoreUnavailable(f"cannot reach the database {where}: {text}")
    if code in _TRY_AGAIN:
        return StoreUnavailable(message)
    if code in _CROWDED:
        return StoreUnavailable(f"{message}: raise max_connections", code=TOO_MANY_CONNECTIONS)
    if code in _FULL:
        return DiskFull(f"{message}: free some space on the server, then continue")
    if code == DUPLICATE_KEY:
        # The fenced leader is the only writer, so a duplicate key means that its memory differs
        # from the database. Nothing was applied, but it must reload.
        return CommitUnknown(message, code=ROW_EXISTS)
    if code in _BAD_DATA:
        return StoreDataError(f"this cannot be stored: {text} ({code})")
    if code in _DENIED:
        return StoreError(
            f"{where} refuses the user {user!r}: {text} ({code}); check user, password and "
            "grants (docs/mysql.md) of database.urls; ssl_mode if the server requires TLS, and "
            "ssl_cert and ssl_key if the user must show a certificate (REQUIRE X509)",
            code=STORE_DENIED,
        )
    if code == NO_DATABASE:
        return StoreError(
            f"{where}: there is no database {database!r}; let zcrawl create it "
            "(`zcrawl master --create-database`) or see docs/mysql.md",
            code=MISSING_DATABASE,
        )
    if code in _TLS:
        return _tls(where, text)
    if code in _CORRUPT:
        return StoreCorrupt(f"{message}: a table is damaged; repair it or restore a backup")
    return StoreError(message)


def commit_error(error: Exception, named: StoreError, where: str) -> StoreError:
    """Return the error of a failed COMMIT. Only some answers mean that nothing was applied."""
    if code_of(error) in _NOT_COMMITTED:
        return named
    return CommitUnknown(f"{where}: the commit's outcome is unknown: {error}")


def _remedy(error: ssl.SSLError) -> str:
    """Return what is wrong with a certificate, and what to change."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return ""
    return _REMEDIES.get(error.verify_code, _OTHER_CA)


def _tls(where: str, text: str, remedy: str = "") -> StoreError:
    remedy = remedy or "check ssl_mode, ssl_ca, ssl_cert and ssl_key of database.urls"
    return StoreError(f"{where}: no TLS connection: {text}; {remedy}", code=STORE_TLS)


def _text(error: BaseException) -> str:
    return str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__
