"""The job file's `[browser]` section: how a page is rendered, and what is taken of it.

Used with `fetch.engine = "browser"`; `docs/browser.md` explains each key. Pure.
"""

import math
from typing import Final

import msgspec

from zcrawl.errors import JobError

WAITS: Final = ("dom", "load", "idle")
SCREENSHOTS: Final = ("", "view", "page")
BLOCKABLE: Final = (
    "ads",
    "beacon",
    "font",
    "iframe",
    "image",
    "media",
    "script",
    "stylesheet",
    "xhr",
)
MOST_SCROLLS: Final = 200
MOST_CLICKS: Final = 50
MOST_PIXELS: Final = 8_192  # of one side
MOST_REQUESTS: Final = 10_000
MOST_MEMORY_MB: Final = 65_536
_MAX_SELECTOR: Final = 1_000  # characters


class Browser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one page is rendered. The steps are taken in this order."""

    block: tuple[str, ...] = ("font", "image", "media")  # kinds of requests that are not made
    wait: str = "load"  # dom | load | idle: until when the page loads
    wait_for: str = ""  # a CSS selector that must be there
    click: tuple[str, ...] = ()  # CSS selectors; what is not there is passed over
    scroll: int = 0  # screens, at most; ends at the page's end
    wait_s: float = 0.0  # after all that
    screenshot: str = ""  # view | page: a PNG into the blobs
    pdf: bool = False  # a PDF into the blobs
    viewport: tuple[int, int] = (1280, 800)
    max_requests: int = 300  # of one page, its document not counted
    memory_mb: int = 1024  # of the process that renders it


def check_rendering(browser: Browser, engine: str, timeout_s: float) -> None:
    """Raise JobError for a section that makes no sense."""
    if engine != "browser":
        if browser != Browser():
            raise JobError(
                f"[browser] needs fetch.engine = 'browser', and the engine is {engine!r}; set it, "
                "or remove [browser]"
            )
        return
    _one_of("browser.wait", browser.wait, WAITS)
    _one_of("browser.screenshot", browser.screenshot, SCREENSHOTS)
    for kind in browser.block:
        _one_of("browser.block", kind, BLOCKABLE)
    for selector in (browser.wait_for, *browser.click):
        if len(selector) > _MAX_SELECTOR:
            raise JobError(f"[browser]: a selector is longer than {_MAX_SELECTOR} characters")
    for number, selector in enumerate(browser.click, 1):
        if not selector.strip():
            raise JobError(f"browser.click, entry {number} is empty; write a CSS selector")
    if len(browser.click) > MOST_CLICKS:
        raise JobError(f"browser.click: {len(browser.click)} entries; at most {MOST_CLICKS}")
    _between("browser.scroll", browser.scroll, 0, MOST_SCROLLS)
    for side in browser.viewport:
        _between("browser.viewport", side, 1, MOST_PIXELS)
    _between("browser.max_requests", browser.max_requests, 0, MOST_REQUESTS)
    _between("browser.memory_mb", browser.memory_mb, 64, MOST_MEMORY_MB)
    if not (math.isfinite(browser.wait_s) and 0 <= browser.wait_s < timeout_s):
        raise JobError(
            f"browser.wait_s is {browser.wait_s}; it must be at least 0 and less than "
            f"fetch.timeout ({timeout_s})"
        )


def _one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise JobError(f"{key} is {value!r}; use one of {', '.join(filter(None, known))}")


def _between(key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise JobError(f"{key} is {value}; it must be {least} to {most}")
