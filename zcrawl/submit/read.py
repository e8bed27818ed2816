"""Read job files from TOML into checked specs, and convert specs to their stored form, JSON.

Called by the CLI, which reads the file, and by the leader, which stores specs. Pure.
docs/job-file.md explains each key.

It also makes the JSON Schemas of job files and config files (`zcrawl config schema`), for editors
and other programs. The types have only the long forms; the short forms of job files are added here.
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
    """Return the spec of a job file. `source` is its name, for messages."""
    return spec_from_dict(parse_table(text, source), source)


def parse_table(text: str, source: str) -> dict[str, Any]:
    """Return the keys and values of the file unchecked, so that flags can replace values."""
    import tomllib  # 5 ms of a start without such a file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{source}: {toml_error(error, text)}", code=BAD_TOML) from None
    except RecursionError:  # thousands of brackets: tomllib descends into each
        raise JobError(f"{source}: not valid TOML: nested too deeply", code=BAD_TOML) from None


def overlay(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `table` with values replaced: `changes` has dotted keys, e.g. "scope.max_depth"."""
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
    """Return the spec as plain values, for a submission."""
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    return plain


def to_json(spec: JobSpec) -> bytes:
    """Return the stored form. Keys have the order of the spec, so equal specs are equal bytes."""
    return msgspec.json.encode(spec)


def from_json(data: bytes) -> JobSpec:
    """Return the spec of a stored form, unchecked: an older version may have allowed more."""
    try:
        return msgspec.json.decode(data, type=JobSpec)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise JobError(f"stored job spec: {error}", code=BAD_SPEC) from None


def default_name(seeds: Iterable[str]) -> str:
    """Return a name for a job without one: the host of its seeds, `docs.python.org`.

    With seeds on several hosts: the first host, and `-and-others`.
    """
    hosts = list(dict.fromkeys(origin_of(canonicalize(seed)).partition("//")[2] for seed in seeds))
    if not hosts:
        raise JobError("a job needs a seed or a name")
    name = hosts[0].replace(":", "-") + ("-and-others" if len(hosts) > 1 else "")
    return name.strip("[]") if not name.isdecimal() else f"host-{name}"


def file_stem(name: str) -> str:
    """Return a job's name with only characters that are allowed in file names everywhere."""
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
    parents = definitions["Schedule"]["properties"]["after"]
    parents["items"] = {"anyOf": [text, parents["items"]]}
    for holder in (block, definitions["Field"]["properties"]):
        holder["fields"] = {
            "type": "object",
            "additionalProperties": {"anyOf": [text, {"$ref": "#/$defs/Field"}]},
        }
    return schema


def of_type(schema: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a type. Unknown keys are refused, as when a file is read."""
    json_schema: dict[str, Any] = {
        "$schema": DIALECT,
        "title": title,
        **msgspec.json.schema(schema),
    }
    return json_schema
