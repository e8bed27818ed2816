"""Check whether this version can run a job, and say what is wrong if it cannot.

Called by `read` for TOML, by the CLI for flags and by the leader for what a client sent.
Pure. Every refusal is one `JobError` that names the source, the key and the remedy.

`advice` returns a warning about a valid job; `crawl` and `submit` print it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from zcrawl.errors import BadUrl, JobError
from zcrawl.frontier.pace import parse_hours
from zcrawl.frontier.scope import validate_scope
from zcrawl.model.formats import FORMATS, is_capture
from zcrawl.model.reasons.usage import JOB_TOO_LARGE, PATH_NOT_ALLOWED, UNKNOWN_KEY
from zcrawl.model.spec import (
    CRAWL,
    ENGINES,
    FORBIDDEN_HEADERS,
    KINDS,
    JobSpec,
    check_duplicates,
    check_recrawl,
    check_rendering,
)
from zcrawl.submit import extraction, keys, schedule
from zcrawl.submit.access import check_access
from zcrawl.submit.code import check_code, check_engine, check_kind
from zcrawl.submit.labels import label_error
from zcrawl.submit.outputs import check_outputs, refuse_login
from zcrawl.submit.params import check_params, filled
from zcrawl.submit.prefixes import place_of
from zcrawl.submit.private import check_private_host
from zcrawl.submit.resources import check_resources
from zcrawl.submit.seeds import check_seed, seed_check
from zcrawl.submit.tags import check_tags
from zcrawl.submit.tasks import check_command_length, check_tasks
from zcrawl.text.patterns import lazy_pattern

# What other crawlers call it.
FOREIGN_KEYS: Final = {
    "allowed_domains": "scope.hosts",
    "start_urls": "seeds",
    "urls": "seeds",
    "depth_limit": "scope.max_depth",
    "depth": "scope.max_depth",
    "domains": "scope.hosts",
    "delay": "politeness.rate",
    "proxy": "fetch.proxies",
    "file": "output.to",
    "out": "output.to",
    "format": "output.to",
    "download_delay": "politeness.rate",
    "obey_robots": "politeness.robots",
    "robotstxt_obey": "politeness.robots",
    "concurrent_requests_per_domain": "politeness.concurrency",
    "allow": "scope.include",
    "deny": "scope.exclude",
    "crontab": "schedule.cron",
    "depends_on": "schedule.after",
    "needs": "schedule.after",
    "parameters": "params",
    "tz": "schedule.timezone",
}

MAX_NAME: Final = 200  # characters
MAX_INT: Final = 2**31 - 1  # fits every database's INTEGER
MAX_RETRIES: Final = 100
MAX_PRIORITY: Final = 100
MAX_DELAY_S: Final = 7 * 86_400  # between two attempts
# The leader checks a job in its event loop, and again when it loads a run. Below these limits that
# takes about 0.1 s.
MAX_ENTRIES: Final = 10_000  # of all lists and tables together
MAX_TEXT: Final = 500_000  # characters of all texts together, without the spider's file
MAX_URLS: Final = 1_000  # of `seeds` and of `sitemaps.urls`: what one request may have
_TOKEN = lazy_pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a header's name, RFC 9110
_CONTROL = lazy_pattern(r"[\x00-\x1f\x7f]")


def spec_from_dict(data: Mapping[str, Any], source: str) -> JobSpec:
    """Return the spec that `data` describes. `source` is its name in error messages."""
    data = schedule.expand(extraction.expand(data, source))
    for key in keys.unknown_keys(data, JobSpec):
        hint = FOREIGN_KEYS.get(key.rpartition(".")[2]) or keys.nearest(key, JobSpec)
        if data.get("kind", CRAWL) == CRAWL:  # the others are for tasks
            hint = {"concurrency": "politeness.concurrency", "timeout": "fetch.timeout"}.get(
                hint or "", hint
            )
        meant = f"; did you mean {hint!r}?" if hint else ""
        raise JobError(f"{source}: unknown key {key!r}{meant}", code=UNKNOWN_KEY)
    try:
        spec = msgspec.convert(data, JobSpec)
    except msgspec.ValidationError as error:
        raise JobError(f"{source}: {keys.type_error(error, data)}") from None
    try:
        check(spec)
    except JobError as error:
        raise JobError(f"{source}: {error}", code=error.code) from None
    return spec


def check(spec: JobSpec, *, seeds: bool = True) -> None:
    """Raise JobError for values that have the right type but make no sense. `seeds`: also check
    the seeds; a stored job has already admitted its seeds."""
    check_command_length(spec)
    _check_size(spec)
    check_name(spec.name)
    check_params(spec)
    spec = filled(spec, spec.params)  # what a run with the default values has
    schedule.check_schedule(spec)
    check_kind(spec)
    check_tags(spec.tags)
    check_resources(spec)
    key = "resources" if spec.resources else "seeds"
    check_kind_of_seed = seed_check(spec.kind)
    for number, seed in enumerate(_listed_seeds(spec) if seeds else (), 1):
        try:
            check_kind_of_seed(seed)
        except BadUrl as error:
            raise JobError(f"{key}, entry {number}: {error}", code=error.code) from None
    _check_numbers(spec)
    _check_fetch(spec)
    _check_headers("http.headers", spec.http.headers)
    check_access(spec)
    check_tasks(spec)
    check_rendering(spec.browser, spec.fetch.engine, spec.fetch.timeout)
    check_code(spec)
    validate_scope(spec.scope)
    extraction.check_blocks(spec.extract)
    extraction.check_expressions(spec.extract)
    check_outputs(spec.output)
    check_recrawl(spec.recrawl, spec.kind == CRAWL)
    check_duplicates(spec.duplicates)
    check_run_rules(spec)


def _listed_seeds(spec: JobSpec) -> tuple[str, ...]:
    """Return the seeds that lists of the job say; `http.url` is checked with the call."""
    return spec.own_seeds if spec.resources else spec.seeds


def check_run_rules(spec: JobSpec) -> None:
    """Check when a run fails, and which runs are kept."""
    if not (math.isfinite(spec.fail_above) and 0 <= spec.fail_above <= 1):
        raise JobError(f"fail_above is {spec.fail_above}; it is a share, from 0 to 1")
    _at_least(0, "max_runtime", spec.max_runtime)
    retention = spec.retention
    _at_least(0, "retention.keep_runs", retention.keep_runs)
    _at_least(0, "retention.keep_days", retention.keep_days, most=36_600)
    formats = [name for name in FORMATS if not is_capture(name)]
    if retention.archive_format not in formats:
        raise JobError(
            f"retention.archive_format is {retention.archive_format!r}; use one of "
            f"{', '.join(formats)}"
        )
    if retention.archive and retention.keep_runs is None and retention.keep_days is None:
        raise JobError(
            "retention.archive is used when runs are removed; set retention.keep_runs or "
            "retention.keep_days, or remove it"
        )
    if retention.archive:
        check_archive(retention.archive)


def check_archive(archive: str) -> None:
    """Raise JobError for an archive that is not a folder or s3://bucket/prefix."""
    refuse_login(archive)
    try:
        place_of(archive)
    except ValueError as error:
        raise JobError(
            f"retention.archive is {archive[:200]!r}: {error}; write a folder or "
            "s3://bucket/prefix",
            code=PATH_NOT_ALLOWED,
        ) from None


