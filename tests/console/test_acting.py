"""Doing things: to which cluster, to which rows, by which keys."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from console.actions import ACTIONS, BY_NAME, may_do, offered, plan, typed_values
from console.app import ConsoleApp
from console.commands import completions
from console.keymap import key_mistake
from console.state import ConsolePage, Drill, GoTo, Place, Say, View
from console.view import chosen_rows, reduce
from tests.console.samples import (
    KEYS,
    TARGET,
    FakeFeed,
    answer,
    answers,
    fake_app,
    heard,
    press_after,
    run,
    snapshot,
    text_of,
    until,
)
from zcrawl.errors import RefusedError


def says(app: ConsoleApp, text: str) -> bool:
    return text in app.view.message.text


def group(number: int, reason: str = "dns") -> dict[str, Any]:
    return {"run": 1, "job": 1, "name": "docs", "host_id": number, "host": f"h{number}"} | {
        "reason": reason,
        "count": 1,
    }


class Errors(FakeFeed):
    """A leader with many groups of errors, of which it gives 500 at a time."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.groups = [group(n) for n in range(1, number + 1)]

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if op == "act":
            self.requests.append((op, args))
            return {"run": 1, "state": "running", "changed": 1}
        if op != "errors":
            return await super().ask(op, args)
        self.requests.append((op, args))
        rows = [row for row in self.groups if args.get("filter", "") in row["host"]]
        first = int(args.get("offset", 0))
        return {"rows": rows[first : first + args["limit"]], "total": len(rows), "offset": first}


