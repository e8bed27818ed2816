"""Check a submission before it is sent: the job's keys, its selectors, whether it has a seed. Pure.

The masters check again and decide about rights; this check names the field. Called by the routes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from zcrawl.errors import ZcrawlError
from zcrawl.gateway.problem import bad_field, of_error
from zcrawl.gateway.types import JobSubmission
from zcrawl.model.spec import JobSpec
from zcrawl.submit.code import begins_by_itself
from zcrawl.submit.extraction import check_schema_fields
from zcrawl.submit.params import merged
from zcrawl.submit.read import default_name, to_dict
from zcrawl.submit.validate import spec_from_dict


def arguments(body: JobSubmission) -> dict[str, Any]:
    """Return the arguments of `submit`; ProblemError with the field that is wrong."""
    if (body.spec is None) == (not body.job):
        raise bad_field("spec", "give either spec (a job) or job (a stored one to run again)")
    args: dict[str, Any] = {"seeds": body.seeds, "seeding": body.more_seeds, "output": None}
    if body.params:
        args["params"] = body.params
    flags = {"no_run": not body.run, "restart": body.restart, "live": body.live}
    args |= {name: True for name, given in flags.items() if given}
    if body.spec is None:
        for name, wrong in (("mode", body.mode == "update"), ("live", body.live)):
            if wrong:
                raise bad_field(name, f"{name} is for a new spec, and job runs a stored one")
        if not body.run:
            raise bad_field("run", "with job a run is started; run = false makes no sense")
        return args | {"ref": body.job, "mode": "again"}
    try:
        spec = _spec(body)
    except ZcrawlError as error:
        raise of_error(error, "spec") from None
    if body.restart and body.mode == "new":
        raise bad_field("restart", 'restart needs mode "update", or job')
    if body.live and body.mode == "new":
        raise bad_field("live", 'live needs mode "update"')
    return args | {"spec": to_dict(spec), "mode": body.mode}


def _spec(body: JobSubmission) -> JobSpec:
    assert body.spec is not None
    table = dict(body.spec)
    seeds = body.seeds or _seeds(table)
    if "name" not in table and seeds:
        table["name"] = default_name(seeds[:1_000])
    spec = spec_from_dict(table, "spec")
    merged(spec, body.params)
    _check_extraction(spec)
    begins = begins_by_itself(spec, seeds or spec.own_seeds) or spec.seeds_from.job
    if not (seeds or spec.own_seeds or body.more_seeds or begins or not body.run):
        raise bad_field("spec.seeds", "nothing to crawl: the job has no seeds")
    return spec


def _seeds(table: dict[str, Any]) -> list[str]:
    seeds = table.get("seeds")
    texts = isinstance(seeds, list) and all(isinstance(seed, str) for seed in seeds)
    return list(seeds) if texts and isinstance(seeds, list) else []


def _check_extraction(spec: JobSpec) -> None:
    """Compile selectors, patterns and paths, because a leader cannot."""
    if not spec.extract and not spec.schema:
        return
    from zcrawl.parse.extract.plan import ExtractionPlan

    ExtractionPlan(spec.extract, spec.schema)
    if not spec.parsers:  # items of parser plugins may have any fields
        check_schema_fields(spec.extract, spec.schema)


def changed_spec(spec: dict[str, Any], changes: dict[str, Any]) -> JobSpec:
    """Return a stored job with other values; JobError if one is wrong."""
    return spec_from_dict({**msgspec.to_builtins(spec), **changes}, "job")
