"""The `[browser]` section of a job file: what is read, and what is refused with which words."""

from __future__ import annotations

import pytest

from zcrawl.errors import JobError
from zcrawl.model.spec import Browser
from zcrawl.submit.read import parse_job

HEAD = 'name = "j"\n[fetch]\nengine = "browser"\n[browser]\n'


def test_the_keys_are_read() -> None:
    """As they are written."""
    text = 'wait = "idle"\nclick = ["#a"]\nviewport = [800, 600]\nscreenshot = "page"\nblock = []'
    browser = parse_job(HEAD + text, "j.toml").browser
    assert browser == Browser(
        wait="idle", click=("#a",), viewport=(800, 600), screenshot="page", block=()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('wait = "ever"', "browser.wait is 'ever'; use one of dom, load, idle"),
        ('screenshot = "yes"', "use one of view, page"),
        ('block = ["picture"]', "browser.block is 'picture'; use one of"),
        ("scroll = -1", "browser.scroll is -1"),
        ("viewport = [0, 1]", "browser.viewport is 0"),
        ("viewport = [1]", "browser.viewport"),
        ("memory_mb = 1", "browser.memory_mb is 1"),
        ("max_requests = 1000000", "browser.max_requests"),
        ('click = [" "]', "browser.click"),
        (f"click = {['a'] * 51}", "51 entries"),
        (f'wait_for = "{"a" * 1001}"', "selector"),
        ("wait_s = 20.0", "less than fetch.timeout"),
        ("wait_s = nan", "browser.wait_s"),
        ("screen = 1", "did you mean"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, message: str) -> None:
    """With the key, and what there is instead."""
    with pytest.raises(JobError) as caught:
        parse_job(HEAD + text, "j.toml")
    assert message in str(caught.value)


def test_the_section_needs_its_engine() -> None:
    """Browser keys without the browser engine are refused, because they would have no effect."""
    with pytest.raises(JobError, match=r"needs fetch\.engine = 'browser'"):
        parse_job('name = "j"\n[browser]\npdf = true', "j.toml")
