"""The footer shows whole keys only, the most important ones where there is little room."""

from __future__ import annotations

import gc

import pytest
from textual.binding import Binding
from textual.widgets._footer import FooterKey

from console.app import ConsoleApp
from console.state import MAIN_PAGES, ConsolePage, GoTo, Place
from console.widgets.footer import ALL_KEYS, HELP, PALETTE, PageFooter, ShownKey, fitting
from tests.console.samples import fake_app, until
from tests.console.stories import busy_cluster


def key(id: str, label: str, display: str = "x") -> ShownKey:
    return ShownKey(id, display, display, label, "action", True, label)


def shown_keys(app: ConsoleApp) -> list[FooterKey]:
    return [key for footer in app.screen.query(PageFooter) for key in footer.query(FooterKey)]


def test_all_keys_are_shown_where_there_is_room() -> None:
    """With their own labels."""
    keys = (key("view.open", "open"), key("act.pause", "pause"), key(HELP, "help", "?"))
    assert fitting(keys, 80) == keys


def test_the_least_important_keys_are_left_out() -> None:
    """The page's own keys stay, in their order, and `?` has the rest."""
    names = ("row.mark", "act.pause", "job.new", "view.open", HELP, PALETTE)
    keys = tuple(key(name, "12345678") for name in names)
    kept = fitting(keys, 34)
    assert [entry.id for entry in kept] == ["act.pause", "view.open", HELP]
    assert [entry.label for entry in kept if entry.id == HELP] == [ALL_KEYS]


@pytest.mark.parametrize("page", [*MAIN_PAGES, ConsolePage.TAG_QUEUES, ConsolePage.HOST_QUEUES])
@pytest.mark.parametrize("width", [80, 120, 200])
async def test_no_key_of_a_page_is_cut(page: ConsolePage, width: int) -> None:
    """All that is in the footer is on the screen, and `?` is always there."""
    app = fake_app(busy_cluster())
    async with app.run_test(size=(width, 24)) as pilot:
        await pilot.pause()
        app.feed_event(GoTo(Place(page)))
        await until(pilot, lambda: any(key.region.width for key in shown_keys(app)))
        entries = shown_keys(app)
        assert all(entry.region.right <= width and entry.region.width for entry in entries)
        labels = {entry.key_display: entry.description for entry in entries}
        assert labels["?"] in ("help", ALL_KEYS)
        assert len({entry.action for entry in entries}) == len(entries)
        if page is ConsolePage.JOBS:
            assert {"h", "g", "x", "r", "d", "t"} <= labels.keys()


async def test_a_wider_screen_shows_more_keys() -> None:
    """And `?` is called help again."""
    app = fake_app(busy_cluster())
    async with app.run_test(size=(60, 24)) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: bool(shown_keys(app)))
        await until(pilot, lambda: ALL_KEYS in {entry.description for entry in shown_keys(app)})
        few = len(shown_keys(app))
        await pilot.resize_terminal(200, 24)
        await until(pilot, lambda: len(shown_keys(app)) > few)
        assert "help" in {entry.description for entry in shown_keys(app)}


async def test_a_terminal_without_focus_shows_the_keys_of_its_page() -> None:
    """A browser's terminal often has none, and shows pages all the same."""
    app = fake_app(busy_cluster())
    async with app.run_test(size=(120, 24)) as pilot:
        app.app_focus = False
        await pilot.pause()
        app.feed_event(GoTo(Place(ConsolePage.JOBS)))
        await until(pilot, lambda: "cancel" in {entry.description for entry in shown_keys(app)})


async def test_a_key_has_the_same_sign_on_all_pages() -> None:
    """Also keys of Textual's own parts: a panel opens its row with the key of a table."""
    app = fake_app(busy_cluster())
    async with app.run_test(size=(200, 50)) as pilot:
        signs = set()
        for page in (ConsolePage.OVERVIEW, ConsolePage.JOBS):
            app.feed_event(GoTo(Place(page)))
            await until(pilot, lambda: "open" in {e.description for e in shown_keys(app)})
            signs |= {e.key_display for e in shown_keys(app) if e.description == "open"}
        assert signs == {"↵"}
        assert app.get_key_display(Binding("enter", "select", "select")) == "↵"


async def test_keys_of_the_past_are_forgotten() -> None:
    """The footer is composed again when other keys are to be shown: it kept all those of before."""
    app = fake_app()
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: bool(shown_keys(app)))
        for _ in range(8):
            for keys in (("ctrl+p", "escape"), ("3", "n", "escape", "1")):
                await pilot.press(*keys)
        await pilot.pause(0.3)
        gc.collect()
        kept = [key for key in gc.get_objects() if isinstance(key, FooterKey)]
        assert len(kept) <= 60, len(kept)  # of two pages: about 20
