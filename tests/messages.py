"""Lists every message that a user can meet: `python -m tests.messages [FOLDER...]`.

One line each, `file:line  kind  text`, with `{}` where a value goes. Read them one by one after a
change: what happened, why, what to do, with the value and the place.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from zcrawl import errors

PLACES = ("zcrawl/cli", "zcrawl/submit", "zcrawl/config.py", "zcrawl/roles", "zcrawl/plugins.py")
# Functions whose first argument is said to the user.
SAYING = {"note", "note_if", "fail", "page"}
ERRORS = {name for name in vars(errors) if isinstance(getattr(errors, name), type)} | {
    "ValueError",
    "UsageError",
    "BadParameter",
    "ClickException",
}


def messages(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, error or function, text) of each message in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in ERRORS or name in SAYING:
            text = template(node.args[0])
            if text.strip("{} "):
                yield node.lineno, name, text


def template(node: ast.expr) -> str:
    """The text of an expression, with {} for what is known only when it runs."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(template(value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{template(body)} | {template(orelse)}"
    return "{}"


def files(places: list[str]) -> Iterator[Path]:
    for place in map(Path, places):
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


def main(places: list[str]) -> None:
    for path in files(places or list(PLACES)):
        for line, name, text in sorted(messages(path)):
            print(f"{path}:{line}  {name}  {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
