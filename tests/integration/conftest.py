"""The servers that tests of whole clusters share: one Consul and one MariaDB for each process of
pytest. A test has a cluster name and a database of its own; S3 is new for each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.contract.coord_backends import ConsulBackend
from tests.servers.consul import ConsulServer, consul_server
from tests.servers.mariadb import Mariadb, mariadb
from tests.servers.s3 import s3_server
from zcrawl.coord.agents.consul_client import ConsulSettings


@pytest.fixture(scope="session")
def consul() -> Iterator[ConsulServer]:
    """For tests that leave it as it is."""
    with consul_server() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[Mariadb]:
    """For tests that leave it as it is."""
    with mariadb() as server:
        yield server


@pytest.fixture
async def backend(consul: ConsulServer) -> AsyncIterator[ConsulBackend]:
    backend = ConsulBackend(ConsulSettings(consul.url))
    yield backend
    await backend.end()


@pytest.fixture
def own_consul() -> Iterator[ConsulServer]:
    """For tests that stop it."""
    with consul_server() as server:
        yield server


@pytest.fixture
async def own_backend(own_consul: ConsulServer) -> AsyncIterator[ConsulBackend]:
    backend = ConsulBackend(ConsulSettings(own_consul.url))
    yield backend
    await backend.end()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For commands that this test starts."""
    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield
