"""One type name, one meaning: no name is defined in two places of zcrawl and the console."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable

from tests.architecture.test_architecture import report, sources

# Names that may be defined more than once, with the reason.
EXEMPT = {
    "Meta": "peewee reads the options of a model from an inner class of this name",
}


def type_names(text: str) -> list[str]:
    """Return the names of all classes, inner ones too, and of all type aliases of a module."""
    names = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef(name=name):
                names.append(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                names.append(name)
    return names


def complaints(modules: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each type name that is defined more than once."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in modules:
        for name in type_names(text):
            places[name].append(path)
    return [
        f"{name} is defined in {', '.join(paths)}: give each meaning a name of its own"
        for name, paths in sorted(places.items())
        if len(paths) > 1 and name not in EXEMPT
    ]


def test_every_type_name_has_one_meaning() -> None:
    """A class or a type alias of zcrawl or the console shares its name with no other one."""
    report(complaints(sources("zcrawl", "console")))


def test_every_exempt_name_is_still_defined_more_than_once() -> None:
    """The list of exempt names has no name that needs no exemption."""
    names = [name for _, text in sources("zcrawl", "console") for name in type_names(text)]
    assert [name for name in EXEMPT if names.count(name) < 2] == []


def test_a_name_with_two_meanings_is_reported() -> None:
    """A class and a type alias of one name in two modules are reported with both modules."""
    modules = [
        ("zcrawl/a.py", "class Line: ...\nclass Other:\n    class Meta: ..."),
        ("console/b.py", "Line: TypeAlias = tuple[str, ...]\nclass Third:\n    class Meta: ..."),
    ]
    assert complaints(modules) == [
        "Line is defined in zcrawl/a.py, console/b.py: give each meaning a name of its own"
    ]
