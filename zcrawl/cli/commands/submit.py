"""`zcrawl submit`: give a job to a running cluster and print its id; `--wait` waits for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.cli.specs import (
    Submission,
    is_plain_word,
    output_for,
    output_on_cluster,
    prepare,
    prepare_again,
    spec_options,
    split_sources,
    stored_name,
    typed_params,
    with_capture,
)
from zcrawl.errors import RefusedError, UnreachableError, UsageError
from zcrawl.model.formats import listed_endings
from zcrawl.model.reasons.cluster import JOB_CHANGED

if TYPE_CHECKING:
    from zcrawl.cli.connect import Ask

POLL_S: Final = 0.5
LACK_POLL_S: Final = 0.1
LACK_S: Final = 3.0  # time for workers to report that they cannot do a job


@click.command("submit", cls=Command)
@click.argument("sources", nargs=-1, metavar="JOB.toml | URL... | NAME")
@click.option("--seeds", metavar="FILE", help="URLs, one per line; - is stdin.")
@click.option(
    "--out",
    metavar="FILE",
    help=f"A {listed_endings()} file that gets the items. On a cluster a master "
    "writes it, in its outputs folder; `export` writes one here.",
)
@click.option("--update", is_flag=True, help="Replace the spec of a stored job and run it.")
@click.option("--again", is_flag=True, help="Run a stored job again, unchanged.")
@click.option("--no-run", is_flag=True, help="Only store the job.")
@click.option("--restart", is_flag=True, help="Cancel the live runs of the job, and start anew.")
@click.option("--live", is_flag=True, help="With --update: change the live runs, start none.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Give a value to a parameter of the job ([params]); can be repeated.",
)
@click.option("--wait", is_flag=True, help="Wait until the run has ended; print its summary.")
@spec_options
@common
def submit_command(
    settings: Settings,
    sources: tuple[str, ...],
    seeds: str | None,
    out: str | None,
    update: bool,
    again: bool,
    no_run: bool,
    restart: bool,
    live: bool,
    assignments: tuple[str, ...],
    wait: bool,
    changes: dict[str, Any],
) -> int:
    """Give a job to the cluster; print its id.

    The cluster is the one of the configuration, or the one that `zcrawl up` runs in the data
    folder. If a job of this name exists, give --update or --again. `submit NAME --again` runs a
    stored job once more.
    """
    if update and again:
        raise UsageError(
            "--update and --again cannot be used together: --update brings a new spec, --again "
            "runs the stored one"
        )
    if no_run and (wait or restart or again):
        raise UsageError("--no-run starts no run, so --wait, --restart and --again make no sense")
    if live and (not update or wait or restart or no_run):
        raise UsageError(
            "--live changes the live runs of a job and starts none: use it with --update, and "
            "without --wait, --restart and --no-run"
        )
    params = typed_params(assignments)
    if no_run and (params or seeds):
        raise UsageError("--no-run starts no run, so --set and --seeds make no sense")
    if restart and not (update or again):
        raise UsageError("--restart needs --update (a new spec) or --again (the stored one)")
    if out == "-":
        raise UsageError(
            "--out - is for `zcrawl crawl`; `zcrawl export ID` prints the items of a job"
        )
    name = stored_name(sources)
    if again and name:
        submission = prepare_again(name, seeds, changes, params)
    else:
        if name and is_plain_word(name):
            raise UsageError(
                f"{name!r} is neither a URL nor a file. To run a stored job once more: "
                f"zcrawl submit {name} --again; for a site: https://{name}/"
            )
        job_file, urls = split_sources(sources)
        submission = prepare(urls, job_file, seeds, with_capture(changes, out), params=params)
    to = None
    if out:
        here = not settings.in_cluster
        to = output_for(out, settings.data, submission.spec) if here else output_on_cluster(out)
    mode = "update" if update else "again" if again else "new"
    from zcrawl.runtime.loop import run_async

    args = submission.args(mode, to)
    flags = {"no_run": no_run, "restart": restart, "live": live}
    args |= {key: True for key, given in flags.items() if given}
    return run_async(_submit(settings, submission, args, to, wait))


def with_remedy(view: Mapping[str, Any]) -> str:
    """Return the reason in the view of a job or a run, with advice if waiting does not help,
    because no live worker has what the job needs."""
    if not view.get("missing"):  # the view of a run does not have it
        return str(view["reason"])
    return (
        f"{view['reason']}; install it where a worker runs and start that worker again, or end "
        f"the job: zcrawl cancel {view['job']}"
    )


async def _wait(ask: Ask, job: int, run: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wait until the run has ended; return the views of job and run. Prints why it waits. The run
    of a held submission may not have started; RefusedError if it never will."""
    from zcrawl.cli import output
    from zcrawl.cli.connect import AWAY
    from zcrawl.model.snapshot import ENDED

    last, away = "", False
    while True:
        try:
            view = await ask("job", {"ref": str(job)})
        except UnreachableError as error:
            if error.code != AWAY:
                raise
            if not away:
                output.note(f"{error}; this command waits")
            away = True
            await asyncio.sleep(POLL_S)
            continue
        if away:
            output.note("the database is back")
            last, away = "", False
        own = next((row for row in view["runs"] if row["run"] == run), None)
        if own is None:
            held = (view.get("schedule") or {}).get("held_submission")
            if held is None or held["run"] != run:
                raise RefusedError(
                    f"run {run} will not start: the schedule of job {job} was changed or paused, "
                    "or the job was deleted, while it was held; submit it again",
                    code=JOB_CHANGED,
                )
            await asyncio.sleep(POLL_S)
            continue
        if own["state"] in ENDED:
            return view, own
        reason = with_remedy(view if view["run"] == run else own)
        if reason != last:
            last = reason
            output.note_if(reason and f"{own['state']}: {reason}")
        await asyncio.sleep(POLL_S)


