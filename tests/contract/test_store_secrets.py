"""The contract of a store: sealed secrets, which each leader loads."""

from __future__ import annotations

import msgspec
import pytest

from tests.contract.store_world import World, client_action
from zcrawl.errors import Fenced
from zcrawl.store.commands import (
    ChangeSecrets,
    Loaded,
    SecretChange,
    SecretRow,
    SecretsChanged,
    TakeOver,
)


def secret(name: str, sealed: str = "sealed", **changes: object) -> SecretRow:
    row = SecretRow(name, sealed, "k1", ("a.test",), ("/bin/x *",), 7.0, "ann")
    return msgspec.structs.replace(row, **changes)


def change(
    world: World, request: str, *put: SecretRow, drop: tuple[str, ...] = (), before: str = ""
) -> SecretsChanged:
    changes = tuple(SecretChange(row, before) for row in put)
    command = ChangeSecrets(world.epoch, changes, drop, b"{}", client_action(request))
    return world.do(command, SecretsChanged)


def test_secrets_are_stored_replaced_and_removed(world: World) -> None:
    """All fields are kept, and the next leader loads the rows by name."""
    assert change(world, "a", secret("B"), secret("A")).secrets == [secret("A"), secret("B")]
    other = secret("A", "other", hosts=(), key_id="k2")
    assert change(world, "b", other, drop=("B",)).secrets == [other]
    assert world.do(TakeOver("m2", 0, world.now), Loaded).secrets == [other]


def test_a_repeat_changes_nothing(world: World) -> None:
    """The answer is stored under the request's id; a later value stays."""
    change(world, "a", secret("A", "first"))
    change(world, "b", secret("A", "second"))
    assert change(world, "a", secret("A", "first")).secrets == [secret("A", "second")]


def test_a_row_with_before_is_stored_only_over_that_row(world: World) -> None:
    """A rotation never brings back a value that was replaced or removed meanwhile."""
    change(world, "a", secret("A", "new"))
    assert change(world, "b", secret("A", "resealed"), before="old").secrets == [secret("A", "new")]
    assert change(world, "c", secret("B", "resealed"), before="old").secrets == [secret("A", "new")]
    resealed = secret("A", "resealed")
    assert change(world, "d", resealed, before="new").secrets == [resealed]


def test_an_older_leader_cannot_change_secrets(world: World) -> None:
    """The epoch fences it."""
    world.do(TakeOver("m2", 0, world.now), Loaded)
    with pytest.raises(Fenced):
        change(world, "a", secret("A"))
