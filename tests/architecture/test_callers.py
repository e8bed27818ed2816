"""What a module's docstring says of its callers is true."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_CLAIM = re.compile(
    r"\b(?:Called|Used|Asked|Kept|Made)(?: \w+)?(?P<who> by\b(?:[^.:;`]|`[^`]*`)*)", re.IGNORECASE
)
# What follows says when or what for, and names no caller until the next "by".
_CIRCUMSTANCE = re.compile(r"\b(?:for|when|before|in|with|once|so)\b")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class SourceModule(NamedTuple):
    docstring: str
    imports: set[str]  # of names that may be modules


@functools.cache  # read by the tests: each process of pytest imports this module
def modules() -> dict[str, SourceModule]:
    return {
        module_name(path): _read(path)
        for folder in ("zcrawl", "console")
        for path in (ROOT / folder).rglob("*.py")
    }


def _read(path: Path) -> SourceModule:
    tree = ast.parse(path.read_text())
    return SourceModule(ast.get_docstring(tree) or "", set(imports_of(tree)))


def imports_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def named_callers(docstring: str) -> Iterator[str]:
    """Yield the names in backticks that a docstring calls its callers."""
    for claim in _CLAIM.finditer(docstring):
        for part in re.split(r"\bby\b", claim["who"]):
            yield from re.findall(r"`([\w.]+)`", _CIRCUMSTANCE.split(part)[0])


def imports(caller: str, module: str) -> bool:
    """Return whether a module, or any module of a package, imports `module`; a command may do so
    through others."""
    if not caller.startswith("zcrawl.cli.commands."):
        inside = (name for name in modules() if name == caller or name.startswith(f"{caller}."))
        return any(module in modules()[name].imports for name in inside if name != module)
    reached, waiting = {caller}, [caller]
    while waiting:
        new = modules()[waiting.pop()].imports & modules().keys() - reached
        reached |= new
        waiting += new
    return module in reached


def false_callers(module: str, docstring: str) -> list[str]:
    """Return the named callers that do not import the module.

    A name that no module has (a function, a file) is not judged.
    """
    callers = []
    for name in named_callers(docstring):
        meant = [other for other in modules() if other == name or other.endswith(f".{name}")]
        if meant and not any(imports(other, module) for other in meant):
            callers.append(name)
    return callers


def test_a_caller_that_a_docstring_names_imports_the_module() -> None:
    """`Called by x` sends a reader to x: x has to be there, and to import this module."""
    complaints = {
        name: callers
        for name, module in modules().items()
        if (callers := false_callers(name, module.docstring))
    }
    assert complaints == {}


def test_the_rule_finds_a_caller_that_is_none() -> None:
    """The rule can fail: for another module, for the module itself, and after a true caller."""
    assert false_callers("zcrawl.frontier.retry", "Called by `result.plan`.") == []
    assert false_callers("zcrawl.frontier.retry", "Called by `frontier.frontier`.") != []
    assert false_callers("zcrawl.frontier.retry", "Called by `frontier.retry`.") != []
    both = "Called by `result.plan` for results, and by `dispatch.planner` for hosts."
    assert false_callers("zcrawl.frontier.retry", both) == ["dispatch.planner"]
