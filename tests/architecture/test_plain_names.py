"""Names say what a value is: a few words that do not are bound as rarely as possible.

`found`, `asked`, `told` and the like say that something happened, not what the value is: a reader
has to find out whether `asked` is a counter, a list of requests or a function. This is hardest for
readers whose first language is not English. A noun for the value (`problems`, `request_count`) or a
verb for the function (`fetch_row`) costs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.architecture.test_architecture import report, sources

VAGUE = frozenset(("one", "told", "found", "asked", "wanted", "known"))

# What is left is `known` of a request: a field of the wire and a column of the database.
MOST_BINDINGS = 5


def bindings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable, attribute, argument and function that a module binds
    to a vague name."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case _:
                continue
        if name in VAGUE:
            yield node.lineno, name


def complaints(modules: Iterable[tuple[str, str]], most: int) -> list[str]:
    """Return a line for each binding if there are more than `most`."""
    places = [
        f"{path}:{line}: {name} does not say what the value is: choose a noun, or a verb for a"
        " function"
        for path, text in modules
        for line, name in sorted(bindings(text))
    ]
    return places if len(places) > most else []


def test_no_more_names_are_vague() -> None:
    """The product and the tests bind these words only for the stored field `known`."""
    report(complaints(sources("zcrawl", "console", "tests"), MOST_BINDINGS))


def test_the_limit_is_what_is_left() -> None:
    """When a binding goes, the limit follows, so that no new one takes its place."""
    texts = [text for _, text in sources("zcrawl", "console", "tests")]
    assert sum(1 for text in texts for _ in bindings(text)) == MOST_BINDINGS


def test_every_kind_of_binding_is_counted() -> None:
    """Arguments, variables, attributes, functions and targets of loops; reading is no binding."""
    module = (
        "def told(one): ...\n"
        "async def asked(*wanted, **known): ...\n"
        "found = other\n"
        "self.told = told(found)\n"
        "for one in asked: ...\n"
        "class C:\n    known: int = 0"
    )
    lines = [line for line, _ in bindings(module)]
    assert sorted(lines) == [1, 1, 2, 2, 2, 3, 4, 5, 7]
    assert len(complaints([("zcrawl/a.py", module)], 8)) == 9
    assert complaints([("zcrawl/a.py", module)], 9) == []
