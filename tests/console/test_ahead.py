"""Screens that are composed before they are visited, and apps that end meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from console.screens.page import PageScreen
from console.screens.pages import MODES
from console.state import ConsolePage, GoTo, Place
from tests.console.samples import burst, fake_app, is_open, text_of, until

# Turns of the event loop after the start: the first 150 compose the first screen, each other one
# has about 60.
MOMENTS = [*range(0, 60, 6), *range(60, 200, 35), *range(200, 1400, 200)]


async def pass_turns(count: int) -> None:
    """Let everything else run so many times."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


def composed(app: object) -> set[ConsolePage]:
    """The pages whose screens are there."""
    screens = [screen for screen in app._registry if isinstance(screen, PageScreen)]  # type: ignore[attr-defined]
    return {screen.PAGE for screen in screens if screen.composed.is_set()}


async def test_all_screens_are_composed_after_the_first_picture() -> None:
    """The first visit of a page shows the screen that is there already."""
    app = fake_app(ahead=True)
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: composed(app) == set(MODES))
        ahead = {screen.PAGE: screen for screen in app._registry if isinstance(screen, PageScreen)}
        for page in MODES:
            app.feed_event(GoTo(Place(page)))
            assert app.screen is ahead[page]
        app.feed_event(GoTo(Place(ConsolePage.JOBS)))
        await until(pilot, lambda: "docs" in text_of(app))
        assert app.screen.focused is app.screen.query_one("#body")


async def test_keys_wait_for_a_screen_that_is_half_composed() -> None:
    """A key that leads to it and a key for it come together; the second one needs its widgets."""
    app = fake_app()
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        screen = app._ahead.screen_of(ConsolePage.JOBS)
        await pass_turns(2)
        assert screen.is_running
        assert not screen.composed.is_set()
        burst(app, "3h")
        await until(pilot, lambda: is_open(app))
        assert app.screen_stack[0] is screen
        assert "pause" in text_of(app)
        await until(pilot, lambda: "Progress" in text_of(app, page=True))


@pytest.mark.parametrize("turns", MOMENTS)
async def test_an_app_may_end_at_any_moment_of_its_first_second(turns: int) -> None:
    """Textual attaches no widget to an app that exits: a screen that is half composed is waited
    for, or MountError and "No Tab with id" would end the app."""
    app = fake_app(ahead=True)

    async def end() -> None:
        await pass_turns(turns)
        app.exit()

    ending = asyncio.create_task(end())
    async with asyncio.timeout(60):
        await app.run_async(headless=True, size=(160, 48))
        await ending
    assert app.return_code == 0
    assert app._exception is None


@pytest.mark.parametrize("turns", MOMENTS[::4])
async def test_an_app_may_be_shut_down_at_any_moment_of_its_first_second(turns: int) -> None:
    """A cancelled app does not wait for its screens."""
    app = fake_app(ahead=True)
    async with app.run_test(size=(160, 48)):
        await pass_turns(turns)