def _check_size(spec: JobSpec) -> None:
    """Count entries and characters before anything looks at them one by one."""
    for key, urls, advice in (
        ("seeds", spec.seeds, "More seeds come from a file: --seeds FILE"),
        ("resources", spec.resources, "Make several jobs"),
        ("sitemaps.urls", spec.sitemaps.urls, "Name a sitemap index that lists them"),
    ):
        if len(urls) > MAX_URLS:
            raise JobError(
                f"{key} has {len(urls)} entries; a job has at most {MAX_URLS}. {advice}",
                code=JOB_TOO_LARGE,
            )
    entries = characters = 0
    for key in spec.__struct_fields__:
        if key == "code":  # has a limit of its own
            continue
        added_entries, added_characters = _size_of(getattr(spec, key))
        entries, characters = entries + added_entries, characters + added_characters
        if entries > MAX_ENTRIES:
            what = f"{MAX_ENTRIES} entries in its lists and tables"
        elif characters > MAX_TEXT:
            what = f"{MAX_TEXT} characters"
        else:
            continue
        raise JobError(
            f"the job has more than {what}: the limit is exceeded at {key!r}; shorten it, or make "
            "several jobs",
            code=JOB_TOO_LARGE,
        )


def _size_of(value: object) -> tuple[int, int]:
    """Return the number of entries of all lists and tables in a value, and the number of characters
    of its texts."""
    entries = characters = 0
    values = [value]
    while values and entries <= MAX_ENTRIES:
        match values.pop():
            case str() as text:
                characters += len(text)
            case dict() as table:
                entries += len(table)
                values += table.keys()
                values += table.values()
            case list() | tuple() as elements:
                entries += len(elements)
                values += elements
            case msgspec.Struct() as section:
                values += msgspec.structs.astuple(section)
            case _:
                pass
    return entries, characters


def check_name(name: str) -> None:
    if not name.strip():
        raise JobError("name is empty; give the job a name")
    if len(name) > MAX_NAME:
        raise JobError(f"name has {len(name)} characters; at most {MAX_NAME} are allowed")
    if _CONTROL.search(name) or name != name.strip():
        raise JobError(f"name {name!r} has control characters, or spaces at an end; remove them")
    if name.isdecimal():
        # Commands take `ID|NAME`; a name of digits would be taken for an id.
        raise JobError(
            f"name {name!r} has digits only and would be taken for a job's id; add a letter"
        )


