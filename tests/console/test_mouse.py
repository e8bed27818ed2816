"""The mouse: tabs, rows, headers, the wheel, tooltips, selection, the footer."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from textual import events

from console.app import ConsoleApp
from console.state import ConsolePage
from console.view import current_row
from console.widgets.table import TableWidget
from tests.console.samples import FakeFeed, answers, fake_app, host, text_of, until


class Pages(FakeFeed):
    """A leader with ten thousand hosts, of which it sends the page that it is asked for."""

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if op != "hosts" or "offset" not in args:
            return await super().ask(op, args)
        self.requests.append((op, args))
        first = args["offset"]
        rows = [host(n, queued=10) for n in range(first, min(10_000, first + args["limit"]))]
        return {"rows": rows, "total": 10_000, "offset": first}


def is_at(app: ConsoleApp, page: ConsolePage) -> bool:
    return app.view.page is page and app.screen is app.page_screen


def shows(app: ConsoleApp, word: str) -> bool:
    return word in text_of(app)


async def test_a_click_on_a_tab_goes_to_its_page_and_back() -> None:
    """The tab of the page stands out on each."""
    app = fake_app()
    async with app.run_test(size=(140, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        for page in (ConsolePage.JOBS, ConsolePage.LOG, ConsolePage.OVERVIEW):
            await pilot.click(f"#tab-{page}")
            await until(pilot, partial(is_at, app, page))
            assert app.screen.query_one(f"#tab-{page}").has_class("-active")


async def test_a_click_chooses_a_row_a_second_one_opens_it_a_header_sorts() -> None:
    """The first line is the header; clicking it again turns the order round."""
    app = fake_app()
    async with app.run_test(size=(140, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        await until(pilot, lambda: "docs" in text_of(app))
        await pilot.click("#body", offset=(20, 2))
        await until(pilot, lambda: (current_row(app.view) or {}).get("name") == "docs")
        title = text_of(app).splitlines()[2].index("Name")
        await pilot.click("#body", offset=(title, 0))
        await until(pilot, lambda: (app.view.table.sort, app.view.table.desc) == ("name", False))
        await pilot.click("#body", offset=(title, 0))
        await until(pilot, lambda: app.view.table.desc)
        await pilot.click("#body", offset=(20, 1), times=2)
        await until(pilot, lambda: app.view.page is ConsolePage.JOB)


async def test_the_wheel_scrolls_and_asks_for_rows_that_are_not_here() -> None:
    """The cursor stays on its row; the end of the table is a key away."""
    feed = Pages()
    app = fake_app(feed)
    async with app.run_test(size=(140, 30)) as pilot:
        await pilot.press("5")
        await until(pilot, lambda: "https://h1.test" in text_of(app))
        table = app.screen.query_one(TableWidget)
        table.scroll_to(y=5_000, animate=False)
        await until(pilot, lambda: "https://h5005.test" in text_of(app))
        assert app.view.table.offset > 4_800 and current_row(app.view) is None
        await pilot.press("end")
        await until(pilot, lambda: (current_row(app.view) or {}).get("id") == 9_999)
        await pilot.press("home")
        await until(pilot, lambda: (current_row(app.view) or {}).get("id") == 0)
        table.post_message(events.MouseScrollDown(table, 5, 5, 0, 1, 0, False, False, False, 5, 7))
        await until(pilot, lambda: table.scroll_offset.y > 0)
        assert (current_row(app.view) or {}).get("id") == 0


async def test_a_cell_that_is_cut_has_its_whole_value_as_a_tooltip() -> None:
    """One that is not cut has none."""
    long = "https://" + "a" * 200 + ".test"
    said = answers()
    said["hosts"] = {"rows": [host(1, host=long)], "total": 1, "offset": 0}
    app = fake_app(FakeFeed(said=said))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("5")
        await until(pilot, lambda: "https://aaa" in text_of(app))
        table = app.screen.query_one(TableWidget)
        await pilot.hover("#body", offset=(6, 1))
        await until(pilot, lambda: long in str(table.tooltip))
        await pilot.hover("#body", offset=(6, 12))
        await until(pilot, lambda: table.tooltip is None)


async def test_text_is_selected_with_the_mouse_and_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a table and on a page about one thing; `y` copies it, also over SSH (OSC 52)."""
    app = fake_app()
    copied: list[str] = []
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        for keys, word in ((("3",), "docs"), (("3", "home", "enter"), "progress")):
            await pilot.press(*keys)
            await until(pilot, partial(shows, app, word))
            lines = text_of(app).splitlines()
            y = next(n for n, line in enumerate(lines) if word in line)
            x = lines[y].index(word)
            await pilot.mouse_down(offset=(x, y))
            await pilot.hover(offset=(x + len(word) - 1, y))
            await pilot.mouse_up(offset=(x + len(word) - 1, y))
            await pilot.pause()
            await pilot.press("y")
            assert copied and copied[-1].strip() == word
            app.screen.clear_selection()


async def test_a_cell_a_row_and_the_marked_rows_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`y`: the main field; ctrl+y: the whole row; with marks, all of them."""
    app = fake_app()
    copied: list[str] = []
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(140, 40)) as pilot:
        await pilot.press("5")
        await until(pilot, lambda: "hosts:" in app.view.live.answers)
        await pilot.press("y")
        assert copied[-1] == "https://h1.test"
        await pilot.press("ctrl+y")
        assert copied[-1].startswith("https://h1.test\t89\t")
        await pilot.press("space", "space", "ctrl+y")
        assert [line.split("\t")[0] for line in copied[-1].splitlines()] == [
            "https://h1.test",
            "https://h2.test",
        ]


async def test_a_click_on_the_footer_is_its_key() -> None:
    """It opens the same dialog."""
    app = fake_app()
    async with app.run_test(size=(160, 30)) as pilot:
        await until(pilot, lambda: app.view.live.snapshot is not None)
        await pilot.press("3")
        await until(pilot, lambda: "x cancel" in text_of(app))
        x = text_of(app).splitlines()[-1].index("cancel")
        await pilot.click(offset=(x, 29))
        await until(pilot, lambda: "Cancel?" in text_of(app))
