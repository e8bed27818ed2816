"""Safety of keys: bursts, pastes, dialogs, forms. Each of these changed something once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from textual import events
from textual.command import CommandList
from textual.widgets import Button, Input

from console.actions import ACTIONS
from console.app import ConsoleApp
from console.keyboard import KeyClock
from console.screens.dialogs import ConfirmDialog, PromptDialog
from console.screens.palette import Palette
from console.screens.submit import SubmitForm
from console.state import ConsolePage, GoTo, Place, Say
from tests.console.samples import (
    KEYS,
    FakeFeed,
    answer,
    answers,
    burst,
    fake_app,
    is_open,
    press_after,
    text_of,
    until,
)
from zcrawl.errors import RefusedError
from zcrawl.master.desk.rights import READS
from zcrawl.model.reasons.cluster import NAME_EXISTS

DONE = {"run": 1, "state": "running", "changed": 1}


def acting_feed() -> FakeFeed:
    return FakeFeed(said=answers() | dict.fromkeys(("act", "tune", "submit", "drain"), DONE))


async def settled(app: ConsoleApp, pilot: Any) -> None:
    """All keys are handled."""
    await until(pilot, lambda: not app._typed)
    await pilot.pause(0.1)


@pytest.mark.parametrize(
    ("typed", "page"),
    [(":hosts\n", ConsolePage.HOSTS), (":errors\n", ConsolePage.ERRORS)],
)
async def test_a_command_sent_in_one_burst_reaches_the_prompt(
    typed: str, page: ConsolePage
) -> None:
    """`:hosts` paused a job, because `h` reached the page before the prompt was open."""
    feed = acting_feed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        burst(app, "3" + typed)
        await until(pilot, lambda: app.view.page is page)
        assert not feed.done("act") and len(app.screen_stack) == 1


async def test_a_filter_sent_in_one_burst_is_the_filter_and_nothing_else() -> None:
    """`/rust` ran a retry. Here each letter is in the filter, and the keys after it act again."""
    feed = acting_feed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        burst(app, "3/rust\n2")
        await until(pilot, lambda: app.view.page is ConsolePage.NODES)
        assert not feed.done("act")
        await pilot.press("3")
        assert app.view.table.filter == "rust"


@pytest.mark.parametrize("typed", ["xy", "dy", "hy", "ry", "h\n", "x:hosts\n", "hydrate"])
async def test_a_yes_before_the_question_is_seen_is_no_answer(typed: str) -> None:
    """Whoever types a word on the wrong page has not read the question."""
    feed = acting_feed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        burst(app, typed)
        await settled(app, pilot)
        assert not feed.done("act") and isinstance(app.screen, ConfirmDialog)
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)


class ManualClock(KeyClock):
    """A clock that a test moves; a key is pressed when it arrives."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def of(self, event: events.Key | events.Paste) -> float:
        return self.time


async def type_slowly(app: ConsoleApp, pilot: Any, clock: ManualClock, *keys: str) -> None:
    """Press keys; a number between them is a time that passes."""
    for key in keys:
        try:
            clock.time += float(key)
        except ValueError:
            char = key if len(key) == 1 else None
            app.post_message(events.Key(KEYS.get(key, key), char))
            await until(pilot, lambda: not app._typed)
        await pilot.pause()


@pytest.mark.parametrize(
    ("keys", "agrees"),
    [
        (("1.0", "y", "0.2"), True),
        (("0.29", "y", "1.0"), False),
        (("1.0", "m", "0.05", "y", "1.0"), False),
        (("1.0", "m", "0.31", "y", "0.2"), True),
        (("1.0", "y", "0.05", "e", "1.0"), False),
        (("1.0", "y", "0.05", "y", "1.0"), False),
        (("1.0", "y", "0.05", "escape", "1.0"), False),
        (("1.0", *"hydrate", "1.0"), False),
        (("1.0", "m", "0.1", "a", "0.1", "y", "0.1", "b", "0.1", "e", "1.0"), False),
        (("1.0", "tab", "0.1", "enter", "1.0"), False),
        (("1.0", "tab", "1.0", "enter", "1.0"), True),
        (("1.0", "enter", "1.0"), False),
    ],
)
async def test_a_yes_counts_only_if_it_stands_alone(keys: tuple[str, ...], agrees: bool) -> None:
    """A `y` inside a word that is typed while a dialog is visible confirmed it."""
    feed, clock = acting_feed(), ManualClock()
    app = fake_app(feed, key_clock=clock)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3", "x")
        await until(pilot, lambda: is_open(app))
        dialog = app.screen
        await type_slowly(app, pilot, clock, *keys)
        await until(pilot, lambda: app._lone_key is None)
        if agrees:
            await until(pilot, lambda: len(feed.done("act")) == 1)
            return
        await settled(app, pilot)
        assert not feed.done("act")
        if app.screen is dialog and "y" in keys:
            assert "press y alone" in text_of(app)


