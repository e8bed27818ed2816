"""Turn URLs, a job file, seed files and flags into a submission: one spec and a stream of seeds.
Used by `crawl` and `submit`. Nothing is sent before everything is checked.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TextIO

import click
import msgspec

from zcrawl.cli.text_files import UnreadableText, read_text_file
from zcrawl.errors import JobError, UsageError
from zcrawl.model import formats
from zcrawl.model.reasons.usage import OUT_UNWRITABLE, UNREADABLE
from zcrawl.model.spec import CRAWL, HTTP, RESOURCE, JobSpec, for_resources
from zcrawl.submit import outputs
from zcrawl.submit.code import begins_by_itself, code_of, is_file
from zcrawl.submit.extraction import check_schema_fields
from zcrawl.submit.params import filled_seeds, merged
from zcrawl.submit.read import default_name, file_stem, overlay, parse_table, to_dict
from zcrawl.submit.resources import MOST_SEEDS
from zcrawl.submit.seeds import SeedLines, file_advice, seed_check
from zcrawl.submit.tags import with_added
from zcrawl.submit.url_logins import UrlLogins
from zcrawl.submit.validate import spec_from_dict
from zcrawl.text.spelling import near_names

NO_PARAMS: Final[Mapping[str, str]] = MappingProxyType({})
MAX_LINE: Final = 65_536  # characters; no URL is that long, so the rest of a line is dropped


class Submission(msgspec.Struct):
    """A spec, the first seeds, and the source of the other seeds."""

    spec: JobSpec
    first: list[str]
    rest: Iterator[list[str]]
    lines: SeedLines
    more: bool  # `rest` may hold seeds
    typed: tuple[str, ...] = ()  # seeds typed by the operator: their own hosts may be private
    secrets: dict[str, str] = {}  # for the workers' environment: logins from URLs
    page: str = ""  # a page for `test`: not a seed, and its host may not be private
    sent: int = 0  # seeds of `rest` that were sent
    job_file: str = ""  # as it was typed
    stored: str = ""  # the name or id of a stored job to run again; `spec` is then not used
    params: dict[str, str] = {}  # values of the job's parameters, as they were typed

    def args(self, mode: str, output: tuple[str, str] | None) -> dict[str, Any]:
        return {
            **({"ref": self.stored} if self.stored else {"spec": to_dict(self.spec)}),
            "mode": mode,
            "seeds": self.first,
            "seeding": self.more,
            "vouched": list(self.typed),
            "output": list(output) if output else None,
            **({"params": self.params} if self.params else {}),
        }


def spec_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that change a spec; the command gets them as `changes`, by dotted key."""
    count, number = click.IntRange(min=0), click.FloatRange(min=0)
    options: list[tuple[str, str, Any, str, str]] = [
        ("--name", "name", str, "NAME", "The job's name. [default: the first seed's host]"),
        ("--depth", "scope.max_depth", count, "N", "Follow links at most N steps from a seed."),
        ("--max-pages", "scope.max_pages", click.IntRange(min=1), "N", "End after N pages."),
        ("--rate", "politeness.rate", number, "R", "Requests per second and host; 0: no limit."),
        (
            "--concurrency",
            "politeness.concurrency",
            click.IntRange(min=1),
            "N",
            "Requests at the same time per host.",
        ),
        (
            "--priority",
            "priority",
            click.IntRange(-100, 100),
            "N",
            "-100 to 100; jobs with a higher priority go first.",
        ),
        ("--spider", "spider", str, "FILE.py:NAME", "The spider that reads the pages."),
        ("--timeout", "fetch.timeout", number, "S", "Seconds for one request."),
        ("--retries", "fetch.retries", count, "N", "How often a failed request is tried again."),
        ("--user-agent", "fetch.user_agent", str, "TEXT", "The User-Agent header of requests."),
    ]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        changes = {key: kwargs.pop(_variable(key)) for _, key, *_ in options}
        for name in ("include", "exclude"):
            changes[f"scope.{name}"] = kwargs.pop(name) or None
        changes["tags"] = kwargs.pop("tag") or None
        if kwargs.pop("no_robots"):
            changes["politeness.robots"] = False
        if kwargs.pop("allow_private"):
            changes["fetch.allow_private"] = True
        if kwargs.pop("csv_safe"):
            changes["output.csv_safe"] = True
        if changes["politeness.rate"] == 0:
            # Without a pace the host needs no single owner, so all workers may share it.
            changes["politeness.spread"] = True
        given = {key: value for key, value in changes.items() if value is not None}
        return function(*args, changes=given, **kwargs)

    decorated: Callable[..., Any] = wrapper
    regex: dict[str, Any] = {"multiple": True, "metavar": "REGEX"}
    decorated = click.option("--allow-private", is_flag=True, help="Crawl private addresses too.")(
        decorated
    )
    safe = click.option("--csv-safe", is_flag=True, help="Write CSV files without formulas.")
    decorated = safe(decorated)
    decorated = click.option("--no-robots", is_flag=True, help="Ignore robots.txt.")(decorated)
    decorated = click.option("--exclude", help="Skip URLs that match.", **regex)(decorated)
    decorated = click.option("--include", help="Follow only URLs that match.", **regex)(decorated)
    tag = click.option("--tag", multiple=True, metavar="NAME", help="Add a tag to the job.")
    decorated = tag(decorated)
    for flag, key, kind, metavar, text in reversed(options):
        add = click.option(flag, _variable(key), type=kind, metavar=metavar, help=text)
        decorated = add(decorated)
    return decorated


