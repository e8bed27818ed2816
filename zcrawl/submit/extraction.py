"""The `[extract]` part of a job file: which pages, which fields, which links. Types and key checks.

Called by `validate`, before and after the whole job is read. Pure. The short forms that a job file
allows (`title = "h1"`, one `[extract]` table, `follow = ["a.next"]`) become the long ones here, so
that other modules need only know the long ones. docs/extraction.md explains each key. Patterns and
paths are checked here, selectors in `parse.extract.plan`, because the leader has no HTML parser.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.extraction import (
    Block,
    Field,
    FieldType,
    Follow,
    ItemRule,
    Match,
    PageFact,
    Structured,
)
from zcrawl.model.reasons.usage import (
    BAD_CHOICE,
    BAD_EXPRESSION,
    BAD_PATH,
    NO_SUCH_FIELD,
    UNKNOWN_KEY,
)
from zcrawl.submit.keys import word_for
from zcrawl.text.expressions import compile_path, compile_pattern
from zcrawl.text.spelling import near_names

MAX_BLOCKS: Final = 100
MAX_FIELDS: Final = 500  # in one block, with those inside of others
MAX_JOB_FIELDS: Final = 2_000  # in all blocks together
MAX_RULES: Final = 1_000  # `follow` of all blocks together
MAX_NESTING: Final = 8
MAX_EXPRESSION: Final = 1_000  # characters of a selector, a pattern or a path
MAX_PROGRAM: Final = 50_000  # instructions of all patterns of a job together
MAX_PATHS: Final = 50_000  # characters of all JMESPath expressions of a job together
MAX_NAME: Final = 60
_CHOICES: Final = {"type": get_args(FieldType), "page": get_args(PageFact)}
_PATHS: Final = ("json", "jsonld", "microdata")  # JMESPath
ADDED: Final = ("url", "duplicate_of")  # added to every item that has no field of that name
SOURCES: Final = ("css", "json", "jsonld", "opengraph", "microdata", "page", "main")


_BELOW_FIELDS: Final = "; fields of an item are written below [extract.fields]"
# Names that other tools use for a key of a field, a rule or a block.
_FOREIGN: Final = {
    "selector": "css",
    "path": "json",
    "regex": "re",
    "pattern": "re",
    "attribute": "attr",
    "multiple": "list",
    "many": "list",
    "next": "paging",
}
_SHORT: Final = {"match": "url", "item": "css"}


def expand(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the job's table with short forms expanded; refuse unknown keys of `extract`."""
    given = data.get("extract")
    if given is None:
        return dict(data)
    blocks = [given] if isinstance(given, Mapping) else given
    if not isinstance(blocks, list | tuple) or not all(
        isinstance(table, Mapping) for table in blocks
    ):
        raise JobError(
            f"{source}: 'extract' is a section: write [extract], or [[extract]] for each of several"
        )
    if len(blocks) > MAX_BLOCKS:
        raise JobError(f"{source}: {len(blocks)} [[extract]] blocks; at most {MAX_BLOCKS}")
    # Counted before anything is expanded, because the leader does that in its event loop.
    for key, count, most in (
        ("fields", sum(_count_fields(block.get("fields"), 1) for block in blocks), MAX_JOB_FIELDS),
        ("follow", sum(_count_rules(block.get("follow")) for block in blocks), MAX_RULES),
    ):
        if count > most:
            raise JobError(f"{source}: extract has {count} entries in '{key}'; at most {most}")
    single = isinstance(given, Mapping)
    long = [
        _block(block, "extract" if single else f"extract[{number}]", source)
        for number, block in enumerate(blocks, 1)
    ]
    return {**data, "extract": long}


def _count_fields(fields: Any, level: int) -> int:
    """Return the number of fields, with those inside of others as deep as they may nest."""
    if not isinstance(fields, Mapping) or level > MAX_NESTING:
        return 0
    inner = (field.get("fields") for field in fields.values() if isinstance(field, Mapping))
    return len(fields) + sum(_count_fields(table, level + 1) for table in inner)


def _count_rules(follow: Any) -> int:
    return len(follow) if isinstance(follow, list | tuple) else 1


def _block(block: Mapping[str, Any], path: str, source: str) -> dict[str, Any]:
    _known(block, Block, path, source)
    long = dict(block)
    for key, meaning in _SHORT.items():
        if isinstance(long.get(key), str):
            long[key] = {meaning: long[key]}
        elif isinstance(long.get(key), Mapping):
            _known(long[key], Match if key == "match" else ItemRule, f"{path}.{key}", source)
    if isinstance(long.get("fields"), Mapping):
        long["fields"] = _fields(long["fields"], f"{path}.fields", source, 1)
    structured = long.get("structured")
    for kind in structured if isinstance(structured, list | tuple) else ():
        _one_of(kind, get_args(Structured), f"{path}.structured", source)
    follow = long.get("follow")
    if isinstance(follow, str | Mapping):
        follow = [follow]
    if isinstance(follow, list | tuple):
        long["follow"] = [{"css": rule} if isinstance(rule, str) else rule for rule in follow]
        for number, rule in enumerate(long["follow"], 1):
            if isinstance(rule, Mapping):
                _known(rule, Follow, f"{path}.follow[{number}]", source)
    return long


