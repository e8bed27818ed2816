"""What the web says reaches the terminal as plain text, on every page."""

from __future__ import annotations

import random

import pytest
from textual.widgets import Input

from console.lines import as_text, line_width
from console.pictures.help import help_picture
from console.pictures.screen import whole
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
from tests.console.samples import FakeFeed, answers, at, fake_app, heard, run, snapshot, worker
from tests.console.test_plain import HOSTILE
from tests.hostile_text import forbidden, hostile

SIZES = [(80, 24), (160, 48)]


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
    """Printable characters in exactly the cells that there are; also filtered and scrolled."""
    view = attacked(page, words)
    filtered = reduce(view, SetFilter(words))
    lost = reduce(view, LinkChanged(LinkState.LOST, words, 9.0))
    for variant in (view, filtered, lost, reduce(view, Move(3))):
        for size in SIZES:
            lines = whole(variant, *size)
            assert {line_width(spans) for spans in lines} == {size[0]}
            assert as_text(lines).replace("\n", "").isprintable()
            assert not forbidden(as_text(lines))
    assert as_text(help_picture(view, 100)).replace("\n", "").isprintable()


@pytest.mark.parametrize("page", list(ConsolePage))
def test_no_page_lets_random_hostile_words_through(page: ConsolePage) -> None:
    """Twenty views of each page under a fixed seed, every foreign text another one."""
    chance = random.Random(f"console {page}")
    for _ in range(20):
        view = attacked(page, hostile(chance))
        for variant in (view, reduce(view, LinkChanged(LinkState.LOST, hostile(chance), 9.0))):
            assert not forbidden(as_text(whole(variant, 160, 48)))


@pytest.mark.parametrize("words", HOSTILE[:5], ids=range(5))
async def test_the_app_itself_survives_them(words: str) -> None:
    """Markup in a URL kills an app that parses it (FACTS): this one parses nothing."""
    shot = snapshot(0, runs=[run(1, name=words)], workers=[worker(words)])
    app = fake_app(FakeFeed(shot, said=answers(words)))
    async with app.run_test(size=(100, 30)) as pilot:
        for key in "123456789":
            await pilot.press(key)
            await pilot.pause()
            await pilot.press("enter")
            await pilot.pause()
        await pilot.press("3", "x")
        await pilot.pause()
        await pilot.press("n", "colon")
        for char in words[:20]:
            app.query_one("#prompt", Input).insert_text_at_cursor(char)
        await pilot.press("enter", "y")
        await pilot.pause()
        svg = app.export_screenshot()
    assert "\x1b" not in svg and "\u202e" not in svg