def _variable(key: str) -> str:
    return key.replace(".", "_")


def prepare(
    urls: Sequence[str],
    job_file: str | None,
    seeds_file: str | None,
    changes: Mapping[str, Any],
    *,
    lists_vouch: bool = False,
    takes_logins: bool = False,
    names_page: bool = False,
    params: Mapping[str, str] = NO_PARAMS,
) -> Submission:
    """Check everything that was typed; raise UsageError, JobError or BadUrl.

    `lists_vouch`: the first chunk of a list counts as typed (`crawl`, on the operator's machine).
    `takes_logins`: the workers are children of this process, so it can give them the passwords
    that stand in URLs (`submit.url_logins`); elsewhere such URLs are refused.
    `names_page`: the URL is a page to test and not a seed (`test`). The seeds of the job file still
    decide about scope and guard, as in a crawl of the file.
    """
    logins = UrlLogins()
    if not takes_logins:
        logins.close()
    table = parse_table(read_text(job_file), job_file) if job_file else {}
    check = seed_check(str(table.get("kind", CRAWL)))
    urls = [check(logins.clean(url)) for url in urls]
    table = overlay(table, with_added(table, changes))
    if "spider" in table:
        _bring_code(table, Path(job_file or "").parent if "spider" not in changes else Path())
    page = urls[0] if urls and names_page and (table.get("seeds") or table.get("resources")) else ""
    if urls and not page:
        # Arguments replace the file's seeds, as every flag replaces the file's value.
        table["seeds"] = list(urls)
    _clean_urls(table, logins)
    in_table = table.get("seeds", [])
    seeds = [seed for seed in in_table if isinstance(seed, str)] if _is_list(in_table) else []
    named = "stdin" if seeds_file == "-" else seeds_file or ""
    seed_lines = read_lines(seeds_file) if seeds_file else ()
    lines = SeedLines(seed_lines, named, logins.clean, check)
    if seeds_file and table.get("resources"):
        raise UsageError("the job has resources, and --seeds gives seeds beside them; remove one")
    own = _for_resources(seeds or ([] if seeds_file else _own_url(table)), table)
    rest = lines.chunks(with_params(own, table.get("params"), params))
    if "name" not in table and not job_file:
        table["name"] = "unnamed"  # until the first seed is known
    source = job_file or "command line"
    spec = spec_from_dict(table, source)
    merged(spec, params)
    check_extraction(spec, source)
    first = next(rest, [])
    if logins:
        logins.close()  # later lines are read when the job exists already
        auth = logins.auth(table.get("fetch", {}).get("auth", []))
        table = overlay(table, {"fetch.auth": auth})
        spec = spec_from_dict(table, source)
    if not first and not begins_by_itself(spec, first) and not spec.seeds_from.job:
        if seeds_file:
            raise UsageError(f"nothing to crawl: no URL in {named}")
        if job_file:
            raise UsageError(
                f'nothing to crawl: {job_file} has no seeds; add seeds = ["https://..."], or '
                "give a URL or --seeds FILE"
            )
        raise UsageError("nothing to crawl: give a URL, --seeds FILE or a job file with seeds")
    if spec.name == "unnamed" and "name" not in changes and not job_file:
        name = default_name(first) if first else spec.spider.rpartition(":")[2]
        spec = spec_from_dict(overlay(table, {"name": name}), source)
    typed = tuple(first) if lists_vouch else tuple(filled_seeds(spec, spec.own_seeds, params))
    environment = logins.environment()
    return Submission(
        spec,
        first,
        rest,
        lines,
        not lines.ended,
        typed,
        environment,
        page,
        job_file=job_file or "",
        params=dict(params),
    )


