"""The rule "state has one owner" as a function from source text to complaints.

The classes of `OWNERS` hold state that several modules read. Only the module that defines a class
writes its fields; all others call its methods. `test_architecture.py` applies the rule to the
repository, `test_rules_can_fail.py` to bad sources.

An expression holds such a state by its name (`state`, `self._state`, `host`, `part`), by its
annotation, or because it was taken out of a table of them (`self.hosts[id]`, `for part in
host.parts.values()`). A field that is a container is also followed through a local name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias


class Owner(NamedTuple):
    """A class with state of its own, and how other modules name its instances."""

    path: str  # the module that may write
    names: frozenset[str] = frozenset()  # of variables
    attributes: frozenset[str] = frozenset()  # of other objects that hold an instance
    tables: frozenset[str] = frozenset()  # fields that hold many of them


OWNERS = {
    "LeaderState": Owner(
        "zcrawl/master/leader_state.py",
        names=frozenset({"state"}),
        attributes=frozenset({"state", "_state"}),
    ),
    "RunTally": Owner(
        "zcrawl/master/leader_state.py",
        names=frozenset({"tally"}),
        tables=frozenset({"tallies"}),
    ),
    "HostState": Owner(
        "zcrawl/dispatch/host_state.py",
        names=frozenset({"host", "host_state"}),
        tables=frozenset({"hosts", "_hosts"}),
    ),
    "Part": Owner(
        "zcrawl/dispatch/host_state.py",
        names=frozenset({"part"}),
        tables=frozenset({"parts"}),
    ),
}
# Elsewhere `state` and `host` are the names of other things. Annotations count everywhere.
FOLDERS = ("zcrawl/dispatch/", "zcrawl/master/", "zcrawl/testing/")
ROWS = "zcrawl/testing/store/"  # its hosts are rows of a database

CONTAINERS = frozenset({"Counter", "defaultdict", "deque", "dict", "list", "set"})
# Structs that belong to their holder: writing `host.pace.next_at` writes the host. (`host.clan` and
# `host.groups` are shared by hosts, and belong to `shared_limits`.)
VALUES = frozenset({"Pace", "Demand"})
MUTATORS = frozenset({
    "add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "insert",
    "intersection_update", "pop", "popitem", "popleft", "remove", "reverse", "setdefault", "sort",
    "subtract", "symmetric_difference_update", "take", "update",
})  # fmt: skip
LOOKUPS = frozenset({"get", "items", "pop", "setdefault", "values"})

Fields: TypeAlias = Mapping[str, Mapping[str, str]]  # class → field → first word of its type


def fields_of(repository: Path) -> Fields:
    """The fields of each class in `OWNERS`, as its module declares them."""
    return {
        name: _declared(ast.parse((repository / owner.path).read_text(encoding="utf-8")), name)
        for name, owner in OWNERS.items()
    }


def _declared(tree: ast.Module, name: str) -> dict[str, str]:
    (body,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    fields = {}
    for node in ast.walk(body):
        match node:
            case ast.AnnAssign(target=ast.Name(id=field), annotation=annotation):
                fields[field] = _first_word(annotation)
            case ast.AnnAssign(
                target=ast.Attribute(value=ast.Name(id="self"), attr=field), annotation=annotation
            ):
                fields[field] = _first_word(annotation)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=field)]):
                fields.setdefault(field, "")
            case _:
                pass
    return fields


def _first_word(annotation: ast.expr) -> str:
    """`dict` of `dict[int, str]`, `Clan` of `Clan | None`."""
    return ast.unparse(annotation).partition("[")[0].partition(" ")[0].strip("'\"")


def owner_complaints(path: str, source: str, fields: Fields) -> list[str]:
    """Writes to the fields of a class of `OWNERS` by a module that does not define it."""
    tree = ast.parse(source)
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    nested = {id(inner) for outer in functions for inner in ast.walk(outer) if inner is not outer}
    complaints = [
        f"{path}:{line}: writes {text}; {OWNERS[kind].path} owns {kind}"
        for function in functions
        if id(function) not in nested
        for line, text, kind in _Scope(path, function, fields).writes()
        if OWNERS[kind].path != path
    ]
    return sorted(complaints, key=lambda line: int(line.split(":")[1]))


class _Scope:
    """One function: which of its expressions hold owned state, and what it writes there."""

    def __init__(self, path: str, function: ast.AST, fields: Fields) -> None:
        self._by_name = path.startswith(FOLDERS) and not path.startswith(ROWS)
        self._fields = fields
        self._function = function
        self._kinds: dict[str, str] = {}  # local name → class that it holds
        self._aliases: dict[str, tuple[str, str]] = {}  # local name → class and field
        for node in ast.walk(function):
            match node:
                case ast.arg(arg=name, annotation=ast.expr() as annotation):
                    self._annotated(name, annotation)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    self._annotated(name, annotation)
                case _:
                    pass
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._bind(target, value)
                case (
                    ast.NamedExpr(target=target, value=value)
                    | ast.For(target=target, iter=value)
                    | ast.comprehension(target=target, iter=value)
                ):
                    self._bind(target, value)
                case _:
                    pass

    def _annotated(self, name: str, annotation: ast.expr) -> None:
        if (word := _first_word(annotation)) in OWNERS:
            self._kinds[name] = word

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                for each, part in zip(target.elts, value.elts, strict=True):
                    self._bind(each, part)
                return
            target = target.elts[-1]  # of `for key, value in table.items()`
        if not isinstance(target, ast.Name):
            return
        if isinstance(value, ast.IfExp):
            value = value.body
        kind = self._kind(value)
        field = self._container(value)
        if kind is not None:
            self._kinds[target.id] = kind
        elif field is not None:
            self._aliases[target.id] = field

    def _kind(self, node: ast.expr) -> str | None:
        """The class whose instance this expression is."""
        match node:
            case ast.Name(id=name):
                if name in self._kinds:
                    return self._kinds[name]
                return self._named(name, "names")
            case ast.Attribute(attr=name):
                return self._named(name, "attributes")
            case ast.Subscript(value=table):
                return self._in_table(table)
            case ast.Call(func=ast.Attribute(value=table, attr=name)) if name in LOOKUPS:
                return self._in_table(table)
            case ast.Call(func=ast.Name(id="list" | "sorted" | "tuple"), args=[inner, *_]):
                return self._kind(inner)
            case _:
                return None

    def _named(self, name: str, how: str) -> str | None:
        if not self._by_name:
            return None
        return next((kind for kind, owner in OWNERS.items() if name in getattr(owner, how)), None)

    def _in_table(self, table: ast.expr) -> str | None:
        return self._named(table.attr, "tables") if isinstance(table, ast.Attribute) else None

    def _field(self, node: ast.expr) -> tuple[str, str] | None:
        """Class and field of `state.field`."""
        match node:
            case ast.Attribute(value=value, attr=name):
                kind = self._kind(value)
                if kind is not None and name in self._fields[kind]:
                    return kind, name
            case _:
                pass
        return None

    def _container(self, node: ast.expr) -> tuple[str, str] | None:
        """Class and field of `state.field`, `state.field[key]`, `state.field.get(key)`, and of a
        local name for one of them, where the field is a container or a value of its holder."""
        match node:
            case ast.Name(id=name):
                return self._aliases.get(name)
            case ast.Subscript(value=inner):
                return self._container(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in LOOKUPS:
                return self._container(inner)
            case ast.Attribute():
                field = self._field(node)
                if field is not None:
                    word = self._fields[field[0]][field[1]]
                    return field if word in CONTAINERS | VALUES else None
            case _:
                pass
        return None

    def writes(self) -> Iterator[tuple[int, str, str]]:
        """Line, text and class of each write."""
        for node in ast.walk(self._function):
            match node:
                case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                    pass
                case ast.AugAssign(target=target) | ast.For(target=target):
                    targets = [target]
                case ast.AnnAssign(target=target):
                    targets = [target]
                case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in MUTATORS and (
                    field := self._container(inner)
                ):
                    yield node.lineno, f"{ast.unparse(inner)}.{name}()", field[0]
                    continue
                case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[inner, *_]) if (
                    kind := self._kind(inner)
                ):
                    yield node.lineno, ast.unparse(node), kind
                    continue
                case _:
                    continue
            for target in targets:
                for each in _flat(target):
                    if (field := self._target(each)) is not None:
                        yield node.lineno, ast.unparse(each), field[0]

    def _target(self, target: ast.expr) -> tuple[str, str] | None:
        match target:
            case ast.Attribute(value=value):
                return self._field(target) or self._container(value)
            case ast.Subscript(value=value):
                return self._container(value)
            case _:
                return None


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _flat(each)
    else:
        yield target
