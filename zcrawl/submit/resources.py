"""Check the list `resources` of a job, and its `${resource}` in seeds.

Called by `validate`, by the desk for seeds that come beside a list, and by the CLI. Pure. Each id
of the list has its own seeds: those of the job with the id in place of `${resource}`, or the id
itself if the tasks of the job take ids (`JobSpec.own_seeds`). What the list means for standalone
nodes is in `zcrawl.standalone.listed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from zcrawl.errors import BadUrl, JobError
from zcrawl.frontier.tasks import check_task_id
from zcrawl.model.reasons.usage import BAD_RESOURCES, JOB_TOO_LARGE
from zcrawl.model.spec import RESOURCE, JobSpec

MOST_SEEDS: Final = 1_000  # of all ids together: what one request may have
MOST_TEXT: Final = 250_000  # characters of these seeds


def check_resources(spec: JobSpec) -> None:
    """Raise JobError if the list is not valid, or seeds and list do not fit together."""
    templates = spec.seeds or ((spec.http.url,) if spec.http.url else ())
    if not spec.resources:
        if any(RESOURCE in seed for seed in templates):
            raise _bad(
                f"a seed has {RESOURCE}, and the job has no resources; add resources = [...]"
            )
        return
    if spec.seeds_from.job or spec.sitemaps.urls:
        other = "seeds_from" if spec.seeds_from.job else "sitemaps.urls"
        raise _bad(f"resources and {other} are both given; remove one")
    if not templates and not spec.takes_ids:
        raise _bad(
            f"a job of kind {spec.kind!r} with resources needs seeds with {RESOURCE}, such as "
            f'seeds = ["https://example.com/{RESOURCE}"]'
        )
    for number, seed in enumerate(templates, 1):
        if RESOURCE not in seed:
            raise _bad(
                f"seeds, entry {number}: {RESOURCE} is missing, so it belongs to no resource"
            )
    _check_size(spec, templates)
    seen: set[str] = set()
    for number, resource in enumerate(spec.resources, 1):
        try:
            check_task_id(resource)
        except BadUrl as error:
            text = str(error).replace("not a valid task: ", "")
            raise _bad(f"resources, entry {number}: {text}") from None
        if "${" in resource:
            raise _bad(f"resources, entry {number}: an id cannot contain ${{…}}")
        if resource in seen:
            raise _bad(f"resources has {resource[:80]!r} twice; write each id once")
        seen.add(resource)


def check_beside(spec: JobSpec, seeds: Iterable[Any]) -> None:
    """Raise JobError for a seed that comes with a job and belongs to none of its resources."""
    if not spec.resources:
        return
    own = frozenset(spec.own_seeds)
    for seed in seeds:
        if not isinstance(seed, str) or seed not in own:
            raise _bad(f"the seed {str(seed)[:80]!r} is of none of the job's resources; remove it")


def _check_size(spec: JobSpec, templates: tuple[str, ...]) -> None:
    """Count before anything is filled in."""
    count = len(spec.resources) * max(1, len(templates))
    if count > MOST_SEEDS:
        raise JobError(
            f"resources has {len(spec.resources)} entries, which makes {count} seeds; a job has at "
            f"most {MOST_SEEDS}",
            code=JOB_TOO_LARGE,
        )
    ids, uses = sum(map(len, spec.resources)), sum(seed.count(RESOURCE) for seed in templates)
    rest = sum(map(len, templates)) - uses * len(RESOURCE)
    length = ids * max(1, uses) + rest * len(spec.resources)
    if length > MOST_TEXT:
        raise JobError(
            f"the seeds of all resources have {length} characters; at most {MOST_TEXT}",
            code=JOB_TOO_LARGE,
        )


def _bad(text: str) -> JobError:
    return JobError(text, code=BAD_RESOURCES)