async def _lack(ask: Ask, job: int, run: int) -> str:
    """Return why a job with plugins or spiders waits, and what to do, as the leader reports it
    within the first seconds. Empty: the job runs, or the leader does not know yet."""
    for _ in range(round(LACK_S / LACK_POLL_S)):
        view = await ask("job", {"ref": str(job), "run": run})
        if view["reason"] or view["pages"] + view["failed"] + view["skipped"]:
            return with_remedy(view)
        await asyncio.sleep(LACK_POLL_S)
    return ""


async def _submit(
    settings: Settings,
    submission: Submission,
    args: dict[str, Any],
    to: tuple[str, str] | None,
    wait: bool,
) -> int:
    from zcrawl.cli import connect, output
    from zcrawl.cli.crawl_session import closing_lines, exit_code
    from zcrawl.cli.feed import send_seeds
    from zcrawl.roles.extras import needs_more
    from zcrawl.submit.outputs import is_remote
    from zcrawl.submit.validate import advice
    from zcrawl.telemetry.views import REASON_KEYS, summary

    async with connect.running(settings) as ask:
        reply = await ask("submit", args)
        output.note_if(advice(submission.spec))
        if not settings.json:
            output.data(str(reply["job"]))
        if reply.get("held"):
            what = f"run {reply['held_run']} is held until run {reply['after']} ends"
            output.note_if("" if settings.json else f"job {reply['job']}: {what}")
            if not wait:
                if settings.json:
                    names = ("job", "held", "held_run", "after")
                    output.print_json({"run": None, **{name: reply[name] for name in names}})
                return 0
        elif not reply["run"]:
            changed = reply.get("changed", 0)
            also = f"; {output.plural(changed, 'live run')} changed" if args.get("live") else ""
            output.note_if("" if settings.json else f"job {reply['job']} is stored{also}")
            if settings.json:
                output.print_json({"job": reply["job"], "run": None, "changed": changed})
            return 0
        run = reply["run"] or reply["held_run"]
        if reply.get("waits"):  # a master of an earlier version does not say it
            output.note(f"job {reply['job']} waits: {reply['waits']}")
        elif reply.get("workers") and submission.spec.placement.require:
            output.note(f"goes to {', '.join(reply['workers'])}")
        if submission.more:
            await send_seeds(ask, run, submission)
        if not wait and (submission.stored or needs_more(submission.spec)):
            output.note_if(await _lack(ask, reply["job"], reply["run"]))
        complaint = submission.lines.complaint()
        if complaint:
            output.note(complaint)
        code = 1 if complaint else 0
        if not wait:
            if settings.json:
                output.print_json({"job": reply["job"], "run": reply["run"]})
            return code
        try:
            view, own = await _wait(ask, reply["job"], run)
        except asyncio.CancelledError:
            job = reply["job"]
            output.note(
                f"job {job} continues; zcrawl job {job} shows it, zcrawl cancel {job} ends it"
            )
            raise
    reasons = view if view["run"] == run else {}
    own |= {key: reasons.get(key, {}) for key in (*REASON_KEYS, "spec")}
    if settings.json:
        output.print_json(summary(own))
    else:
        where = to[0] if to else None
        if to and settings.in_cluster and not is_remote(to[0]):
            where = f"{to[0]} on the master that leads"
        for line in closing_lines(own, where, submission.job_file):
            output.note(line)
    return max(code, exit_code(own))