def with_params(seeds: list[str], declared: object, params: Mapping[str, str]) -> list[str]:
    """Return the seeds of a job file with their parameters filled in. Defaults of a wrong type are
    refused with the rest of the file."""
    defaults = declared if isinstance(declared, Mapping) else {}
    texts = {key: value for key, value in defaults.items() if isinstance(value, str)}
    return filled_seeds(JobSpec("", params=texts), seeds, params)


def typed_params(assignments: Sequence[str]) -> dict[str, str]:
    """Return what `--set key=value` says; UsageError for one without `=`, or twice the same."""
    params: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {assignment!r}: write --set KEY=VALUE")
        if key in params:
            raise UsageError(f"--set {key} is given twice")
        params[key] = value
    return params


def prepare_again(
    name: str,
    seeds_file: str | None,
    changes: Mapping[str, Any],
    params: Mapping[str, str] = NO_PARAMS,
) -> Submission:
    """Prepare a new run of a stored job; UsageError for flags that would change the job."""
    if changes:
        raise UsageError(
            f"--again runs job {name!r} as it is stored, so a flag cannot change "
            f"{next(iter(changes))}; to change the job: zcrawl submit JOB.toml --update"
        )
    named = "stdin" if seeds_file == "-" else seeds_file or ""
    logins = UrlLogins()
    logins.close()
    lines = SeedLines(read_lines(seeds_file) if seeds_file else (), named, logins.clean)
    rest = lines.chunks()
    first = next(rest, [])
    if seeds_file and not first:
        raise UsageError(f"nothing to crawl: no URL in {named}")
    return Submission(
        JobSpec(name), first, rest, lines, not lines.ended, stored=name, params=dict(params)
    )


def stored_name(sources: tuple[str, ...]) -> str:
    """Return the name or id of a job, if one was given; else an empty string."""
    if len(sources) != 1 or is_job_file(sources[0]):
        return ""
    return "" if "://" in sources[0] else sources[0]


def is_plain_word(source: str) -> bool:
    """Return whether it can only be a job's name: a host has a dot or a port, or is localhost."""
    return re.fullmatch(r"[\w-]+", source) is not None and source != "localhost"


