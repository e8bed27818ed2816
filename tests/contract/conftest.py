"""Every store that the contract suites run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.store_world import World
from zcrawl.store.ports import Store
from zcrawl.store.store_peewee import open_sqlite
from zcrawl.testing.fake_store import FakeStore


@pytest.fixture(params=["fake", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = FakeStore() if request.param == "fake" else open_sqlite(tmp_path / "z.db")
    yield store
    store.close()
    if isinstance(store, FakeStore):
        store.check()


@pytest.fixture
def world(store: Store) -> World:
    return World(store)
