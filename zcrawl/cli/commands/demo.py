"""`zcrawl demo`: a real master and two worker processes crawl a book shop that ships with zcrawl,
served on loopback. It needs no network, and no rate limit, because it is its own server.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.cli.commands.crawl import first_workers, make_folder, run_plan
from zcrawl.cli.specs import output_for, prepare, spec_options, with_capture
from zcrawl.model.formats import listed_endings

if TYPE_CHECKING:
    from zcrawl.runtime.nursery import Nursery

WORKERS: Final = 2
CHANGES: Final = {
    "name": "demo",
    "politeness.rate": 0.0,
    "politeness.spread": True,
    "politeness.concurrency": 16,
}


@click.command("demo", cls=Command)
@click.option(
    "--workers",
    type=click.IntRange(1, 1000),
    default=WORKERS,
    metavar="N",
    help=f"Worker processes. [default: {WORKERS}]",
)
@click.option("--job", "job_file", metavar="FILE", help="A job file, e.g. one that extracts.")
@click.option("--out", metavar="FILE", help=f"Items, as {listed_endings()}.")
@spec_options
@common
def demo_command(
    settings: Settings,
    workers: int,
    job_file: str | None,
    out: str | None,
    changes: dict[str, Any],
) -> int:
    """Crawl a book shop that ships with zcrawl."""
    from zcrawl.cli import output
    from zcrawl.runtime.loop import run_async

    if settings.resolved.origins["data.dir"] == "default":
        settings = settings._replace(data=Path("zcrawl-demo").resolve())
    output.note_if(make_folder(settings.data))
    with first_workers(workers) as nursery:
        return run_async(_demo(settings, workers, job_file, out, changes, nursery))


async def _demo(
    settings: Settings,
    workers: int,
    job_file: str | None,
    out: str | None,
    changes: dict[str, Any],
    nursery: Nursery,
) -> int:
    from zcrawl.cli import output
    from zcrawl.cli.crawl_session import CrawlTarget
    from zcrawl.demo.server import DemoServer

    async with DemoServer() as server:
        changed = with_capture({**CHANGES, **changes}, out)
        submission = prepare([server.url], job_file, None, changed)
        to = output_for(out, settings.data, submission.spec)
        plan = CrawlTarget(settings.data, submission, to, settings.json)
        output.note(f"a book shop at {server.url}, {workers} workers, data in {settings.data}")
        code = await run_plan(plan, settings, workers, nursery)
    if code == 0 and not settings.json and sys.stderr.isatty():
        output.note("next: zcrawl crawl https://example.com --depth 2")
    return code