def split_sources(sources: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Split sources into a job file and URLs. Both at once is an error."""
    files = [source for source in sources if is_job_file(source)]
    if not files:
        return None, sources
    if len(files) > 1:
        raise UsageError(f"one job at a time; {' and '.join(files)} are {len(files)} job files")
    if len(sources) > 1:
        raise UsageError(
            f"{files[0]} is a job file, and URLs were given too. To crawl these URLs by the rules "
            f"of that file: zcrawl crawl --job {files[0]} URL..."
        )
    return files[0], ()


def is_job_file(source: str) -> bool:
    """Return whether the source is a job file. UsageError for a file of another kind."""
    if "://" in source:
        return False
    if source.endswith(".toml"):
        return True
    if not Path(source).is_file() or source.lower().endswith((".html", ".htm")):
        return False
    advice = file_advice(source)
    if source.endswith(".py"):
        advice = f"For a spider in a file: --spider {source}:Name"
    if advice:
        raise UsageError(f"{source} is not a job file. {advice}")
    return True


def _own_url(table: Mapping[str, Any]) -> list[str]:
    """Return the URL of an HTTP task, which is its seed. A wrong value is refused later."""
    http = table.get("http")
    url = http.get("url") if table.get("kind") == HTTP and isinstance(http, Mapping) else None
    return [url] if isinstance(url, str) and url else []


def _for_resources(seeds: list[str], table: Mapping[str, Any]) -> list[str]:
    """Return the seeds with each resource filled in. A wrong value is refused later, by name."""
    given = table.get("resources")
    ids = [id for id in given if isinstance(id, str)] if isinstance(given, list) else []
    if not ids or len(ids) * max(1, len(seeds)) > MOST_SEEDS or not all(map(str.strip, ids)):
        return [] if ids else [seed for seed in seeds if RESOURCE not in seed]
    if not seeds and table.get("kind", CRAWL) in (CRAWL, HTTP):
        return []
    return [seed for _, seed in for_resources(seeds, ids)]


def _clean_urls(table: dict[str, Any], logins: UrlLogins) -> None:
    """Take the logins out of the URLs of a job file. Values of a wrong type stay unchanged."""
    sitemaps = table.get("sitemaps", {})
    if isinstance(sitemaps, Mapping) and _is_list(sitemaps.get("urls")):
        table["sitemaps"] = {**sitemaps, "urls": _cleaned(sitemaps["urls"], logins)}
    if _is_list(table.get("seeds")):
        table["seeds"] = _cleaned(table["seeds"], logins)


def _cleaned(urls: Sequence[object], logins: UrlLogins) -> list[object]:
    return [logins.clean(url) if isinstance(url, str) else url for url in urls]


def check_extraction(spec: JobSpec, source: str) -> None:
    """Compile the job's selectors, patterns and paths, because the leader cannot check them."""
    if not spec.extract and not spec.schema:
        return
    from zcrawl.parse.extract.plan import ExtractionPlan

    try:
        ExtractionPlan(spec.extract, spec.schema)
        if not spec.parsers:  # items of parser plugins may have any fields
            check_schema_fields(spec.extract, spec.schema)
    except JobError as error:
        raise JobError(f"{source}: {error}", code=error.code) from None


def _bring_code(table: dict[str, Any], folder: Path) -> None:
    """Put the spider's file into the job, under its name without the folder."""
    spider = table["spider"]
    if not isinstance(spider, str) or not is_file(spider):
        return  # an installed package, or a value that a later check refuses
    place, _, name = spider.rpartition(":")
    path = folder / place
    try:
        code = code_of(path.read_bytes(), str(path))
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}", code=UNREADABLE) from None
    table["spider"] = f"{path.name}:{name}"
    table["code"] = {"sha256": code.sha256, "source": code.source}


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def read_text(path: str) -> str:
    try:
        return read_text_file(Path(path))
    except FileNotFoundError:
        raise JobError(f"{path}: no such file; {_other_files(path)}", code=UNREADABLE) from None
    except UnreadableText as error:
        raise JobError(f"{path}: {error}", code=UNREADABLE) from None


