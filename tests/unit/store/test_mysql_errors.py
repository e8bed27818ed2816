"""Numbers of MySQL and MariaDB under the names of the port."""

from __future__ import annotations

import peewee
import pymysql
import pytest

from zcrawl.errors import (
    CommitUnknown,
    DiskFull,
    StoreCorrupt,
    StoreDataError,
    StoreError,
    StoreUnavailable,
)
from zcrawl.store.sql.dialects.mysql_errors import commit_error, named_error

WHERE = "mysql://me@h:1/z"


def named(number: int) -> StoreError:
    error = named_error(pymysql.err.OperationalError(number, "text"), WHERE, "me", "z")
    assert error is not None
    return error


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (2006, StoreUnavailable, "store_unavailable"),
        (2013, StoreUnavailable, "store_unavailable"),
        (1927, StoreUnavailable, "store_unavailable"),
        (1053, StoreUnavailable, "store_unavailable"),
        (2003, StoreUnavailable, "store_unavailable"),
        (1205, StoreUnavailable, "store_unavailable"),
        (1213, StoreUnavailable, "store_unavailable"),
        (1290, StoreUnavailable, "store_readonly"),
        (1792, StoreUnavailable, "store_readonly"),
        (1836, StoreUnavailable, "store_readonly"),
        (1040, StoreUnavailable, "too_many_connections"),
        (1203, StoreUnavailable, "too_many_connections"),
        (1021, DiskFull, "disk_full"),
        (3675, DiskFull, "disk_full"),
        (1114, DiskFull, "disk_full"),
        (1406, StoreDataError, "store_data"),
        (1264, StoreDataError, "store_data"),
        (1366, StoreDataError, "store_data"),
        (1153, StoreDataError, "store_data"),
        (1062, CommitUnknown, "duplicate_key"),
        (1045, StoreError, "store_denied"),
        (1142, StoreError, "store_denied"),
        (1049, StoreError, "no_database"),
        (2026, StoreError, "store_tls"),
        (1712, StoreCorrupt, "store_corrupt"),
        (1146, StoreError, "store"),
    ],
)
def test_each_number_has_its_name(number: int, kind: type[StoreError], code: str) -> None:
    """The kind decides what the leader does, the code what people see."""
    error = named(number)
    assert (type(error), error.code) == (kind, code)
    assert "text" in str(error) or number == 1049


def test_errors_that_peewee_wrapped_keep_their_number() -> None:
    """While connecting and creating tables peewee is in between."""
    inner = pymysql.err.OperationalError(1040, "Too many connections")
    try:
        try:
            raise inner
        except pymysql.err.OperationalError:
            raise peewee.OperationalError(1040, "Too many connections")  # noqa: B904 as peewee does
    except peewee.OperationalError as error:
        store_error = named_error(error, WHERE, "me", "z")
    assert store_error is not None
    assert store_error.code == "too_many_connections"


def test_what_is_no_database_error_passes() -> None:
    """A bug stays a bug; a named error keeps its name."""
    assert named_error(KeyError("x"), WHERE, "me", "z") is None
    assert named_error(StoreError("x"), WHERE, "me", "z") is None


@pytest.mark.parametrize("number", [2006, 2013, 1927, 1053, 1180, 1317])
def test_a_commit_is_unknown_unless_the_server_said_no(number: int) -> None:
    """Also an error packet may come from a server that had committed already."""
    error = pymysql.err.OperationalError(number, "text")
    assert isinstance(commit_error(error, named(number), WHERE), CommitUnknown)


@pytest.mark.parametrize("number", [1213, 1205, 1290, 1836, 1021])
def test_a_commit_that_the_server_refused_applied_nothing(number: int) -> None:
    """The same command may work later."""
    error = pymysql.err.OperationalError(number, "text")
    assert isinstance(commit_error(error, named(number), WHERE), StoreUnavailable)
