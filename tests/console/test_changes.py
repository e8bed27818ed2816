"""What a dialog says is what the cluster does: for each action and each kind of row."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.actions import BY_NAME, PlannedChange, changes
from console.app import ConsoleApp
from console.columns.work import job_rows
from console.drawing.question import question_lines, question_title
from console.state import (
    Answered,
    ConsolePage,
    Drill,
    GoTo,
    Mark,
    MoveTo,
    Place,
    ToggleRow,
    View,
)
from console.view import chosen_rows, reduce
from tests.console.samples import (
    FakeFeed,
    answer,
    answers,
    came,
    fake_app,
    heard,
    press_after,
    run,
    snapshot,
    text_of,
    until,
)
from zcrawl.cli.specs import prepare
from zcrawl.demo.server import DemoServer
from zcrawl.errors import ZcrawlError
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.watching import in_folder

JOB_ACTIONS = ("pause", "resume", "cancel", "retry", "delete")
KINDS = (
    "job",
    "newest run",
    "older run",
    "queue",
    "page of the newest run",
    "page of an older run",
)
DELETED = "deleted"


def said(action: str, planned: list[PlannedChange]) -> str:
    """The whole dialog."""
    lines = question_lines(BY_NAME[action], planned, 0)
    return "\n".join([question_title(planned), *("".join(s.text for s in ln) for ln in lines)])


def go(view: View, kind: str, job: str) -> View:
    """A view whose cursor is on a row of this kind of the job."""
    if kind == "queue":
        view = reduce(view, GoTo(Place(ConsolePage.QUEUES)))
        rows = view.live.rows("queues:")
        return reduce(view, MoveTo(next(n for n, row in enumerate(rows) if str(row["job"]) == job)))
    view = reduce(view, GoTo(Place(ConsolePage.JOBS)))
    jobs = sorted((row for row in job_rows(view)), key=lambda row: -int(row["job"]))
    view = reduce(view, MoveTo(next(n for n, row in enumerate(jobs) if str(row["job"]) == job)))
    if kind == "job":
        return view
    view = reduce(view, ToggleRow())
    inside = 1 if "newest" in kind else 2
    index = next(n for n, row in enumerate(jobs) if str(row["job"]) == job) + inside
    view = reduce(view, MoveTo(index))
    return reduce(view, Drill()) if kind.startswith("page") else view


class Cluster:
    """A cluster with jobs of two runs each, and a View of it."""

    def __init__(self, cluster: EmbeddedCluster, site: str) -> None:
        self.cluster, self.site = cluster, site

    async def job_of_two_runs(self, name: str) -> str:
        changes = {"name": name, "politeness.rate": 1.0}
        args = prepare([self.site], None, None, changes).args("new", None)
        job = str((await self.cluster.ask("submit", args))["job"])
        await self.cluster.ask("act", {"ref": job, "action": "cancel"})
        again = {"ref": job, "mode": "again", "seeds": [], "seeding": False, "vouched": []}
        await self.cluster.ask("submit", again)
        return job

    async def states(self, job: str) -> dict[int, str]:
        """Its runs that are not deleted."""
        try:
            view = await self.cluster.ask("job", {"ref": job})
        except ZcrawlError:
            return {}
        return {r["run"]: r["state"] for r in view["runs"] if r["state"] != DELETED}

    async def view(self, job: str) -> View:
        """What a console hears, once the queue of the job is counted."""
        queues = {"by": "job", "sort": "queued", "desc": True, "limit": 500}
        async with asyncio.timeout(30.0):
            while True:
                answer = await self.cluster.ask("queues", queues)
                if job in [str(row["job"]) for row in answer["rows"]]:
                    break
        view = heard(msgspec.to_builtins(self.cluster.snapshot()))
        view = reduce(view, Answered("jobs:", await self.cluster.ask("jobs", {}), 1.0))
        return reduce(view, Answered("queues:", answer, 1.0))


async def test_what_a_dialog_says_is_what_the_cluster_does(tmp_path: Path) -> None:
    """The runs that change are those that the dialog names; a deleted job has no run left."""
    async with DemoServer() as server, EmbeddedCluster(tmp_path, 0) as embedded:
        cluster = Cluster(embedded, server.url)
        for action in JOB_ACTIONS:
            for kind in KINDS:
                job = await cluster.job_of_two_runs(f"{action}-{kind.replace(' ', '-')}")
                view = go(await cluster.view(job), kind, job)
                before = await cluster.states(job)
                older, newest = sorted(before)
                planned = changes(BY_NAME[action], chosen_rows(view))
                if "older" in kind and action in ("pause", "resume", "cancel"):
                    assert planned == [], "that run has ended"
                    continue
                (change,) = planned
                dialog = said(action, planned)
                named = {int(n) for n in re.findall(r"run (\d+)", dialog)}
                expected = {older} if "older" in kind else {newest}
                if (action, kind) == ("delete", "job"):
                    expected = {older, newest}
                assert named == expected, dialog
                assert change.request.command in dialog
                try:
                    await embedded.ask(change.request.op, change.request.args)
                except ZcrawlError:
                    assert action == "retry" and older in named, (action, kind)
                after = await cluster.states(job)
                changed = {run for run in before if after.get(run) != before[run]}
                assert changed <= named, (action, kind, before, after)
                if action in ("pause", "cancel", "delete"):
                    assert changed == named, (action, kind, before, after)
                if action == "delete":
                    title = "Delete job and data?" if kind == "job" else "Delete run and data?"
                    assert dialog.startswith(title), dialog
                    assert bool(after) is (kind != "job")


def two_runs() -> dict[str, Any]:
    """A job whose first run has ended, and another job."""
    ended = run(1, "docs", state="completed", pages=100, items=70)
    return snapshot(0, runs=[ended, run(2, "docs", job=1), run(3, "shop")])


def test_a_deleted_job_loses_the_data_of_all_its_runs() -> None:
    """Not only that of the newest one, which the row shows."""
    view = reduce(heard(two_runs()), GoTo(Place(ConsolePage.JOBS)))
    dialog = said("delete", changes(BY_NAME["delete"], [job_rows(view)[0]]))
    assert "job docs (1), all 2 runs: run 2 running, run 1 completed" in dialog
    assert "its data is deleted: 600 pages, 570 items" in dialog
    assert "zcrawl delete 1\n" in dialog + "\n" and "--run" not in dialog


def test_marked_rows_of_a_job_and_of_its_runs_are_counted_once() -> None:
    """A run of a job that is deleted as a whole goes with it; the dialog lists what is sent."""
    view = reduce(heard(two_runs()), GoTo(Place(ConsolePage.JOBS)))
    view = go(view, "job", "1")
    view = reduce(view, ToggleRow())
    for _ in range(3):
        view = reduce(view, Mark())
    assert len(chosen_rows(view)) == 3
    (deleted,) = changes(BY_NAME["delete"], chosen_rows(view))
    assert deleted.request.args == {"ref": "1", "action": "delete", "runs": [1, 2]}
    (paused,) = changes(BY_NAME["pause"], chosen_rows(view))
    assert paused.request.args == {"ref": "1", "run": 2, "action": "pause"}
    retried = changes(BY_NAME["retry"], chosen_rows(view))
    assert [change.target.args["run"] for change in retried] == [2, 1]
    dialog = said("retry", retried)
    assert all(change.target.text in dialog for change in retried)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_each_dialog_shows_the_command_and_the_target_of_each_request(name: str) -> None:
    """Words, command line and request come from one value."""
    rows = [{**run(1, "docs"), "id": "w1", "kind": "worker", "host": "https://h1.test"}]
    rows[0] |= {"reason": "dns", "count": 4, "host_id": 7, "epoch": 3, "leader": "m1"}
    values = {"rate": "5", "worker": "w2"}
    planned = changes(BY_NAME[name], rows, values)
    dialog = said(name, planned)
    (change,) = planned
    assert change.request.command in dialog and change.target.text in dialog
    assert change.target.args.items() <= change.request.args.items()
    assert change.target.words in change.request.command


async def test_a_run_that_began_while_the_dialog_was_open_is_not_deleted(tmp_path: Path) -> None:
    """The dialog named all runs that there were. The leader refuses to delete another one, and the
    next dialog names it."""
    async with DemoServer() as server, EmbeddedCluster(tmp_path, 0) as embedded:
        cluster = Cluster(embedded, server.url)
        job = await cluster.job_of_two_runs("docs")
        app = ConsoleApp({"test": in_folder(tmp_path)})
        async with app.run_test(size=(120, 30)) as pilot:
            await pilot.press("3")
            await until(pilot, lambda: "docs" in text_of(app))
            await until(pilot, lambda: "jobs:" in app.view.live.answers)
            await press_after(pilot, "d")
            assert "all 2 runs: run 2 pending, run 1 cancelled" in text_of(app)
            await embedded.ask("act", {"ref": job, "action": "cancel"})
            again = {"ref": job, "mode": "again", "seeds": [], "seeding": False}
            await embedded.ask("submit", again)
            await answer(pilot, "y")
            await until(pilot, lambda: "also has run 3" in app.view.message.text)
            assert "[unseen_runs]" in app.view.message.text
            assert sorted(await cluster.states(job)) == [1, 2, 3]
            await until(pilot, lambda: len(job_rows(app.view)[0]["all_runs"]) == 3)
            await press_after(pilot, "d")
            assert "all 3 runs" in text_of(app)
            await answer(pilot, "y")
            await until(pilot, lambda: "run 3: deleted" in app.view.message.text)
            assert await cluster.states(job) == {}


async def test_a_change_is_about_the_run_that_the_dialog_named() -> None:
    """The job got a newer run while the dialog was open: the older one is paused."""
    done = {"run": 1, "state": "paused", "changed": 1}
    feed = FakeFeed(snapshot(0, runs=[run(1)]), said=answers() | {"act": done})
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        await press_after(pilot, "h")
        feed.emit(came(snapshot(1, runs=[run(1), run(2, "docs", job=1)])))
        await pilot.pause()
        await answer(pilot, "y")
        await until(pilot, lambda: len(feed.done("act")) == 1)
        assert feed.done("act") == [{"ref": "1", "run": 1, "action": "pause"}]