async def test_a_paste_right_before_a_yes_is_part_of_it() -> None:
    """A terminal without bracketed paste sends the rest as keys."""
    feed, clock = acting_feed(), ManualClock()
    app = fake_app(feed, key_clock=clock)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3", "x")
        await until(pilot, lambda: is_open(app))
        clock.time += 1.0
        app.post_message(events.Paste("y"))
        await type_slowly(app, pilot, clock, "y", "1.0")
        await settled(app, pilot)
        assert not feed.done("act") and isinstance(app.screen, ConfirmDialog)


async def test_a_paste_goes_into_the_prompt_or_nowhere() -> None:
    """Bracketed paste on a page does nothing; in a prompt it is text; in a dialog it is nothing."""
    feed = acting_feed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        app.post_message(events.Paste("xydyhy\n:hosts\n"))
        await settled(app, pilot)
        assert (app.view.page, len(app.screen_stack)) == (ConsolePage.JOBS, 1)
        burst(app, "/")
        app.post_message(events.Paste("rust"))
        burst(app, "\n")
        await until(pilot, lambda: app.view.table.filter == "rust")
        await pilot.press("escape")
        await press_after(pilot, "x")
        app.post_message(events.Paste("y"))
        await settled(app, pilot)
        assert not feed.done("act") and isinstance(app.screen, ConfirmDialog)


async def test_every_change_asks_and_a_destructive_one_defaults_to_no() -> None:
    """Enter says no where something is lost, and yes where it can be undone."""
    feed = acting_feed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        for key, destructive in (
            ("h", False),
            ("g", False),
            ("r", False),
            ("x", True),
            ("d", True),
        ):
            before = len(feed.done("act"))
            await press_after(pilot, key)
            assert len(feed.done("act")) == before, "it asks first"
            about = "its only run: run 2 paused" if key == "d" else "run 2, paused"
            assert f"job shop (2), {about}" in text_of(app)
            focused = app.screen.focused
            assert focused is not None and focused.id == ("no" if destructive else "yes")
            await answer(pilot, "enter")
            await until(pilot, lambda: len(app.screen_stack) == 1)
            await pilot.pause(0.1)
            assert len(feed.done("act")) == (before if destructive else before + 1)


async def test_a_click_on_yes_or_no_is_an_answer() -> None:
    """As the keys are."""
    feed = acting_feed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        await press_after(pilot, "x")
        await pilot.click("#no")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert not feed.done("act")
        await press_after(pilot, "x")
        await pilot.click("#yes")
        await until(pilot, lambda: len(feed.done("act")) == 1)


async def test_a_destructive_dialog_names_what_is_lost() -> None:
    """Job, run, state, and how much of it."""
    app = fake_app(acting_feed())
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        await press_after(pilot, "d")
        said = text_of(app)
        assert "Delete job and data?" in said
        assert "job shop (2), its only run: run 2 paused" in said
        assert "500 pages, 500 items" in said and "zcrawl delete 2" in said
        assert "--run" not in said
        await pilot.press("n")
        await press_after(pilot, "x")
        assert "480 queued URLs are dropped" in text_of(app)


async def test_escape_in_a_filter_clears_it() -> None:
    """While it is typed, and afterwards."""
    app = fake_app()
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3", "slash", *"docs")
        await until(pilot, lambda: app.view.table.filter == "docs")
        await pilot.press("escape")
        assert app.view.table.filter == "" and len(app.screen_stack) == 1
        await pilot.press("slash", *"docs", "enter", "escape")
        assert (app.view.table.filter, app.view.page) == ("", ConsolePage.JOBS)


async def test_one_press_opens_one_form() -> None:
    """The second `n` is typed into the first field of the first form."""
    app = fake_app(acting_feed())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        burst(app, "nnn")
        await until(pilot, lambda: is_open(app))
        await settled(app, pilot)
        assert len(app.screen_stack) == 2 and isinstance(app.screen, SubmitForm)
        assert app.screen.query_one("#field-sources", Input).value == "nn"