def _fields(fields: Mapping[str, Any], path: str, source: str, level: int) -> dict[str, Any]:
    if level > MAX_NESTING:
        raise JobError(f"{source}: {path}: fields within fields, more than {MAX_NESTING} deep")
    long: dict[str, Any] = {}
    for name, field in fields.items():
        here = f"{path}.{name}"
        if isinstance(field, str):
            field = {"css": field}
        if not isinstance(field, Mapping):
            raise JobError(
                f"{source}: {here} is {word_for(field)}; write a CSS selector in quotes, or a "
                'table such as { css = "h1", type = "text" }'
            )
        _known(field, Field, here, source)
        for key, choices in _CHOICES.items():
            _one_of(field.get(key), choices, f"{here}.{key}", source)
        if isinstance(field.get("fields"), Mapping):
            inner = _fields(field["fields"], f"{here}.fields", source, level + 1)
            field = {**field, "fields": inner}
        long[name] = field
    return long


def _known(table: Mapping[str, Any], schema: type[msgspec.Struct], path: str, source: str) -> None:
    names = _names_of(schema)
    for key in table:
        if key not in names:
            if key == "xpath":
                meant = '; XPath is not supported, write css = "..."'
            elif schema is Block and isinstance(table[key], str | Mapping):
                close = near_names(str(key), names, cutoff=0.8)
                meant = f"; did you mean '{path}.{close[0]}'?" if close else _BELOW_FIELDS
            else:
                close = near_names(str(key), names, cutoff=0.5)
                hint = _FOREIGN.get(str(key)) or (close[0] if close else "")
                meant = f"; did you mean '{path}.{hint}'?" if hint else f"; known: {_list(names)}"
            raise JobError(f"{source}: unknown key '{path}.{key}'{meant}", code=UNKNOWN_KEY)


@functools.cache  # read for each field of a job
def _names_of(schema: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(schema))


def _one_of(value: Any, choices: tuple[str, ...], path: str, source: str) -> None:
    """Check a text against its choices. A value of another type is refused elsewhere."""
    if isinstance(value, str) and value not in choices:
        close = near_names(value.lower(), choices, cutoff=0.5)
        meant = f"did you mean {close[0]!r}?" if close else f"use one of {_list([*choices])}"
        raise JobError(f"{source}: {path}: {value!r} does not exist; {meant}", code=BAD_CHOICE)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


# ---------------------------------------------------------------- values that make no sense


def check_blocks(blocks: tuple[Block, ...]) -> None:
    """Raise JobError for blocks whose values contradict each other."""
    names = [block.name for block in blocks if block.name]
    for number, block in enumerate(blocks, 1):
        path = block_path(number, len(blocks))
        if len(block.name) > MAX_NAME or not block.name.isprintable():
            raise JobError(f"{path}.name is longer than {MAX_NAME} characters or not printable")
        if block.name and names.count(block.name) > 1:
            raise JobError(
                f"{path}.name: two blocks are named {block.name!r}; give each a name of its own"
            )
        if block.item.css and block.item.json:
            raise JobError(
                f"{path}.item has css and json; keep css for HTML pages, or json for JSON pages"
            )
        _check_fields(block, path)
        for place, rule in enumerate(block.follow or (), 1):
            _check_follow(rule, names, f"{path}.follow[{place}]")


_OF_BLOCK: Final = "the block has no field {!r}; it has"
_OF_JOB: Final = "no block fills the field {!r}; the [extract] blocks have"
_OF_FIELD: Final = "the object has no field {!r}; it has"


def check_schema_fields(blocks: tuple[Block, ...], schema: Mapping[str, Any]) -> None:
    """Raise JobError for a field of a schema that no block fills. Otherwise each item would break
    the rule, or it would never be used. `schema` is that of the job, for blocks without their own.

    Called by clients only, so that jobs stored by an older client still run."""
    by_job: dict[str, Mapping[str, Any]] = {}
    for number, block in enumerate(blocks, 1):
        path = block_path(number, len(blocks))
        if block.schema:
            _check_schema(block.schema, f"{path}.schema", _filled(block), _OF_BLOCK)
        else:
            by_job |= _filled(block)
    if blocks and any(not block.schema for block in blocks):
        _check_schema(schema, "schema", by_job, _OF_JOB)


def _filled(block: Block) -> dict[str, Mapping[str, Any]]:
    """Return the fields of a block's items, each with its inner fields."""
    fields: dict[str, Mapping[str, Any]] = {name: {} for name in (*block.structured, *ADDED)}
    return fields | _inner(block.fields)


def _inner(fields: Mapping[str, Field]) -> dict[str, Mapping[str, Any]]:
    return {name: _inner(field.fields) for name, field in fields.items()}


