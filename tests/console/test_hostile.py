"""What the web says reaches the terminal as plain text, on every page."""

from __future__ import annotations

import random

import pytest
from textual.widgets import Input

from console.actions import RUN_PAGES
from console.help_text import help_text
from console.plain_page import page_text
from console.state import (
    ConsolePage,
    HappeningCame,
    LinkChanged,
    LinkState,
    Move,
    Place,
    SetFilter,
    View,
)
from console.view import reduce
from tests.console.samples import (
    FakeFeed,
    answers,
    at,
    fake_app,
    heard,
    press_after,
    run,
    snapshot,
    text_of,
    until,
    worker,
)
from tests.console.test_plain import HOSTILE
from tests.hostile_text import forbidden, hostile

WIDTHS = (80, 160)


def attacked(page: ConsolePage, words: str) -> View:
    """A view in which every foreign text is `words`."""
    fields = {"name": words, "reason": words}
    shot = snapshot(
        0,
        leader=words,
        workers=[worker(words, hostname=words, version=words, state=words)],
        runs=[run(1, tags=[words], **fields), run(2, state=words, **fields)],
        statuses={"1": {words: 5}},
        failed={"1": {words: 5}},
        store={"state": words, "error": words, "since_s": 5.0},
        masters=[{"id": words, "hostname": words}],
    )
    view = heard(shot, view=View(cluster=words))
    fields_of_event = {"text": words, "source": words, "level": words, "at": 5.0}
    view = reduce(view, HappeningCame(words, fields_of_event, 1.0))
    about = {"id": 1, "name": words, "host": words, "reason": words, "run": 1, "job": 1}
    about |= {"data": '{"a": "' + "x" * 50 + '"}', "kind": "worker"}
    return at(Place(page, "1", tuple(about.items())), view, words)


@pytest.mark.parametrize("page", list(ConsolePage))
@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_no_page_lets_anything_through(page: ConsolePage, words: str) -> None:
    """Printable characters only; also filtered, and while the leader is lost."""
    view = attacked(page, words)
    filtered = reduce(view, SetFilter(words))
    lost = reduce(view, LinkChanged(LinkState.LOST, words, 9.0))
    for variant in (view, filtered, lost, reduce(view, Move(3))):
        for width in WIDTHS:
            text = page_text(variant, width)
            assert text.replace("\n", "").isprintable()
            assert not forbidden(text)
    assert help_text(page).replace("\n", "").isprintable()


@pytest.mark.parametrize("page", list(ConsolePage))
def test_no_page_lets_random_hostile_words_through(page: ConsolePage) -> None:
    """Twenty views of each page under a fixed seed, every foreign text another one."""
    chance = random.Random(f"console {page}")
    for _ in range(20):
        view = attacked(page, hostile(chance))
        for variant in (view, reduce(view, LinkChanged(LinkState.LOST, hostile(chance), 9.0))):
            assert not forbidden(page_text(variant, 160))


@pytest.mark.parametrize("page", list(ConsolePage))
async def test_every_page_paints_them_as_plain_text(page: ConsolePage) -> None:
    """On the screen itself, with the mouse over a row, and in a dialog that names it."""
    app = fake_app(FakeFeed(said=answers(HOSTILE[0]) | {"role": {"role": ""}}))
    async with app.run_test(size=(100, 30), tooltips=True) as pilot:
        await pilot.pause()
        app.switch_mode(page)
        for words in HOSTILE:
            app.view = attacked(page, words)
            app.draw()
            await pilot.hover(offset=(8, 5))
            await pilot.pause()
            painted = text_of(app)
            if page in RUN_PAGES:
                await pilot.press("x")
                await pilot.pause()
                painted += text_of(app)
                await pilot.press("escape")
            assert painted.replace("\n", "").isprintable() and not forbidden(painted)


@pytest.mark.parametrize("words", HOSTILE[:5], ids=range(5))
async def test_the_app_itself_survives_them(words: str) -> None:
    """Markup in a URL kills an app that parses it; this one parses nothing."""
    shot = snapshot(0, runs=[run(1, name=words)], workers=[worker(words)])
    app = fake_app(FakeFeed(shot, said=answers(words)))
    async with app.run_test(size=(100, 30)) as pilot:
        for key in "123456789":
            await pilot.press(key)
            await pilot.pause()
            await pilot.press("enter")
            await pilot.pause()
        await pilot.press("3")
        await press_after(pilot, "d", "n")
        await pilot.press("colon")
        await until(pilot, lambda: bool(app.screen.query("#prompt")))
        for char in words[:20]:
            app.screen.query_one("#prompt", Input).insert_text_at_cursor(char)
        await pilot.press("enter")
        await pilot.press("ctrl+p", *"job")
        await pilot.pause(0.3)
        await pilot.press("escape")
        await pilot.pause()
        svg = app.export_screenshot()
    assert "\x1b" not in svg and "\u202e" not in svg
