"""Every store and every engine that the contract suites run on, and the web that engines meet."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.contract.store_world import World
from tests.servers.mariadb import Mariadb, find_server, mariadb
from tests.web import MisbehavingWeb
from zcrawl.fetch.general.wire import AiohttpWire
from zcrawl.fetch.http2.engine import HttpxEngine
from zcrawl.fetch.ports import Engine
from zcrawl.fetch.wire.engine import HttpEngine
from zcrawl.store.ports import Store
from zcrawl.store.sql.store import PeeweeStore, open_mysql, open_sqlite
from zcrawl.testing.store.store import FakeStore


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Mariadb]:
    """One for each process of pytest. On a machine without one: a failure where CI=true."""
    if find_server() is None and os.environ.get("CI") != "true":
        pytest.skip("no mariadbd or mysqld: `make test` installs it")
    with mariadb() as server:
        yield server


@pytest.fixture
def database(mariadb_server: Mariadb) -> Iterator[str]:
    """The name of an empty database."""
    name = mariadb_server.new_database()
    yield name
    mariadb_server.drop(name)


@pytest.fixture
def mysql_store(mariadb_server: Mariadb, database: str) -> Iterator[PeeweeStore]:
    store = open_mysql([mariadb_server.url(database)])
    yield store
    store.close()


@pytest.fixture(params=["fake", "sqlite", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "mysql":
        yield request.getfixturevalue("mysql_store")
    elif request.param == "sqlite":
        store = open_sqlite(tmp_path / "z.db")
        yield store
        store.close()
    else:
        fake = FakeStore()
        yield fake
        fake.close()
        fake.check()


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@pytest.fixture(params=[HttpEngine, AiohttpWire, HttpxEngine], ids=["http", "aiohttp", "httpx"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    async with request.param() as engine:
        yield engine


@pytest.fixture
async def web() -> AsyncIterator[MisbehavingWeb]:
    async with MisbehavingWeb(tls=True) as web:
        yield web
