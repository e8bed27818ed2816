"""Check the spider and the plugins of a job, and whether the job may contain code.

Called by `validate` and, for the right, by the leader for each submission. Pure. A spider in a
file is sent with its job, so a cluster accepts it only if its masters have `allow_code`. Otherwise
anyone who can submit could run any code on every worker. A spider in a package that is installed on
the workers needs no such right.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Final

import msgspec

from zcrawl.errors import JobError, RefusedError
from zcrawl.model.reasons.usage import BAD_HASH, BAD_SPIDER, CODE_NOT_ALLOWED, UNUSED_OPTIONS
from zcrawl.model.spec import CRAWL, ENGINES, KINDS, JobSpec, SpiderCode
from zcrawl.submit.tasks import needs_seeds
from zcrawl.text.patterns import lazy_pattern
from zcrawl.text.spelling import near_names

MAX_SOURCE: Final = 500_000  # bytes
MAX_ARGS: Final = 50_000  # bytes of JSON
LEAST_MEMORY: Final = 100_000_000  # less does not start an interpreter with its libraries
_FILE = lazy_pattern(r"[^:]+\.py:[A-Za-z]\w*")
_PACKAGE = lazy_pattern(r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)*:[A-Za-z]\w*")
PLUGIN_NAME: Final = lazy_pattern(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def is_file(spider: str) -> bool:
    """Return whether a spider is in a file, and not in an installed package."""
    return _FILE.fullmatch(spider) is not None


def begins_by_itself(spec: JobSpec, seeds: Sequence[object]) -> bool:
    """Return whether a run has work without seeds: a spider's `start`, or its one task."""
    return bool(spec.spider) or (spec.kind != CRAWL and not seeds and not needs_seeds(spec))


def code_of(source: bytes, where: str) -> SpiderCode:
    """Return the spider's file in the form that is sent with its job."""
    try:
        text = source.decode()
        compile(text, where, "exec")
    except (SyntaxError, ValueError) as error:
        raise JobError(f"{where}: not valid Python: {error}", code=BAD_SPIDER) from None
    return SpiderCode(hashlib.sha256(source).hexdigest(), text)


def check_code(spec: JobSpec) -> None:
    for key in ("middlewares", "parsers"):
        for name in getattr(spec, key):
            if not PLUGIN_NAME.fullmatch(name):
                raise JobError(
                    f"{key}: {name!r} is not a plugin's name, which has letters, digits and . _ -"
                )
    _check_size("plugins", spec.plugins)
    _check_options(spec)
    _check_size("schema", spec.schema)
    made = spec.extract or spec.spider or spec.parsers or spec.kind != CRAWL
    if spec.schema and not made:
        raise JobError(
            "schema is for items of [extract], a spider or parsers, and this job has none of them; "
            "add one, or remove the schema"
        )
    if not spec.spider:
        if spec.code is not None or spec.spider_args:
            raise JobError("spider_args are given, but no spider; write spider = 'file.py:Name'")
        return
    if not is_file(spec.spider) and not _PACKAGE.fullmatch(spec.spider):
        raise JobError(
            f"spider {spec.spider!r}: write 'file.py:Name' or 'package.module:Name', where Name is "
            "the spider's class or function"
        )
    if spec.extract:
        raise JobError(
            "the job has [extract] and a spider; the spider reads the pages, so [extract] would "
            "not be used. Remove one of the two"
        )
    if is_file(spec.spider) != (spec.code is not None):
        raise JobError(
            f"spider {spec.spider!r}: a spider in a file needs its code with the job, which "
            "`zcrawl crawl` and `zcrawl submit` send; one in a package must have none"
        )
    if spec.code is not None:
        _check_source(spec.code)
    _check_size("spider_args", spec.spider_args)
    limits = spec.spider_limits
    if not (math.isfinite(limits.timeout) and 0 < limits.timeout <= 3600):
        raise JobError(
            f"spider_limits.timeout is {limits.timeout}; it must be above 0 and at most 3600"
        )
    if limits.memory < LEAST_MEMORY:
        raise JobError(
            f"spider_limits.memory is {limits.memory}; it must be {LEAST_MEMORY} bytes or more"
        )


def check_engine(name: str, names: tuple[str, ...]) -> None:
    """Check the engine: one of zcrawl, or a plugin, which only the workers must have."""
    if name in names:
        return
    near = near_names(name.lower(), names, cutoff=0.7)
    if near:
        raise JobError(f"fetch.engine {name!r} does not exist; did you mean {near[0]!r}?")
    if not PLUGIN_NAME.fullmatch(name):
        raise JobError(
            f"fetch.engine {name!r} does not exist; use {', '.join(names)}, or the name of a plugin"
        )


def check_kind(spec: JobSpec) -> None:
    """Check the kind: one of zcrawl's own, or the name of a plugin that only the workers must
    have."""
    kind = spec.kind
    if kind == CRAWL:
        return
    if near_names(kind.lower(), [CRAWL]):
        raise JobError(f"kind {kind!r} does not exist; did you mean 'crawl'?")
    if not PLUGIN_NAME.fullmatch(kind):
        raise JobError(
            f"kind {kind!r} does not exist; use {', '.join(KINDS)}, or the name of a plugin"
        )
    unused = {
        "extract": spec.extract,
        "spider": spec.spider,
        "middlewares": spec.middlewares,
        "parsers": spec.parsers,
        "login": spec.login.url,
        "sitemaps": spec.sitemaps.urls or spec.sitemaps.robots,
    }
    for key, given in unused.items():
        if given:
            raise JobError(
                f"{key} is for crawls, and a job of kind {kind!r} fetches no pages; remove it"
            )


def _check_options(spec: JobSpec) -> None:
    """Refuse options of a plugin that the job does not use, because the name is probably wrong."""
    stores = (
        target.removeprefix("plugin:") for target in spec.output.to if target.startswith("plugin:")
    )
    named = {*spec.middlewares, *spec.parsers, *stores, spec.fetch.engine, spec.kind}
    named -= {*KINDS, *ENGINES}
    for name in spec.plugins:
        if name in named:
            continue
        near = near_names(name, named)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise JobError(
            f"plugins.{name}: no middleware, parser, engine, store or executor of this job has "
            f"that name{meant}",
            code=UNUSED_OPTIONS,
        )


def _check_source(code: SpiderCode) -> None:
    source = code.source.encode()
    if len(source) > MAX_SOURCE:
        raise JobError(f"the spider's file has {len(source)} bytes; at most {MAX_SOURCE}")
    if hashlib.sha256(source).hexdigest() != code.sha256:
        raise JobError("code.sha256 is not the hash of code.source", code=BAD_HASH)


def _check_size(key: str, value: object) -> None:
    if len(msgspec.json.encode(value)) > MAX_ARGS:
        raise JobError(f"{key} is too large: more than {MAX_ARGS} bytes")


def with_code_right(spec: JobSpec, master_allows: bool) -> None:
    """Raise RefusedError if the job contains code and this master does not accept code."""
    if spec.code is not None and not master_allows:
        raise RefusedError(
            "this cluster does not accept code in jobs. Install the spider on the workers as a "
            "package and write spider = 'package.module:Name', or set cluster.allow_code = true in "
            "the configuration of the masters",
            code=CODE_NOT_ALLOWED,
        )
