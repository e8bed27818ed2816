"""Every event that somebody logs is a sentence on the screen."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import zcrawl
from zcrawl.mesh.border import Refusal
from zcrawl.model.event_text import EVENT_TEXTS, FAMILY_TEXTS, event_text
from zcrawl.model.log_event import declared_events
from zcrawl.model.states import JobState, RunState
from zcrawl.runtime.loop import in_full

ROOT = Path(zcrawl.__file__).parent
# How an event is logged: by a machine's effect, a method of its driver, or a function passed in.
LOGGING = frozenset(
    {"Note", "note", "_note", "_log", "log", "_tell", "tell", "_on_error", "quietly", "exception"}
)
# Calls of these names that are not about events.
OTHERS = frozenset(
    {"zcrawl/cli/output.py", "zcrawl/runtime/notify.py", "zcrawl/coord/agents/consul.py"}
    | {"zcrawl/roles/probe.py"}
)


def logged() -> Iterator[tuple[str, ast.expr]]:
    """The module and the name's expression of each call that logs."""
    for path in sorted(ROOT.rglob("*.py")):
        place = str(path.relative_to(ROOT.parent))
        if "testing" in path.parts or place in OTHERS:
            continue
        module = place.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and _name(node.func) in LOGGING:
                called = ast.unparse(node.func)
                if not called.startswith(("output.", "math.", "self._display.")):
                    yield module, node.args[0]


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def event_names() -> set[str]:
    """The names that calls have as a text or as a constant, and those that are declared."""
    names = set(declared_events()) | {refusal.value for refusal in Refusal}
    names |= {f"run_{state}" for state in RunState} | {"run_tuned"}
    names |= {f"job_{state}" for state in JobState}
    for module, expression in logged():
        parts = [expression]
        if isinstance(expression, ast.IfExp):
            parts = [expression.body, expression.orelse]
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                names.add(part.value)
            elif isinstance(part, ast.Name) and part.id.isupper():
                names.add(str(getattr(importlib.import_module(module), part.id)))
    return names


def test_every_event_has_a_sentence() -> None:
    """A new event is missing here until its text is in the table."""
    names = event_names()
    assert len(names) > 80
    assert {"told_stale", "wrong_route", "store_behind", "follows"} <= names
    families = tuple(FAMILY_TEXTS)
    assert (
        sorted(name for name in names - EVENT_TEXTS.keys() if not name.startswith(families)) == []
    )


def test_the_table_has_no_event_that_nobody_logs() -> None:
    """An entry for nothing would hide a name that was mistyped."""
    assert sorted(EVENT_TEXTS.keys() - event_names()) == []


def test_families_begin_as_the_names_that_are_put_together() -> None:
    """`store_` and the code of an error, and so on: no name is made in another way."""
    made = {
        ast.unparse(expression)
        for _, expression in logged()
        if isinstance(expression, ast.JoinedStr | ast.Call)
    }
    families = {"store_event(error.code)", "commit_event(error.code)"}
    made_up = {"f'output_{code}'", "f'run_{what}'", "f'job_{state}'"}
    assert made == families | made_up | {"f'retention_{problem.code}'"}


@pytest.mark.parametrize(
    ("name", "detail", "sentence"),
    [
        ("worker_joined", "w1 joined with 4 slots", "w1 joined with 4 slots"),
        ("wrong_route", "w1: RESULT", "ignored a message from another process than the one that"),
        ("store_unavailable", "Commit: disk full", "the database failed: Commit: disk full"),
        ("stale_epoch_dropped", "", "ignored a message of an older epoch"),
        ("exit", "", "this process ends"),
        ("bad_spec", "the field 'x' is missing", "the field 'x' is missing"),
        ("unknown_here", "", "unknown here"),
    ],
)
def test_a_sentence_is_made_of_name_and_detail(name: str, detail: str, sentence: str) -> None:
    """Names of errors have their message; without a detail the text stands alone."""
    assert event_text(name, detail).startswith(sentence)


def test_an_error_is_before_its_traceback() -> None:
    """Displays cut long texts, and the error is the last line of a traceback."""
    try:
        raise KeyError("price")
    except KeyError as error:
        text = event_text("task_failed", f"pump: {in_full(error)}")
    assert text.startswith(
        "internal error in a background task: pump: KeyError: 'price'\nTraceback"
    )
