"""`zcrawl test`: fetch once, without a cluster, and show what happened."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.cli.commands.crawl import check_before
from zcrawl.cli.specs import is_job_file, prepare, spec_options
from zcrawl.errors import UsageError, ZcrawlError
from zcrawl.frontier.extra import is_start
from zcrawl.model.reasons.skip import START

if TYPE_CHECKING:
    from zcrawl.model.spec import JobSpec

SHOWN_LINKS: Final = 20
LOOK_MS: Final = 200  # interval of the watcher when no file was saved
SHOWN_ITEMS: Final = 10
CELL: Final = 80  # most characters of a value


@click.command("test", cls=Command)
@click.argument("sources", nargs=-1, metavar="JOB.toml | URL [URL]")
@click.option("--links", is_flag=True, help=f"Show all links, not only {SHOWN_LINKS}.")
@click.option(
    "--block", default="", metavar="NAME", help="Use this [[extract]] block for the page."
)
@click.option(
    "--watch", is_flag=True, help="Fetch again whenever the job file or a spider is saved."
)
@spec_options
@common
def test_command(
    settings: Settings,
    sources: tuple[str, ...],
    links: bool,
    block: str,
    watch: bool,
    changes: dict[str, Any],
) -> int:
    """Fetch one page as a worker would, and show what happened.

    Shows guard, robots.txt, hops, timing, headers, charset, items and links with their scope. With
    a job file its first seed is fetched, or the URL after the file name, under the rules of a crawl
    of the file: only the file's seeds open private hosts and set the default scope. For a spider
    without seeds, `start` is called. Nothing is stored. Exit 1 unless the page was done.
    """
    if not sources or len(sources) > 2:
        raise UsageError("give a job file, a URL, or a job file and a URL")
    job_file = sources[0] if is_job_file(sources[0]) else None
    urls = sources[1:] if job_file else sources
    if len(urls) > 1:
        raise UsageError("`zcrawl test` fetches one page; give one URL")
    from zcrawl.cli import output
    from zcrawl.frontier.extra import START_URL
    from zcrawl.roles.vouching import Vouching
    from zcrawl.runtime.loop import run_async
    from zcrawl.submit.private import with_right
    from zcrawl.submit.shell_rights import with_shell_right

    def once() -> int:
        submission = prepare(urls, job_file, None, changes, takes_logins=True, names_page=True)
        os.environ.update(submission.secrets)
        check_before(submission, None)
        # As in a crawl: typed seeds open their own hosts, a page of the job does not.
        vouching = Vouching(lambda name, detail: output.note(detail))
        opened = run_async(vouching.opened_by(submission.typed))
        spec = with_right(submission.spec, opened, True)
        with_shell_right(spec, settings.job_rights().shell)
        names = [extract_block.name for extract_block in spec.extract]
        if block and block not in names:
            raise UsageError(
                f"--block {block}: no block of the job has that name; there are: "
                f"{', '.join(filter(None, names)) or 'none with a name'}"
            )
        url = submission.page or next(iter(submission.first), START_URL)
        return run_async(_test(settings, spec, url, links, block))

    if not watch:
        return once()
    if job_file is None:
        raise UsageError(
            "--watch looks at a job file for changes; give one: zcrawl test JOB.toml --watch"
        )
    return again_when_saved(Path(job_file), once)


def again_when_saved(path: Path, once: Callable[[], int]) -> int:
    """Repeat after each save, until Ctrl-C; print errors of the file and continue."""
    from watchfiles import watch

    from zcrawl.cli import output

    # Watch the folder: editors replace the file, and a watch on the file itself would end.
    saved = watch(
        path.absolute().parent,
        raise_interrupt=True,
        debounce=100,
        recursive=False,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
    )
    next(saved)  # start watching now, so that no save is missed while the page is fetched
    first: list[set[Any]] = [{(None, str(path))}]
    for changed in itertools.chain(first, saved):
        names = [Path(name) for _, name in changed]
        # A spider is a file next to its job. All files count, because a broken job names none.
        if not any(name.name == path.name or name.suffix == ".py" for name in names):
            continue
        try:
            once()
        except ZcrawlError as error:
            output.note(f"zcrawl: {error} [{error.code}]")
        output.note(f"watching {path}; Ctrl-C ends")
    return 0


async def _test(settings: Settings, spec: JobSpec, url: str, all_links: bool, block: str) -> int:
    from zcrawl.cli import output
    from zcrawl.roles.probe import probe

    report = await probe(spec, url, block, settings.job_rights())
    if settings.json:
        output.print_json(report)
    else:
        for line in describe(report, None if all_links else SHOWN_LINKS):
            output.data(line)
        if "extraction" in report and report["outcome"] == "done":
            _show_extraction(report)
    began = report["outcome"] == "skipped" and report["reason"] == START
    return 0 if report["outcome"] == "done" or began else 1


def describe(report: dict[str, Any], most_links: int | None) -> list[str]:
    """Return the report for people, as lines."""
    why = f": {report['reason']}" if report["reason"] else ""
    url = "the start of the job" if is_start(report["url"]) else report["url"]
    lines = [url, f"outcome    {report['outcome']}{why}"]
    if report["detail"]:
        lines.append(f"           {report['detail']}")
    if "guard" in report:
        lines += _decisions(report)
    if report.get("scope"):
        lines.append(f"scope      {report['scope']}: a crawl of this job follows no link to it")
    for number, hop in enumerate(report["hops"], 1):
        result = hop.get("error") or f"{hop['status']}, {hop['bytes']} bytes"
        by = f" by {hop['proxy']}" if "proxy" in hop else ""
        lines.append(f"hop {number:<6} {hop['method']} {hop['url']}{by}: {result}, {hop['ms']} ms")
    if report["hops"]:
        last = report["hops"][-1]
        lines += [f"  sent     {name}: {value}" for name, value in last["sent"].items()]
        lines += [f"  got      {name}: {value}" for name, value in last.get("headers", ())]
    if "final_url" in report:
        lines.append(f"final      {report['final_url']}")
        lines.append(f"type       {report['content_type']}, charset {report['charset']}")
    for item in report["items"] if "extraction" not in report else ():
        lines.append("item")
        lines += [f"  {name:<12} {value}" for name, value in item.items()]
    for request in report["requests"][:most_links]:
        handler = f" → {request['handler']}" if request["handler"] else ""
        lines.append(f"request    {request['method']} {request['url']}{handler}")
    lines += [f"sitemap    {url}" for url in report["sitemaps"][:most_links]]
    return lines + _links(report, most_links)


def _show_extraction(report: dict[str, Any]) -> None:
    from zcrawl.cli import output

    if not report["extraction"]["matched"]:
        output.data("extraction no block matches this page")
        return
    output.table(("item", "field", "value", "remark"), extraction_rows(report))


def extraction_rows(report: dict[str, Any]) -> list[tuple[object, str, str, str]]:
    """Return one row for each value of each item; rejected items come last, with the reason."""
    extraction = report["extraction"]
    rows: list[tuple[object, str, str, str]] = []
    for number, item in enumerate(report["items"][:SHOWN_ITEMS], 1):
        rows += [(number, name, shown(value), "") for name, value in item.items()]
    if len(report["items"]) > SHOWN_ITEMS:
        rows.append(("…", f"{len(report['items']) - SHOWN_ITEMS} more items", "", "--json has all"))
    for problem in extraction["problems"][:SHOWN_ITEMS]:
        rows += [("?", name, "", why) for name, why in problem["errors"].items()]
    for rejected in extraction["rejected"][:SHOWN_ITEMS]:
        errors = "; ".join(f"{name}: {why}" for name, why in rejected["errors"].items())
        remark = f"set aside: {rejected['reason']}" + (f" ({errors})" if errors else "")
        rows.append(("-", "", shown(rejected["item"]), remark))
    return rows


def shown(value: object) -> str:
    """Return a value for a table cell: on one line, cut."""
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def _decisions(report: dict[str, Any]) -> list[str]:
    guard, robots = report["guard"], report["robots"]
    addresses = ", ".join(f"{address} {why}" for address, why in guard["addresses"].items())
    verdict = "allowed" if guard["allowed"] else f"refused: {guard['why']}"
    lines = [f"guard      {verdict}{f' ({addresses})' if addresses else ''}"]
    if not robots["asked"]:
        lines.append("robots     not asked")
    else:
        verdict = "allowed" if robots["allowed"] else "disallowed"
        verdict = "unknown, to be asked again" if robots["later"] else verdict
        delay = robots["crawl_delay_s"]
        pace = f", crawl-delay {delay:g} s" if delay else ""
        answer = f"{robots['url']} answered {robots['status']}"
        lines.append(f"robots     {verdict}{pace} for {robots['user_agent']!r} ({answer})")
    return lines


def _links(report: dict[str, Any], most: int | None) -> list[str]:
    links = report.get("links")
    if links is None:
        return []
    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(x["scope"] for x in links).items())
    lines = [f"links      {len(links)}{f': {kinds}' if kinds else ''}"]
    lines += [
        f"  {link['scope']:<18} {link['url']}"
        + (f" → {link['to']}" if "to" in link else "")
        + (" (paging: adds no depth)" if "paging" in link else "")
        + (f" (refused by the address guard: {link['guard']})" if "guard" in link else "")
        for link in links[:most]
    ]
    if most is not None and len(links) > most:
        lines.append(f"  … {len(links) - most} more; --links shows all")
    for reason, count in report["rejected_links"].items():
        lines.append(f"  {count} that nobody can crawl: {reason}")
    return lines