def _check_schema(
    schema: Mapping[str, Any], path: str, fields: Mapping[str, Mapping[str, Any]], holder: str
) -> None:
    """Check a schema against the fields. Fields from JSON or structured data may hold anything."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        return  # `parse.extract.item_schema` reports the error
    for name in (*required, *properties):
        if name in fields:
            continue
        own = sorted(set(fields) - set(ADDED))
        close = near_names(str(name), own)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise JobError(
            f"{path}: {holder.format(name)} {_list(own) or 'no fields'}{meant}",
            code=NO_SUCH_FIELD,
        )
    for name, inner in properties.items():
        if isinstance(inner, Mapping) and fields[name]:
            inner = inner.get("items", inner)
            if isinstance(inner, Mapping):
                _check_schema(inner, f"{path}.{name}", fields[name], _OF_FIELD)


def check_expressions(blocks: tuple[Block, ...]) -> None:
    """Raise JobError for patterns and paths that cannot be compiled, or cost too much together."""
    size = characters = 0
    for number, block in enumerate(blocks, 1):
        path = block_path(number, len(blocks))
        patterns = [(f"{path}.match", block.match.url)]
        paths = [(f"{path}.item.json", block.item.json)]
        check_length(block.match.css, f"{path}.match.css")
        check_length(block.item.css, f"{path}.item")
        for where, field in walk(block.fields, f"{path}.fields"):
            patterns.append((f"{where}.re", field.re))
            paths += [(f"{where}.{key}", getattr(field, key)) for key in _PATHS]
        for place, rule in enumerate(block.follow or (), 1):
            patterns.append((f"{path}.follow[{place}].re", rule.re))
            paths.append((f"{path}.follow[{place}].json", rule.json))
        # Both stop at the first one above the limit: to compile all would hold the leader.
        for where, text in patterns:
            size += compile_pattern(text, where).size if text else 0
            if size > MAX_PROGRAM:
                raise JobError(
                    f"extract: the patterns are too large together: more than {MAX_PROGRAM} "
                    f"instructions at {where}; use fewer or simpler ones",
                    code=BAD_EXPRESSION,
                )
        for where, text in paths:
            characters += len(text or "")
            if characters > MAX_PATHS:
                raise JobError(
                    f"extract: the JMESPath expressions have more than {MAX_PATHS} characters "
                    f"together at {where}; use fewer or shorter ones",
                    code=BAD_PATH,
                )
            if text:
                compile_path(text, where)


def block_path(number: int, of: int) -> str:
    return "extract" if of == 1 else f"extract[{number}]"


def _check_fields(block: Block, path: str) -> None:
    count = 0
    for where, field in walk(block.fields, f"{path}.fields"):
        count += 1
        name = where.rpartition(".")[2]
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise JobError(f"{where}: a field's name has 1 to {MAX_NAME} printable characters")
        given = [source for source in SOURCES if getattr(field, source)]
        if len(given) > 1:
            raise JobError(
                f"{where} has {' and '.join(given)}; a value comes from one; remove the rest"
            )
        inside = where.count(".fields.") > 1 or block.item.css or block.item.json
        if not (given or field.fields or inside or field.default is not None):
            raise JobError(
                f"{where} does not say where its value is; add one of {_list(list(SOURCES))}"
            )
        if field.attr and given not in ([], ["css"]):
            raise JobError(f"{where}.attr works with css only, and the field has {given[0]}")
        if field.fields and (field.attr or field.re or field.type != "str"):
            raise JobError(f"{where} has fields, so it is an object; remove its attr, re and type")
        if field.main and (field.list or field.type not in ("str", "text", "markdown")):
            raise JobError(
                f"{where}: main content is one text; use type str, text or markdown, and no list"
            )
        if field.format and field.type != "date":
            raise JobError(f"{where}.format is for dates; add type = 'date', or remove format")
        for key in ("css", "json", "jsonld", "microdata", "re", "attr", "opengraph", "format"):
            check_length(getattr(field, key), f"{where}.{key}")
    if count > MAX_FIELDS:
        raise JobError(f"{path} has {count} fields; at most {MAX_FIELDS}")


def _check_follow(rule: Follow, names: list[str], path: str) -> None:
    if rule.css and rule.json:
        raise JobError(f"{path} has css and json; keep css for HTML pages, or json for JSON pages")
    if rule.to and rule.to not in names:
        close = near_names(rule.to, names)
        there = f"the blocks are named {_list(names)}" if names else "no block has a name"
        meant = f"did you mean {close[0]!r}?" if close else there
        raise JobError(f"{path}.to: there is no block named {rule.to!r}; {meant}")
    for key in ("css", "json", "re"):
        check_length(getattr(rule, key), f"{path}.{key}")


def check_length(text: str, path: str) -> None:
    if len(text) > MAX_EXPRESSION:
        raise JobError(f"{path} has {len(text)} characters; at most {MAX_EXPRESSION}")


def walk(fields: Mapping[str, Field], path: str) -> Iterator[tuple[str, Field]]:
    """Yield every field with its path; inner fields come after the field that contains them."""
    for name, field in fields.items():
        yield f"{path}.{name}", field
        yield from walk(field.fields, f"{path}.{name}.fields")
