"""What a value means in secret is known in one place: all others ask by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("zcrawl", "console")
    for path in (ROOT / folder).rglob("*.py")
}

# A text that one module writes, and that no other may contain: it would be parsed there.
TEXTS = {
    "no live worker has": {"zcrawl/master/snapshot.py"},
}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each string of a module with its line, without docstrings."""
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def text_complaints(path: str, source: str) -> list[str]:
    """Return where a module contains a text that only another one may."""
    return [
        f"{path}:{line}: {text!r} is known to {', '.join(sorted(places))} only"
        for line, value in texts(source)
        for text, places in TEXTS.items()
        if text in value and path not in places
    ]


def test_no_module_parses_a_text_that_another_one_writes() -> None:
    """What a program has to know is a field beside the text."""
    assert [one for path, source in SOURCES.items() for one in text_complaints(path, source)] == []


def test_the_rule_finds_a_text_that_is_parsed() -> None:
    """The rule can fail, and a docstring does not count."""
    bad = 'def f(reason):\n    return reason.startswith("waiting: no live worker has ")\n'
    assert text_complaints("zcrawl/cli/commands/submit.py", bad) != []
    assert text_complaints("zcrawl/master/snapshot.py", bad) == []
    assert text_complaints("zcrawl/cli/main.py", '"""What no live worker has."""\n') == []
