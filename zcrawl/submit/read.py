"""Reads job files: TOML text in, a validated spec out; and the spec's stored form, JSON.

Called by the CLI, which reads the file, and by the leader, which stores specs. Pure.
docs/job-file.md explains each key.

It also makes the JSON Schemas of job files and config files (`zcrawl config schema`), for editors
and for other programs' checks. The types have the long forms only; the short forms that a job file
may use are added here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from zcrawl.errors import JobError
from zcrawl.frontier.url import canonicalize, origin_of
from zcrawl.model.reasons.usage import BAD_SPEC, BAD_TOML
from zcrawl.model.spec import JobSpec
from zcrawl.submit.keys import toml_error
from zcrawl.submit.validate import spec_from_dict

__all__ = ["default_name", "file_stem", "from_json", "parse_job", "spec_from_dict", "to_json"]


def parse_job(text: str, source: str) -> JobSpec:
    """The spec in a job file. `source` is its name, for messages."""
    return spec_from_dict(parse_table(text, source), source)


def parse_table(text: str, source: str) -> dict[str, Any]:
    """The file's keys and values before they are judged, so that flags can be laid over them."""
    import tomllib  # 5 ms of a start without such a file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{source}: {toml_error(error, text)}", code=BAD_TOML) from None
    except RecursionError:  # thousands of brackets: tomllib descends into each
        raise JobError(f"{source}: not valid TOML: nested too deeply", code=BAD_TOML) from None


def overlay(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`table` with values replaced: `changes` has dotted keys, e.g. {"scope.max_depth": 2}."""
    result = dict(table)
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        if not section:
            result[name] = value
            continue
        inner = result.get(section, {})
        if not isinstance(inner, Mapping):
            raise JobError(f"{section!r} is a section, written [{section}], not a value")
        result[section] = {**inner, name: value}
    return result


def to_dict(spec: JobSpec) -> dict[str, Any]:
    """The spec as plain values, as a submission carries it."""
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    return plain


def to_json(spec: JobSpec) -> bytes:
    """The stored form. Keys are in the order of the spec, so equal specs are equal bytes."""
    return msgspec.json.encode(spec)


def from_json(data: bytes) -> JobSpec:
    """The spec of a stored form. Not judged again: an older version may have allowed more."""
    try:
        return msgspec.json.decode(data, type=JobSpec)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise JobError(f"stored job spec: {error}", code=BAD_SPEC) from None


def default_name(seeds: Iterable[str]) -> str:
    """The name of a job that was given none: its seeds' host, `docs.python.org`.

    With seeds on several hosts the first one's, and `-and-others`.
    """
    hosts = list(dict.fromkeys(origin_of(canonicalize(seed)).partition("//")[2] for seed in seeds))
    if not hosts:
        raise JobError("a job needs a seed or a name")
    name = hosts[0].replace(":", "-") + ("-and-others" if len(hosts) > 1 else "")
    return name.strip("[]") if not name.isdecimal() else f"host-{name}"


def file_stem(name: str) -> str:
    """A job's name as a part of a file's name, on every system and without surprises."""
    stem = re.sub(r"[^\w.-]+", "_", name).strip("._") or "job"
    return stem.encode()[:100].decode(errors="ignore")


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema() -> dict[str, Any]:
    schema = of_type(JobSpec, "A zcrawl job file")
    definitions = schema["$defs"]
    job = definitions["JobSpec"]["properties"]
    block = definitions["Block"]["properties"]
    text = {"type": "string"}
    job["extract"] = {"anyOf": [{"$ref": "#/$defs/Block"}, job["extract"]]}
    for key in ("match", "item"):
        block[key] = {"anyOf": [text, block[key]]}
    follow = {"anyOf": [text, {"$ref": "#/$defs/Follow"}]}
    block["follow"] = {"anyOf": [*follow["anyOf"], {"type": "array", "items": follow}]}
    for holder in (block, definitions["Field"]["properties"]):
        holder["fields"] = {
            "type": "object",
            "additionalProperties": {"anyOf": [text, {"$ref": "#/$defs/Field"}]},
        }
    return schema


def of_type(schema: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Unknown keys are refused, as they are when a file is read."""
    json_schema: dict[str, Any] = {
        "$schema": DIALECT,
        "title": title,
        **msgspec.json.schema(schema),
    }
    return json_schema