@pytest.mark.parametrize("keys", [("enter",) * 3, ("escape",) * 3, ("enter", "escape", "down")])
async def test_keys_that_come_while_the_palette_closes_do_no_harm(keys: tuple[str, ...]) -> None:
    """A second enter met a palette that was leaving, and ended the app."""
    app = fake_app(acting_feed())
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("ctrl+p", *"new job")
        palette = app.screen
        assert isinstance(palette, Palette)
        options = palette.query_one(CommandList)
        await until(pilot, lambda: options.option_count > 0)
        await pilot.press("down")
        for key in keys:  # to the palette itself, as keys that were on their way to it
            if key == "escape":
                palette._action_escape()
            elif key == "enter":
                palette._action_command_list("select")
            else:
                palette._action_cursor_down()
        await until(pilot, lambda: palette not in app.screen_stack)
        for key in keys:
            if key != "escape":
                palette._action_cursor_down()
                palette._action_command_list("select")
        await settled(app, pilot)
        await pilot.pause(0.1)
        assert app.is_running and app._exception is None
        assert len(app.screen_stack) <= 2, "one form for one choice"


async def test_a_key_for_a_list_of_the_palette_without_room_does_no_harm() -> None:
    """A list of one row whose scroll bar takes that row: page down ended the app."""
    app = fake_app()
    async with app.run_test(size=(80, 5)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("ctrl+p")
        palette = app.screen
        assert isinstance(palette, Palette)
        options = palette.query_one(CommandList)
        await until(pilot, lambda: options.option_count > 1 and options.size.height == 1)
        options.show_horizontal_scrollbar = True
        options._clear_caches()
        assert not options.scrollable_content_region
        for key in ("page_down", "page_up", "cursor_down", "cursor_up", "first", "last", "select"):
            palette._action_command_list(key)
        await pilot.pause()
        assert app.is_running and app._exception is None


async def test_the_palette_opens_again_while_the_last_one_is_being_removed() -> None:
    """Both had the same id, which ended the app."""
    app = fake_app()
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        app.action_command_palette()
        await until(pilot, lambda: app.screen.focused is not None)
        for _ in range(3):
            palette = app.screen
            assert isinstance(palette, Palette)
            palette.dismiss()
            app.action_command_palette()
            await until(pilot, lambda: app.screen.focused is not None)
        assert app.is_running and len(app.screen_stack) == 2


class TakenName(FakeFeed):
    """A leader that has a job named docs."""

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if op != "submit":
            return await super().ask(op, args)
        self.requests.append((op, args))
        if args["mode"] == "new" and args["spec"]["name"] == "docs":
            raise RefusedError("a job of this name exists: 1; --update …", code=NAME_EXISTS)
        return {"job": 1, "run": 7}


@pytest.mark.parametrize("offer", ["update", "again", "another name"])
async def test_a_refused_form_keeps_its_input_and_offers_what_would_work(offer: str) -> None:
    """The reason is at the name; a button updates the job or runs it again; so does a new name."""
    feed = TakenName()
    app = fake_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await press_after(pilot, "n")
        form = app.screen
        form.query_one("#field-sources", Input).value = "https://a.test/"
        form.query_one("#field-name", Input).value = "docs"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(form.query("#again")))
        assert app.screen is form and "a job named 'docs' exists" in text_of(app)
        assert form.query_one("#field-sources", Input).value == "https://a.test/"
        assert form.focused is form.query_one("#field-name")
        if offer == "another name":
            form.query_one("#field-name", Input).value = "docs2"
            await pilot.press("ctrl+s")
        else:
            form.query_one(f"#{offer}", Button).focus()
            await pilot.press("enter")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        mode = "new" if offer == "another name" else offer
        assert [args["mode"] for args in feed.done("submit")] == ["new", mode]


async def test_a_mistake_is_told_at_its_field() -> None:
    """Nothing is sent, and the form stays."""
    feed = acting_feed()
    app = fake_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await press_after(pilot, "n")
        form = app.screen
        form.query_one("#field-sources", Input).value = "https://a.test/"
        form.query_one("#field-tags", Input).value = "Docs"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Docs" in text_of(app).split("Tags")[-1])
        assert not feed.done("submit") and form.query_one("#field-tags").has_class("-mistaken")
        assert form.query_one("#mistake-tags").display


async def test_read_only_explains_itself_on_every_key() -> None:
    """Each key that would change something says why it does not."""
    feed = acting_feed()
    app = fake_app(feed, readonly=True)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        for page, keys in (("3", "hgxrdtn"), ("2", "dul"), ("5", "m"), ("6", "ra")):
            await pilot.press(page)
            for key in keys:
                app.clear_notifications()
                await pilot.press(key)
                await pilot.pause()
                assert "read-only" in app.view.message.text, (page, key)
                assert len(app.screen_stack) == 1
    assert not [op for op, _ in feed.requests if op in ("act", "tune", "drain", "submit")]