def _other_files(path: str) -> str:
    """Return a hint for a job file that does not exist: a similar name, or `zcrawl init`."""
    folder = Path(path).parent
    names = [file.name for file in folder.glob("*.toml")] if folder.is_dir() else []
    near = near_names(Path(path).name, names)
    if near:
        return f"did you mean {folder / near[0]}?"
    return f"`zcrawl init {Path(path).stem}` writes a job file"


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file, or of stdin for `-`. Very long lines are cut."""
    try:
        # A copy of the descriptor: a thread that waits for stdin at exit must not hold its lock.
        file = _open(os.dup(sys.stdin.fileno())) if path == "-" else _open(path)
    except FileNotFoundError:
        raise UsageError(f"--seeds {path}: no such file", code=UNREADABLE) from None
    except IsADirectoryError:
        raise UsageError(f"--seeds {path} is a folder; name a file", code=UNREADABLE) from None
    except OSError as error:
        raise UsageError(
            f"--seeds {path}: cannot be read: {error.strerror}", code=UNREADABLE
        ) from None
    with file:
        try:
            while line := file.readline(MAX_LINE):
                cut = len(line) == MAX_LINE and not line.endswith("\n")
                yield line
                while cut and (more := file.readline(MAX_LINE)) and not more.endswith("\n"):
                    pass
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", code=UNREADABLE) from None


def _open(path: str | int) -> TextIO:
    # A byte that is not UTF-8 becomes a lone surrogate. It is then refused as a bad URL.
    return open(path, encoding="utf-8-sig", errors="surrogateescape")  # noqa: PTH123


def with_capture(changes: dict[str, Any], out: str | None) -> dict[str, Any]:
    """Turn on output.capture for an archive, because it needs whole requests and responses."""
    needs_capture = out is not None and out != "-" and formats.is_capture(format_of(out))
    return {**changes, "output.capture": True} if needs_capture else changes


def output_for(out: str | None, data: Path, spec: JobSpec) -> tuple[str, str] | None:
    """Return (path, format) of the file that gets the items; None for `-`.

    `{run}` in a path stands for the run's number, which only the store knows.
    """
    if out == "-":
        return None
    if out is None:
        own = outputs.targets(spec.output, file_stem(spec.name))
        if own:
            return own[0]  # the job has an output of its own
        ending = formats.FORMATS[formats.JSONL].ending
        return str(data / f"{file_stem(spec.name)}-{{run}}{ending}"), formats.JSONL
    outputs.refuse_login(out)
    if outputs.is_remote(out):
        return out, format_of(out)
    path = Path(out).expanduser().absolute()
    file_format = format_of(str(Path(out)))
    check_writable(path)
    return str(path), file_format


def output_on_cluster(out: str) -> tuple[str, str]:
    """Return (path, format) of a file that a master writes. The master checks the path."""
    return out, format_of(out)


def format_of(name: str) -> str:
    """Return the format of a file by the ending of its name."""
    format = formats.format_of(name)
    if format is None:
        endings = ", ".join(formats.all_endings())
        if name.lower().endswith(".json"):
            raise UsageError(
                f"{name}: items are written as JSON lines, one object a line; name the file "
                f"{name[:-5]}.jsonl"
            )
        sheet = " (spreadsheets open .csv)" if name.lower().endswith((".xlsx", ".xls")) else ""
        raise UsageError(
            f"{name}: the format is not known. The ending of the file's name sets it; use one of "
            f"{endings}{sheet}"
        )
    return format


def check_writable(path: Path) -> None:
    """Check before the crawl that the output file can be written."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name a file in it", code=OUT_UNWRITABLE)
        if not path.parent.is_dir():
            raise UsageError(
                f"{path}: the folder {path.parent} does not exist; make it first",
                code=OUT_UNWRITABLE,
            )
        existed = path.exists()
        with path.open("ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error.strerror}", code=OUT_UNWRITABLE
        ) from None
