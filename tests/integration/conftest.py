"""The servers that tests of whole clusters share: one Consul and one MariaDB for each process of
pytest. A test has a cluster name and a database of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.consul import ConsulServer, consul_server
from tests.servers.mariadb import Mariadb, mariadb


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
