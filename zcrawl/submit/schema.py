"""JSON Schemas of job files and config files, for editors and for other programs' checks.

Called by `zcrawl config schema`. Pure. The types know the long forms only; what a job file may
write shorter is added here.
"""

from typing import Any

import msgspec

from zcrawl.model.spec import JobSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema() -> dict[str, Any]:
    schema = of_type(JobSpec, "A zcrawl job file")
    known = schema["$defs"]
    job = known["JobSpec"]["properties"]
    block = known["Block"]["properties"]
    text = {"type": "string"}
    job["extract"] = {"anyOf": [{"$ref": "#/$defs/Block"}, job["extract"]]}
    for key in ("match", "item"):
        block[key] = {"anyOf": [text, block[key]]}
    one = {"anyOf": [text, {"$ref": "#/$defs/Follow"}]}
    block["follow"] = {"anyOf": [*one["anyOf"], {"type": "array", "items": one}]}
    for holder in (block, known["Field"]["properties"]):
        holder["fields"] = {
            "type": "object",
            "additionalProperties": {"anyOf": [text, {"$ref": "#/$defs/Field"}]},
        }
    return schema


def of_type(schema: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Unknown keys are refused, as they are when a file is read."""
    found: dict[str, Any] = {"$schema": DIALECT, "title": title, **msgspec.json.schema(schema)}
    return found