ABOUT = {  # pages that are reached from a row
    ConsolePage.JOB: Place(ConsolePage.JOB, "1", (("run", 1), ("job", 1))),
    ConsolePage.NODE: Place(ConsolePage.NODE, "w1", (("id", "w1"), ("kind", "worker"))),
    ConsolePage.HOST: Place(ConsolePage.HOST, "1", (("host", "https://h1.test"),)),
    ConsolePage.LANES: Place(ConsolePage.LANES, "1", (("id", 1),)),
}


@pytest.mark.parametrize("keys", [{}, {"act.pause": "f5", "act.drain": "f6", "job.new": "f7"}])
async def test_read_only_explains_itself_on_every_key_of_every_page(keys: dict[str, str]) -> None:
    """Also on keys that the user has changed, and on pages about one thing."""
    feed = acting_feed()
    app = fake_app(feed, readonly=True, keys=keys)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        for page in ConsolePage:
            names = {f"act.{a.name}": a.key for a in ACTIONS if page in a.pages}
            app.feed_event(GoTo(ABOUT.get(page, Place(page))))
            await until(pilot, partial(is_at, app, page))
            for name, key in {**names, "job.new": "n"}.items():
                app.feed_event(Say(""))
                await pilot.press(keys.get(name, key))
                await until(pilot, lambda: "read-only" in app.view.message.text)
                assert len(app.screen_stack) == 1, (page, name)
    assert {op for op, _ in feed.requests} <= READS


def is_at(app: ConsoleApp, page: ConsolePage) -> bool:
    return app.view.page is page and app.screen is app.page_screen


@pytest.mark.parametrize(("page", "key"), [("2", "d"), ("2", "l"), ("1", "l"), ("6", "a")])
async def test_enter_is_no_wherever_something_is_lost(page: str, key: str) -> None:
    """Drain, force failover, retry of all errors; those of jobs have a test of their own."""
    feed = FakeFeed(said=answers() | dict.fromkeys(("act", "drain", "step_down"), DONE))
    app = fake_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press(page)
        await until(pilot, lambda: page != "6" or "errors:" in app.view.live.answers)
        await pilot.press("end")  # workers are above masters
        await pilot.press("home", *("down",) * (page == "2" and key == "d"))
        await press_after(pilot, key, "enter")
        await until(pilot, lambda: app.view.message.text == "nothing was changed")
        assert {op for op, _ in feed.requests} <= READS


async def test_what_a_form_sends_is_told_although_the_form_was_closed() -> None:
    """Escape does not take back what is on its way; it stays in the log."""
    go_on = asyncio.Event()

    class Slow(FakeFeed):
        async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
            if op == "submit":
                self.requests.append((op, args))
                await go_on.wait()
                return {"job": 1, "run": 7}
            return await super().ask(op, args)

    feed = Slow()
    app = fake_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await press_after(pilot, "n")
        app.screen.query_one("#field-sources", Input).value = "https://a.test/"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(feed.done("submit")) == 1)
        await pilot.press("ctrl+s", "escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        go_on.set()
        await until(pilot, lambda: any("run 7" in h.text for h in app.view.live.happenings))
        assert len(feed.done("submit")) == 1


async def test_a_refused_rate_limit_is_told_at_its_field() -> None:
    """The form keeps what was typed, and the field that the leader means has the reason."""

    class Strict(FakeFeed):
        async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
            if op == "tune":
                raise RefusedError("change: politeness.concurrency: 900 is above 512", code="bad")
            return await super().ask(op, args)

    app = fake_app(Strict())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        await press_after(pilot, "t")
        form = app.screen
        form.query_one("#field-concurrency", Input).value = "900"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "900 is above 512" in text_of(app))
        assert app.screen is form and form.query_one("#mistake-concurrency").display
        assert form.query_one("#field-concurrency", Input).value == "900"


async def test_the_prompt_completes_and_closes_in_order() -> None:
    """Tab and enter within one burst work on what was typed before them."""
    app = fake_app()
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        burst(app, ":qu\t\n")
        await until(pilot, lambda: app.view.page is ConsolePage.QUEUES)
        burst(app, ":nod")
        await until(pilot, lambda: isinstance(app.screen, PromptDialog))
        await settled(app, pilot)
        assert app.screen.query_one(Input).value == "nod"
        burst(app, "\x1b3")
        await until(pilot, lambda: app.view.page is ConsolePage.JOBS)
