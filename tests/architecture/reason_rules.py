"""The rule that reasons live in the registry, as a function from source text to complaints.

Two tests find a reason that is written out as a literal:

1. Any literal that is a registered code, wherever it stands, unless the code is an ordinary word
   that also means something else (`job`, `browser`), or the literal names a log event.
2. Any literal of the form of a code (lower-case words with underscores) in a place where only a
   reason can stand: `code=`, `reason =`, `error.code ==`, an argument of `fetch_error` and the
   like. This one finds codes that nobody has registered, and ordinary words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from zcrawl.model.reasons.registry import find_reason

REGISTRY = "zcrawl/model/reasons/"

# Codes that are also ordinary words of the source: keys of jobs and configurations, states,
# columns, names of commands. Only the second test finds these.
# fmt: off
ORDINARY = frozenset({
    "away", "browser", "cancelled", "canonical", "completed", "concurrency", "config", "connect",
    "connect_timeout", "crawl_delay", "deleted", "dns", "drained", "draining", "due", "duplicate",
    "engine", "error", "fetch", "fetching", "http", "http2", "idle", "interrupted", "job",
    "max_pages", "mesh", "noindex", "paused", "plugin", "proxy", "refused", "required",
    "retry",
    "robots", "schema", "sitemap", "skipped", "start", "throttled", "unchanged",
    "unreadable", "version",
})
# fmt: on

# Sentences that begin like a reason with a parameter.
SENTENCES = {
    "zcrawl/store/sql/dialects/sqlite_files.py": "lacks ",
}

# Names of values that are reasons, and functions with the position of the reason among their
# arguments.
HOLDERS = frozenset({"code", "reason", "refusal", "refused"})
TAKERS = {
    "fetch_error": 0,
    "Why": 0,
    "Stale": 0,
    "Bye": 0,
    "RunChanged": 0,
    "Retried": 0,
    "Submitted": 2,
    "skipped": 0,
    "failed": 0,
    "handed_over": 1,
    "_fail": 1,
    "_bad": 1,
    "_reject": 2,
    "_failed": 0,
}
# Their first argument is the name of an event.
TELLERS = frozenset({"Note", "note", "_note", "log", "_log", "tell", "_tell", "on_error"})

CODE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def reason_complaints(path: str, source: str) -> list[str]:
    """Reasons of a module of the product that are written out instead of imported."""
    if path.startswith(REGISTRY):
        return []
    return [
        f"{path}:{literal.lineno}: {literal.value!r} is a reason; import it from "
        f"zcrawl.model.reasons"
        for literal in literal_reasons(source)
        if path not in SENTENCES or not _text(literal).startswith(SENTENCES[path])
    ]


def literal_reasons(source: str) -> list[ast.Constant]:
    """The literals of a module that are reasons, in the order of the source."""
    tree = ast.parse(source)
    events = set(map(id, _events(tree)))
    nodes = {id(node): node for node in _in_reason_positions(tree) if CODE.fullmatch(_text(node))}
    imported = _imported_reasons(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and _is_reason(_text(node)):
            nodes[id(node)] = node
        nodes |= {id(literal): literal for literal in _beside_reasons(node, imported)}
    literals = [node for node in nodes.values() if id(node) not in events]
    return sorted(literals, key=lambda node: (node.lineno, node.col_offset))


def _is_reason(text: str) -> bool:
    """Whether a text is a registered reason (`http_404` too) and cannot mean anything else."""
    return bool(text) and text not in ORDINARY and find_reason(text) is not None


def _text(node: ast.AST) -> str:
    """The text of a literal; of anything else nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _events(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _name(node.func) in TELLERS:
            yield node.args[0]


def _in_reason_positions(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                yield from (
                    literal
                    for keyword in keywords
                    if keyword.arg in HOLDERS
                    for literal in _literals(keyword.value)
                )
                at = TAKERS.get(_name(func), len(args))
                if at < len(args):
                    yield from _literals(args[at])
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _assigned(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _assigned(target, value)
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(_holds_reason(side) for side in sides):
                    yield from (literal for side in sides for literal in _literals(side))
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is not None and _text(key) == "code":
                        yield from _literals(value)
            case _:
                pass


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[ast.Constant]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, its_value in zip(target.elts, value.elts, strict=False):
            yield from _assigned(part, its_value)
    elif _holds_reason(target):
        yield from _literals(value)


def _holds_reason(node: ast.expr) -> bool:
    """Whether a value is a reason by its name: `code`, `error.code`, `report["reason"]`."""
    if isinstance(node, ast.Subscript):
        return _text(node.slice) in HOLDERS
    return _name(node) in HOLDERS


def _literals(value: ast.expr) -> Iterator[ast.Constant]:
    """The texts that an expression may be: a literal, both arms of a choice, each of several."""
    match value:
        case ast.Constant(value=str(text)) if text:
            yield value
        case ast.IfExp(body=body, orelse=other):
            yield from _literals(body)
            yield from _literals(other)
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            for part in parts:
                yield from _literals(part)
        case _:
            pass


def _imported_reasons(tree: ast.AST) -> set[str]:
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("zcrawl.model.reasons")
        for alias in node.names
    }


def _beside_reasons(node: ast.AST, imported: set[str]) -> Iterator[ast.Constant]:
    """The literals of a collection that has members of the registry, too."""
    match node:
        case ast.Set(elts=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case ast.Dict(keys=keys):
            parts = [key for key in keys if key is not None]
        case _:
            return
    if sum(isinstance(part, ast.Name) and part.id in imported for part in parts) > 1:
        yield from (
            part
            for part in parts
            if isinstance(part, ast.Constant) and find_reason(_text(part)) is not None
        )


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