def _check_numbers(spec: JobSpec) -> None:
    scope, politeness, fetch = spec.scope, spec.politeness, spec.fetch
    if abs(spec.priority) > MAX_PRIORITY:
        raise JobError(
            f"priority is {spec.priority}; it must be {-MAX_PRIORITY} to {MAX_PRIORITY}, and "
            "higher goes first"
        )
    _at_least(0, "concurrency", spec.concurrency)
    _at_least(0, "expires", spec.expires)
    _at_least(0, "timeout", spec.timeout)
    if spec.timeout and spec.kind == CRAWL:
        raise JobError("timeout is for the tasks of jobs of other kinds; write fetch.timeout")
    for key in ("require", "prefer"):
        if wrong := label_error(getattr(spec.placement, key)):
            raise JobError(f"placement.{key} {wrong}")
    _positive("retry.backoff", spec.retry.backoff)
    _at_least(spec.retry.backoff, "retry.max_delay", spec.retry.max_delay, most=MAX_DELAY_S)
    if spec.concurrency and spec.kind == CRAWL:
        raise JobError(
            "concurrency limits the tasks of jobs of other kinds, and a crawl has pages; write "
            "politeness.concurrency, for the requests to one host at a time"
        )
    _at_least(0, "scope.max_depth", scope.max_depth)
    _at_least(1, "scope.max_pages", scope.max_pages)
    _at_least(1, "scope.max_pages_per_host", scope.max_pages_per_host)
    _at_least(0, "politeness.rate", politeness.rate)
    _at_least(1, "politeness.burst", politeness.burst)
    _at_least(1, "politeness.concurrency", politeness.concurrency)
    _at_least(0, "politeness.robots_patience", politeness.robots_patience)
    for key in ("domain_rate", "domain_concurrency", "address_rate", "address_concurrency"):
        _at_least(0, f"politeness.{key}", getattr(politeness, key))
    for span in politeness.hours:
        parse_hours(span)
    for key in ("max_url_length", "max_segments", "max_repeats", "max_params", "max_variants"):
        _at_least(0, f"traps.{key}", getattr(spec.traps, key))
    for number, url in enumerate(spec.sitemaps.urls, 1):
        try:
            check_seed(url)
        except BadUrl as error:
            raise JobError(f"sitemaps.urls, entry {number}: {error}", code=error.code) from None
    _positive("fetch.timeout", fetch.timeout)
    _positive("fetch.connect_timeout", fetch.connect_timeout)
    _positive("fetch.read_timeout", fetch.read_timeout)
    _at_least(1, "fetch.max_bytes", fetch.max_bytes, most=2**40)
    _at_least(0, "fetch.max_redirects", fetch.max_redirects)
    _at_least(0, "fetch.retries", fetch.retries, most=MAX_RETRIES)


def _at_least(least: float, key: str, value: float | None, most: int = MAX_INT) -> None:
    if value is None:
        return
    if not math.isfinite(value):
        raise JobError(f"{key} is {value}; it must be a finite number")
    if value < least:
        requirement = "it cannot be negative" if least == 0 else f"it must be at least {least}"
        raise JobError(f"{key} is {value}; {requirement}")
    if value > most:
        raise JobError(f"{key} is {value}; it can be at most {most}")


def _positive(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise JobError(f"{key} is {value}; it must be a number of seconds above 0")


def _check_headers(key: str, headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise JobError(f"{key}: {name!r} is not a header's name")
        if name.lower() == "host":
            raise JobError(f"{key}: a job cannot set Host, which is that of the URL; remove it")
        if name.lower() in FORBIDDEN_HEADERS:
            raise JobError(f"{key}: zcrawl sets {name} itself; remove it")
        # With a line break, a value could add headers.
        if _CONTROL.search(value.replace("\t", " ")):
            raise JobError(f"{key}: the value of {name!r} has control characters")


def _check_fetch(spec: JobSpec) -> None:
    fetch = spec.fetch
    check_engine(fetch.engine, ENGINES)
    _check_headers("fetch.headers", fetch.headers)
    for headers in fetch.header_sets:
        _check_headers("fetch.header_sets", headers)
    if spec.politeness.limits_addresses and (
        fetch.proxies or fetch.engine not in ("http", "httpx")
    ):
        raise JobError(
            "politeness.address_rate and address_concurrency need engine 'http' or 'httpx' and no "
            "proxies, because zcrawl cannot know which address the others connect to"
        )
    for entry in fetch.private_hosts:
        check_private_host(entry)
    if _CONTROL.search(fetch.user_agent) or not fetch.user_agent.strip():
        raise JobError("fetch.user_agent is empty or has control characters")


def advice(spec: JobSpec) -> str:
    """Return one line of advice about a valid job; empty for most jobs."""
    inside = [f"middleware {name!r}" for name in spec.middlewares]
    inside += [f"parser {name!r}" for name in spec.parsers]
    if spec.kind not in KINDS:
        inside.append(f"executor {spec.kind!r}")
    if not inside:
        return ""
    names, verb = ", ".join(inside), "runs" if len(inside) == 1 else "run"
    return (
        f"{names} {verb} inside the workers: unlike a spider's, code that hangs or exits there is "
        "not cut off cleanly (docs/plugins.md)"
    )
