"""`zcrawl crawl`: one crawl on an embedded cluster, from the command line to the summary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.cli.specs import (
    Submission,
    format_of,
    output_for,
    prepare,
    spec_options,
    split_sources,
    with_capture,
)
from zcrawl.errors import UsageError
from zcrawl.model.formats import listed_endings
from zcrawl.model.reasons.usage import DATA_UNWRITABLE, NO_SECRET

if TYPE_CHECKING:
    from zcrawl.cli.crawl_session import CrawlTarget
    from zcrawl.runtime.nursery import Nursery


@click.command("crawl", cls=Command)
@click.argument("urls", nargs=-1, metavar="URL... | JOB.toml")
@click.option("--job", "job_file", metavar="FILE", help="A job file; flags change its values.")
@click.option("--seeds", metavar="FILE", help="URLs, one per line; - is stdin.")
@click.option("--workers", type=click.IntRange(1, 1000), metavar="N", help="Worker processes.")
@click.option("--out", metavar="FILE", help=f"Items, as {listed_endings()}; - is stdout.")
@click.option("--resume", is_flag=True, help="Continue the unfinished crawls of the data folder.")
@click.option("-v", "--verbose", is_flag=True, help="Progress on stderr even with --json.")
@spec_options
@common
def crawl_command(
    settings: Settings,
    urls: tuple[str, ...],
    job_file: str | None,
    seeds: str | None,
    workers: int | None,
    out: str | None,
    resume: bool,
    verbose: bool,
    changes: dict[str, Any],
) -> int:
    """Crawl from URLs, here and now, and write the items.

    Links are followed within the hosts of the URLs. Ctrl-C once finishes the requests in flight,
    saves, and prints the command that continues the crawl. Ctrl-C twice stops at once; no stored
    page is lost.
    """
    from zcrawl.cli import output
    from zcrawl.cli.crawl_session import CrawlTarget
    from zcrawl.model.spec import Schedule
    from zcrawl.submit.validate import advice

    if resume:
        given = {"URLs": urls, "--job": job_file, "--seeds": seeds, "--out": out, **changes}
        refused = [name for name, value in given.items() if value]
        if refused:
            raise UsageError(
                f"--resume continues the submitted crawl unchanged; leave out {refused[0]}"
            )
        plan = CrawlTarget(settings.data, None, None, settings.json)
        if not settings.data.exists():
            raise UsageError(
                f"nothing to resume: {settings.data} does not exist; --data DIR names the folder "
                "of the crawl"
            )
        check_unfinished(settings.data)
    else:
        if job_file is None:
            job_file, urls = split_sources(urls)
        submission = prepare(
            *(urls, job_file, seeds, with_capture(changes, out)),
            lists_vouch=True,
            takes_logins=True,
        )
        os.environ.update(submission.secrets)  # the workers are forked from this process
        check_before(submission, (out, format_of(out)) if out and out != "-" else None)
        output.note_if(make_folder(settings.data))
        to = output_for(out, settings.data, submission.spec)
        output.note_if(advice(submission.spec))
        if submission.spec.schedule != Schedule():
            output.note(
                "[schedule] is ignored here: `zcrawl up` and clusters run jobs by themselves"
            )
        plan = CrawlTarget(settings.data, submission, to, settings.json)
    return start(plan, settings, settings.workers(workers), verbose)


def check_before(submission: Submission, to: tuple[str, str] | None) -> None:
    """Raise JobError before any page is fetched, if this machine lacks something for the job."""
    from zcrawl.roles import preflight

    preflight.check_machine(submission.spec, to, os.environ)
    if submission.spec.spider:
        from zcrawl.runtime.loop import run_async

        run_async(preflight.check_spider(submission.spec, bool(submission.first)))


def start(plan: CrawlTarget, settings: Settings, workers: int, verbose: bool) -> int:
    """Run a plan on a cluster of its own."""
    from zcrawl.runtime.loop import run_async

    with first_workers(workers) as nursery:
        return run_async(run_plan(plan, settings, workers, nursery, verbose))


def first_workers(count: int) -> Nursery:
    """Fork the workers of a new crawl, before a loop or a thread exists."""
    from zcrawl.roles import worker_main
    from zcrawl.runtime.nursery import Nursery

    worker_main.load()
    return Nursery(worker_main.work, count)


async def run_plan(
    plan: CrawlTarget, settings: Settings, workers: int, nursery: Nursery, verbose: bool = False
) -> int:
    from zcrawl.cli.crawl_session import CrawlRun
    from zcrawl.cli.display import make_display
    from zcrawl.cli.interrupt import Interrupt, resume_command
    from zcrawl.roles.embedded import EmbeddedCluster

    items_to_stdout = plan.submission is not None and plan.output is None
    display = make_display(settings.json, verbose, items_to_stdout)

    def farewell() -> str:
        display.close()  # else the terminal keeps its cursor hidden
        return f"stopped; continue with: {resume_command(plan.data)}"

    with Interrupt(farewell) as interrupt:
        cluster = EmbeddedCluster(
            plan.data,
            workers,
            **settings.worker_limits(),
            blobs=settings.blobs(),
            pause_unfinished=plan.submission is not None,
            nursery=nursery,
        )
        async with cluster:
            return await CrawlRun(cluster, plan, display, interrupt).run()


def check_unfinished(data: Path) -> None:
    """Raise UsageError if an unfinished run needs a password that is not stored, or a package that
    is missing. Otherwise its pages would fail."""
    from zcrawl.roles import preflight
    from zcrawl.roles.offline import unfinished_specs
    from zcrawl.submit.stored import readable
    from zcrawl.submit.url_logins import typed_secrets

    for name, spec in unfinished_specs(data):
        preflight.check_extras(readable(spec), None)
        missing = [secret for secret in typed_secrets(spec) if secret not in os.environ]
        if missing:
            raise UsageError(
                f"{name}: its URL had a user name and password, which are not kept. Set "
                f"{' and '.join(missing)} and use --resume again, or start a new crawl of the URL",
                code=NO_SECRET,
            )


def make_folder(data: Path) -> str:
    """Create the data folder; return a warning if other users can read it, else ''."""
    from zcrawl.runtime.files import make_private_folder

    try:
        return make_private_folder(data)
    except OSError as error:
        raise UsageError(
            f"{data}: cannot be made: {error.strerror}", code=DATA_UNWRITABLE
        ) from None
