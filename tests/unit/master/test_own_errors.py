"""A master's own errors are its own: named `internal_error`, with a traceback in the log."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.unit.desk_tools import leading
from tests.unit.master.test_follower import Story
from zcrawl.errors import RefusedError
from zcrawl.master.desk import actions, reads
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.views import DeskViews
from zcrawl.mesh.messages import ClientRequest

DECLARED = {  # an argument of each type
    "integer": ("failed", "run"),
    "number": ("history", "span_s"),
    "sequence": ("add_seeds", "seeds"),
    "table": ("submit", "spec"),
}
BUILTIN = (
    KeyError("x"),
    IndexError("x"),
    TypeError("x"),
    ValueError("x"),
    AttributeError("x"),
    OverflowError("x"),
    AssertionError("x"),
    RuntimeError("x"),
)


def raising(error: Exception) -> Any:
    def fails(*anything: Any, **more: Any) -> Any:
        raise error

    return fails


@pytest.mark.parametrize("error", BUILTIN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("op", "args", "place", "name"),
    [
        ("overview", {}, DeskViews, "answer"),
        ("job", {"ref": "1"}, reads, "proceed"),
        ("jobs", {}, reads, "question"),
        ("tune", {"ref": "1", "rate": 1}, actions, "tuned_spec"),
    ],
)
def test_a_bug_of_the_leader_is_not_the_clients(
    op: str,
    args: dict[str, Any],
    place: Any,
    name: str,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client hears `internal_error`, the log has the traceback, and the leader leads on."""
    story = leading("http://a.test/")
    monkeypatch.setattr(place, name, raising(error))
    reply = story.ask(op, **args)
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, "internal_error")
    (note,) = [entry for entry in story.notes if entry.name == "internal_error"]
    assert "Traceback" in note.detail
    assert type(error).__name__ in note.detail
    assert story.master.leader is not None


def test_a_bug_of_a_follower_is_not_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where no leader answers."""
    monkeypatch.setattr(reads, "question", raising(KeyError("x")))
    story = Story()
    story.ask(ClientRequest("q", "jobs", {}))
    assert story.replies() == [(b"client", False, "internal_error")]


def test_a_follower_refuses_bad_arguments_by_name() -> None:
    """A limit that is too high is refused by name, and nothing fails at it."""
    story = Story()
    story.ask(ClientRequest("q", "failed", {"run": 1, "limit": 10_000}))
    assert story.replies() == [(b"client", False, "bad_request")]


UNREADABLE: dict[str, tuple[Any, ...]] = {
    "integer": (None, "x", [], {}, b"1", math.nan, math.inf, 1 << 63, "9" * 5_000),
    "number": (None, "x", [], math.nan, 10**400),
    "sequence": (None, 5, "abc", {}, b"ab"),
    "table": (None, 5, "abc", [], {1: 2}),
}


@pytest.mark.parametrize(
    ("reader", "value"),
    [(reader, value) for reader, values in UNREADABLE.items() for value in values],
)
def test_an_argument_of_a_wrong_kind_is_refused_by_name(reader: str, value: Any) -> None:
    """With the name of the argument and what it should be; a missing one too."""
    op, name = DECLARED[reader]
    args = Arguments(ClientRequest("q", op, {name: value}))
    with pytest.raises(RefusedError, match=f"{op}: {name} must be") as refused:
        getattr(args, reader)(name)
    assert refused.value.code == "bad_request"
    with pytest.raises(RefusedError, match="act: 'ref' is missing"):
        Arguments(ClientRequest("q", "act", {}))["ref"]
