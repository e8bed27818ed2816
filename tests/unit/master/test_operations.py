"""The registry of operations: complete declarations, and nobody who requests what is not in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_never

import msgspec
import pytest

from tests.unit.desk_tools import leading
from tests.unit.machine_tools import spec, urls
from zcrawl.master import events as m
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.desk.operation import (
    OPERATIONS,
    Argument,
    EveryMaster,
    FromDatabase,
    FromMemory,
    LeaderAction,
    LeaderView,
    Operation,
    Repeat,
    Right,
    Type,
    declare,
)
from zcrawl.master.desk.operations import PAGING, find
from zcrawl.master.desk.paging import Want
from zcrawl.master.desk.queues import GROUPINGS
from zcrawl.master.desk.reads import DatabaseReads
from zcrawl.master.desk.run_actions import ACTIONS
from zcrawl.master.desk.views import DeskViews
from zcrawl.master.master import Master
from zcrawl.mesh.messages import ClientRequest
from zcrawl.mesh.roles import KeyRole

REPOSITORY = Path(__file__).resolve().parents[3]
CLIENTS = ("zcrawl/cli", "zcrawl/roles", "console")
VIEW = LeaderView(lambda views: views.overview)
VALUES: dict[str, Any] = {
    "ref": "1",
    "run": 1,
    "action": "pause",
    "node": "w1",
    "host": 1,
    "mode": "new",
    "seeds": [],
    "spec": {**msgspec.to_builtins(spec()), "name": "other"},
    "epoch": 99,
    "by": "tag",
    "worker": "w1",
    "reload": "r1",
    "name": "ann",
    "role": "viewer",
    "prefix": "zc_abcdefgh",
    "digest": "0" * 64,
    "before": 0,
    "last": 5,
    "file": "a.jsonl",
}
SAMPLES: dict[Type, Any] = {
    Type.INTEGER: 1,
    Type.NUMBER: 1.5,
    Type.TEXT: "",
    Type.FLAG: False,
    Type.LIST: [],
    Type.TABLE: {},
}


def sample(operation: Operation, *, only_required: bool) -> dict[str, Any]:
    return {
        argument.name: VALUES.get(argument.name, SAMPLES[argument.type])
        for argument in operation.arguments.values()
        if argument.required or not only_required
    }


def complete(**changes: Any) -> dict[str, Any]:
    """A declaration that has all it needs, but for the changes."""
    whole = {"right": Right.VIEWER, "repeat": Repeat.READ, "handler": VIEW, "answer": "nothing"}
    return {name: value for name, value in (whole | changes).items() if value is not None}


@pytest.mark.parametrize("left_out", ["right", "repeat", "handler", "answer"])
def test_an_operation_without_right_repeat_handler_or_answer_cannot_be_declared(
    left_out: str,
) -> None:
    """Each of them is asked of whoever adds an operation."""
    with pytest.raises(TypeError, match=left_out):
        declare("made_up", **complete(**{left_out: None}))
    assert find("made_up") is None


@pytest.mark.parametrize(
    ("name", "changes", "arguments"),
    [
        ("jobs", {}, []),
        ("made up", {}, []),
        ("made_up", {"answer": ""}, []),
        ("made_up", {"right": Right.OPERATOR}, []),
        ("made_up", {"repeat": Repeat.ANSWER_STORED}, []),
        ("made_up", {"repeat": Repeat.ANSWER_STORED, "right": Right.OPERATOR}, []),
        ("made_up", {"audited": True}, []),
        ("made_up", {}, [Argument("n", Type.TEXT), Argument("n", Type.INTEGER)]),
        ("made_up", {}, [Argument("n", Type.TEXT, required=True, default="x")]),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(
    name: str, changes: dict[str, Any], arguments: list[Argument]
) -> None:
    """A name twice, a write that a viewer may request, a read that is audited, and the like."""
    with pytest.raises(ValueError, match=f"operation '{name}'"):
        declare(name, *arguments, **complete(**changes))
    assert find("made_up") is None


def test_each_handler_exists() -> None:
    """What a declaration names is a method of the object that answers."""
    story = leading(*urls(1))
    desk, master = story.leader.desk, Master("m2", seen_slots=64)
    for operation in OPERATIONS.values():
        handler = operation.handler
        match handler:
            case EveryMaster(answer):
                parts: list[object] = [answer]
            case FromDatabase(question, answer):
                parts = [question(DatabaseReads()), answer(DatabaseReads())]
            case FromMemory(leader, follower):
                parts = [leader(desk), follower(master.follower)]
            case LeaderView(show):
                parts = [show(DeskViews(story.leader.state))]
            case LeaderAction(begin, next_step):
                parts = [begin(desk)] if next_step is None else [begin(desk), next_step(desk)]
            case _:
                assert_never(handler)
        assert all(map(callable, parts)), operation.name


@pytest.mark.parametrize("only_required", [True, False])
@pytest.mark.parametrize("name", OPERATIONS)
def test_handlers_read_declared_arguments_only(name: str, only_required: bool) -> None:
    """With the required arguments, and with all: the leader has no error of its own, and no
    argument that the declaration calls optional is missed."""
    story = leading(*urls(2))
    args = sample(OPERATIONS[name], only_required=only_required)
    if name == "submit":
        args = {key: args[key] for key in ("spec", "mode", "seeds") if key in args}
        args.setdefault("spec", VALUES["spec"])
    reply = story.ask(name, **args)
    assert reply is not None
    assert reply.data.get("code") != "internal_error", reply.data
    assert "is missing" not in str(reply.data.get("message", "")), reply.data


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_missing_required_argument_is_refused_by_name(name: str) -> None:
    """The code is `bad_request`, whichever of them is missing."""
    required = [
        argument.name for argument in OPERATIONS[name].arguments.values() if argument.required
    ]
    for left_out in required:
        story = leading(*urls(2))
        args = sample(OPERATIONS[name], only_required=True) | (
            {"spec": VALUES["spec"]} if name == "submit" else {}
        )
        del args[left_out]
        reply = story.ask(name, **args)
        assert reply is not None, (left_out, reply)
        assert reply.data.get("code") == "bad_request", (left_out, reply)


def test_an_argument_that_is_not_declared_is_a_bug_of_the_handler() -> None:
    """Otherwise docs and gateways would not know it. The same for another type."""
    args = Arguments(ClientRequest("q", "job", {"made_up": 1, "ref": "1"}))
    for read in (args.get, args.__getitem__, args.integer, args.text):
        with pytest.raises(LookupError, match="job does not declare the argument 'made_up'"):
            read("made_up")
    with pytest.raises(TypeError, match="declares ref as text"):
        args.integer("ref")


def test_an_unknown_operation_is_refused_by_name() -> None:
    """The code is `unknown_op`."""
    reply = leading(*urls(1)).ask("made_up")
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, "unknown_op")


def test_declared_choices_are_those_of_the_handlers() -> None:
    """The paging arguments, the actions of `act` and the groupings of `queues`."""
    assert tuple(argument.name for argument in PAGING) == Want.__struct_fields__
    choices = OPERATIONS["act"].arguments["action"].about.split(", ")
    assert sorted(choices) == sorted((*ACTIONS, "retry"))
    assert OPERATIONS["queues"].arguments["by"].about.split(", ") == list(GROUPINGS)


@pytest.fixture
def made() -> Iterator[str]:
    """A read that is declared for one test: it returns the declared default of its argument."""

    def show(args: Arguments, now: float) -> dict[str, Any]:
        return {"n": args.integer("n")}

    name = declare(
        "made_up",
        Argument("n", Type.INTEGER, default=7),
        **complete(handler=LeaderView(lambda views: show)),
    )
    yield name
    del OPERATIONS[name]


def test_a_new_operation_is_a_declaration_and_a_handler(made: str) -> None:
    """The desk answers it, a viewer may request it, a worker may not, bad arguments are named."""
    story = leading(*urls(1))
    codes = {}
    for role in (KeyRole.VIEWER, KeyRole.WORKER):
        story.handle(m.ClientAsked(b"c", ClientRequest(f"q-{role}", made, {}, role=role)))
        codes[role] = story.replies[-1].data
    assert codes[KeyRole.VIEWER] == {"n": 7}
    assert codes[KeyRole.WORKER]["code"] == "forbidden"
    reply = story.ask(made, n="x")
    assert reply is not None
    assert reply.data["code"] == "bad_request"


def requests_in(source: str) -> Iterator[tuple[str, list[str]]]:
    """The operations that a source asks for by a literal name, with the literal arguments."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Name(id="ask" | "asked") | ast.Attribute(attr="ask" | "asked"),
                args=[ast.Constant(value=str(name)), *rest],
            ):
                tables = [table for argument in rest for table in ast.walk(argument)]
                keys = [k for table in tables if isinstance(table, ast.Dict) for k in table.keys]
                yield name, [key.value for key in keys if isinstance(key, ast.Constant)]  # type: ignore[misc]
            case _:
                pass


def test_commands_and_consoles_request_what_is_declared() -> None:
    """Each operation and each argument that they name is in the registry."""
    requests = [
        (path, request)
        for folder in CLIENTS
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        for request in requests_in(path.read_text("utf-8"))
    ]
    assert len(requests) > 10
    for path, (name, keys) in requests:
        operation = find(name)
        assert operation is not None, (path, name)
        assert set(keys) <= operation.arguments.keys(), (path, name, keys)