async def test_all_errors_that_match_are_retried_also_those_off_the_screen() -> None:
    """After a question that counts them; `r` alone is about the row at the cursor."""
    feed = Errors(1_203)
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("6")
        await until(pilot, lambda: "errors:" in app.view.live.answers)
        await press_after(pilot, "r", "y")
        await until(pilot, lambda: len(feed.done("act")) == 1)
        await press_after(pilot, "a")
        await until(pilot, lambda: "1,203 requests" in text_of(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.view.message.text == "nothing was changed")
        assert len(feed.done("act")) == 1, "enter means no"
        await pilot.press("slash", *"h11", "enter")
        await press_after(pilot, "a")
        await until(pilot, lambda: "111 requests" in text_of(app))
        await answer(pilot, "y")
        hosts = {n for n in range(1, 1_204) if "h11" in f"h{n}"}
        await until(pilot, lambda: len(feed.done("act")) == 1 + len(hosts))
        assert {args["host"] for args in feed.done("act")[1:]} == hosts and len(hosts) == 111


async def test_what_was_begun_on_a_cluster_ends_on_it() -> None:
    """Three jobs are paused; after the first the operator goes to another cluster."""
    go_on = asyncio.Event()

    class Slow(FakeFeed):
        async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
            if op != "act":
                return await super().ask(op, args)
            self.requests.append((op, args))
            await go_on.wait()
            return {"run": 1, "state": "paused", "changed": 1}

    runs = [run(n, f"job{n}") for n in (1, 2, 3)]
    feed = Slow(snapshot(0, runs=runs), snapshot(1, runs=runs))
    app = fake_app(
        feed, targets={"here": msgspec.structs.replace(TARGET, flags="--data here"), "lab": TARGET}
    )
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3", "ctrl+a")
        await press_after(pilot, "h", "y")
        await until(pilot, lambda: len(feed.done("act")) == 1)
        await pilot.press("colon", *"cluster", "space", *"lab", "enter")
        await until(pilot, lambda: app.view.cluster == "lab")
        go_on.set()
        await until(pilot, lambda: len(feed.done("act")) == 3)
        assert [args["ref"] for args in feed.done("act")] == ["3", "2", "1"]
        assert all("--data here" in happening.text for happening in app.view.live.happenings)


async def test_an_answer_of_the_old_cluster_is_not_shown_for_the_new_one() -> None:
    """It was asked for before the change, and comes after it."""
    go_on = asyncio.Event()

    class Slow(FakeFeed):
        async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
            await go_on.wait()
            return await super().ask(op, args)

    app = fake_app(Slow(), targets={"here": TARGET, "lab": TARGET})
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("colon", *"cluster", "space", *"lab", "enter")
        await until(pilot, lambda: app.view.cluster == "lab")
        go_on.set()
        await pilot.pause(0.2)
        assert not app.view.live.answers and app.view.live.snapshot is None


async def test_clusters_that_are_not_there_and_typing_mistakes_are_told() -> None:
    """Nothing else happens."""
    feed = FakeFeed()
    app = fake_app(feed, targets={"here": TARGET, "lab": TARGET})
    said = {
        "cluster moon": "clusters: here, lab",
        "theme moon": "themes: ",
        "jbos": "no command 'jbos'",
        "pause": "pause needs a name or a number",
        "tune docs": "which rate limit?",
        "tune docs speed=5": "'speed' is none of rate, concurrency, burst",
        "tune docs rate=fast": "rate: not a number: 'fast'",
        "job 'docs": "No closing quotation",
        "reassign https://a.test": "to which worker?",
        "": "nothing was typed",
    }
    async with app.run_test(size=(120, 30)) as pilot:
        for typed, expected in said.items():
            prompt = [KEYS.get(char, char) for char in typed]
            await pilot.press("colon", *prompt, "enter")
            await until(pilot, partial(says, app, expected))
        assert app.view.cluster == "here" and not feed.done("tune") and not feed.done("act")


def test_names_of_clusters_are_completed() -> None:
    """As they stand in the configuration."""
    view = View(clusters=("here", "lab"))
    assert completions("cluster l", view) == ["cluster lab"]


@pytest.mark.parametrize(
    ("keys", "mistake"),
    [
        ({}, ""),
        ({"view.freeze": "f2"}, ""),
        ({"view.freeze": "f2,ctrl+space", "act.pause": "p"}, ""),
        ({"view.freez": "f2"}, "nothing is called view.freez"),
        ({"view.freeze": "q"}, "q is both"),
        ({"act.pause": "d"}, "d is both"),
    ],
)
def test_a_mistake_in_the_users_keys_is_told(keys: dict[str, str], mistake: str) -> None:
    """A name that nothing has, or one key for two things: silence would be a riddle."""
    assert mistake in key_mistake(keys) and bool(key_mistake(keys)) is bool(mistake)


async def test_the_users_keys_work_and_are_the_ones_that_are_shown() -> None:
    """In the footer."""
    feed = FakeFeed(said={"act": {"run": 1, "state": "paused", "changed": 1}})
    app = fake_app(feed, keys={"act.pause": "f5", "view.freeze": "f2"}, theme="nord")
    async with app.run_test(size=(220, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3", "h", "p")
        assert (app.view.paused, len(app.screen_stack)) == (False, 1)
        await pilot.press("f2")
        await press_after(pilot, "f5", "y")
        await until(pilot, lambda: len(feed.done("act")) == 1)
        assert app.view.paused and app.theme == "nord"
        await until(pilot, lambda: "f5 pause" in text_of(app) and "f2 freeze" in text_of(app))
        assert app.screen.active_bindings["f5"].binding.id == "act.pause"


async def test_a_theme_and_keys_that_do_not_exist_are_told_at_the_start() -> None:
    """The console runs with its own, and says why."""
    for options, expected in (
        ({"theme": "moonlight"}, "no theme 'moonlight'"),
        ({"keys": {"act.ö": "f5"}}, "nothing is called act.ö"),
    ):
        app = fake_app(FakeFeed(), **options)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, partial(says, app, expected))


async def test_nothing_is_gathered_by_a_leader_that_refuses() -> None:
    """It says why, and asks nothing."""

    class Refusing(Errors):
        async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
            if op == "errors" and "offset" in args and args["limit"] == 500:
                raise RefusedError("not now", code="busy")
            return await super().ask(op, args)

    feed = Refusing(3)
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("6")
        await until(pilot, lambda: "errors:" in app.view.live.answers)
        await pilot.press("a")
        await until(pilot, lambda: len(app.screen_stack) == 1 and bool(app.view.message.text))
        assert "not now" in app.view.message.text and not feed.done("act")


async def test_of_many_rows_each_result_is_told_and_counted() -> None:
    """What did not fit is not left out in silence."""
    runs = [run(1, "a"), run(2, "b", state="completed"), run(3, "c")]

    class Half(FakeFeed):
        async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
            if op == "act" and args["ref"] == "3":
                raise RefusedError("not now", code="busy")
            return await super().ask(op, args)

    said = answers() | {"act": {"run": 1, "state": "paused", "changed": 1}}
    feed = Half(snapshot(0, runs=runs), snapshot(1, runs=runs), said=said)
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3", "ctrl+a")
        await press_after(pilot, "h", "y")
        expected = "pause: 1 done, 1 refused, 1 left out; the log has each"
        await until(pilot, lambda: app.view.message.text == expected)
        texts = [happening.text for happening in app.view.live.happenings]
        assert any("zcrawl pause 1" in text for text in texts)
        assert any("not now [busy]" in text for text in texts)


async def test_the_help_panel_has_the_keys_and_words_of_the_page() -> None:
    """It stays open over pages; escape closes it."""
    app = fake_app()
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("3", "question_mark")
        await until(pilot, lambda: "Sort" in text_of(app) and "delete" in text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: not app.screen.query("HelpPanel"))
        assert app.view.page is ConsolePage.JOBS


def test_a_rate_limit_is_sent_as_it_was_typed_and_mistakes_are_named() -> None:
    """The command line that is shown means the same number."""
    tune = BY_NAME["tune"]
    assert plan(tune, [run(1)], typed_values(tune, "99999999 3"))[0].command == (
        "zcrawl tune 1 --run 1 --rate 99999999 --concurrency 3"
    )
    for typed, mistake in (("fast", "rate: not a number"), ("5 x", "concurrency: not")):
        with pytest.raises(ValueError, match=mistake):
            plan(tune, [run(1)], typed_values(tune, typed))


def test_a_job_is_acted_on_as_it_is_now_on_its_own_page_too() -> None:
    """It had ended when the page was opened, and was retried since."""
    view = heard(snapshot(0, runs=[run(1, state="completed")]))
    view = reduce(reduce(view, GoTo(Place(ConsolePage.JOBS))), Drill())
    assert plan(BY_NAME["pause"], chosen_rows(view)) == []
    view = heard(snapshot(1, runs=[run(1, state="running")]), view=view)
    assert [request.args["action"] for request in plan(BY_NAME["pause"], chosen_rows(view))] == [
        "pause"
    ]


def test_a_master_is_not_offered_to_be_drained() -> None:
    """A worker is."""
    for kind, offers in (("master", False), ("worker", True)):
        place = Place(ConsolePage.NODE, "x", (("id", "x"), ("kind", kind)))
        names = {action.name for action in offered(reduce(View(), GoTo(place)))}
        assert ("drain" in names) is offers


async def test_the_items_of_one_job_are_a_key_away() -> None:
    """From the list and from its page; escape comes back; the command line knows names."""
    feed = FakeFeed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("i")
        assert [app.view.page] == [ConsolePage.OVERVIEW], "it is about no job"
        await pilot.press("3", "home", "i")
        await until(pilot, lambda: {"limit": 200, "run": 2, "text": ""} in feed.done("items"))
        assert (app.view.page, app.view.place.ref) == (ConsolePage.ITEMS, "2")
        await pilot.press("escape")
        assert app.view.page is ConsolePage.JOBS
        await pilot.press("down", "enter", "i")
        assert (app.view.page, app.view.place.ref) == (ConsolePage.ITEMS, "1")
        await pilot.press("colon", *"items", "space", *"shop", "enter")
        await until(pilot, lambda: app.view.place.ref == "2")
        await pilot.press("colon", *"items", "space", *"moon", "enter")
        await until(pilot, lambda: "no job 'moon'" in app.view.message.text)


async def test_what_a_role_may_not_do_is_not_offered() -> None:
    """A key that may only watch: no action by key, command, form or palette; and it says why."""
    feed = FakeFeed(said=answers() | {"role": {"role": "viewer"}, "act": {}})
    app = fake_app(feed)
    async with app.run_test(size=(160, 30)) as pilot:
        await until(pilot, lambda: app.view.role == "viewer")
        for key in ("3", "h", "x", "r", "d", "t", "n"):
            await pilot.press(key)
            await pilot.pause()
            assert len(app.screen_stack) == 1
            if key != "3":
                assert "role 'viewer', which may only watch" in app.view.message.text
                app.feed_event(Say(""))
        await until(pilot, lambda: "cancel" not in text_of(app))
        assert "new job" not in text_of(app) and "read-only" in text_of(app)
        await pilot.press("colon", *"pause", "space", "1", "enter")
        await until(pilot, lambda: "may only watch" in app.view.message.text)
        await pilot.press("ctrl+p", *"paus")
        await pilot.pause(0.5)
        assert "pause" not in text_of(app).lower().replace("paus ", "")
        assert not feed.done("act")


async def test_a_submitter_is_offered_what_is_about_jobs_only() -> None:
    """It may begin to pause a job, whose owner the masters know. It may not drain a worker or
    depose a leader: neither is offered, and a command says why."""
    feed = FakeFeed(said=answers() | {"role": {"role": "submitter"}, "drain": {}})
    app = fake_app(feed)
    async with app.run_test(size=(160, 30)) as pilot:
        await until(pilot, lambda: app.view.role == "submitter")
        names = {action.name for action in ACTIONS if may_do(app.view, action)}
        assert names.isdisjoint({"drain", "undrain", "step_down", "reassign"})
        assert names >= {"pause", "resume", "cancel", "retry", "delete", "tune"}
        await pilot.press("colon", *"drain", "space", *"w1", "enter")
        await until(pilot, lambda: "role 'submitter'" in app.view.message.text)
        assert len(app.screen_stack) == 1
        assert not feed.done("drain")


async def test_what_is_refused_is_asked_for_more_rarely() -> None:
    """Each refusal is a line in the leader's log, which the console shows to everybody."""
    feed = FakeFeed(said={name: answer for name, answer in answers().items() if name != "node"})
    now = 1.0
    app = fake_app(feed, clock=lambda: now)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("colon", *"node", "space", *"w9", "enter")
        await until(pilot, lambda: "node:w9" in app.view.live.answers)
        for now in range(2, 22):  # noqa: B007 - the clock
            app._tick()
            await pilot.pause()
        assert 2 <= len(feed.done("node")) <= 4
        assert len(feed.done("in_flight")) >= 15


async def test_after_an_action_the_console_asks_again_which_runs_there_are() -> None:
    """The next dialog names what is there now, also runs that ended before this leader."""
    done = {"run": 1, "state": "paused", "changed": 1}
    feed = FakeFeed(snapshot(0, runs=[run(1)]), said=answers() | {"act": done})
    app = fake_app(feed)  # its clock stands still: no question becomes due by time
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        await until(pilot, lambda: "docs" in text_of(app) and "jobs:" in app.view.live.answers)
        assert len(feed.done("jobs")) == 1
        await press_after(pilot, "h")
        await answer(pilot, "y")
        await until(pilot, lambda: len(feed.done("jobs")) == 2)
