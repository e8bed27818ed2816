"""Texts for users have usual words: what a reader stumbled over does not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PRODUCT = Path(__file__).resolve().parents[3] / "zcrawl"
NO_MESSAGES = ("demo", "testing")  # the texts of the demo's pages, and what tests assert
# `continue` instead of `go on`, `says` or `shows` of what is not a person.
STUMBLES = re.compile(r"\b(go on|goes on|went on|shall|bears?|tells)\b", re.IGNORECASE)


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings of a module, of docstrings only those that `--help` shows."""
    shown = (ast.AsyncFunctionDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, *shown))
        and isinstance(node.body[0], ast.Expr)
        and not (isinstance(node, shown) and node.name.endswith("_command"))
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for node in constants:
        if isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_messages_use_usual_words() -> None:
    """Messages, reasons, remedies and the help of commands."""
    modules = [
        path
        for path in PRODUCT.rglob("*.py")
        if path.relative_to(PRODUCT).parts[0] not in NO_MESSAGES
    ]
    assert modules
    wrong = [
        f"{path.relative_to(PRODUCT)}:{line}: {text}"
        for path in modules
        for line, text in texts(ast.parse(path.read_text()))
        if STUMBLES.search(text)
    ]
    assert wrong == []
