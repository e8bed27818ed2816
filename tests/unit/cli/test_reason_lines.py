"""Counts by reason for people, with examples and the next step."""

from __future__ import annotations

from typing import Any

import pytest

from zcrawl.cli.crawl_session import closing_lines
from zcrawl.cli.reason_lines import MOST_DETAIL, MOST_LINES, example_text, next_step, reason_lines
from zcrawl.frontier.extra import START_URL

URL = "https://a.test/x"


def example(detail: str = "", url: str = URL) -> dict[str, str]:
    return {"url": url, "detail": detail}


def test_reasons_with_an_example_have_a_line_each_and_the_others_share_one() -> None:
    """The most frequent first."""
    counts = {"dns": 1, "spider_error": 2, "connect": 5}
    examples = {"dns": example("no such name"), "spider_error": example("IndexError: none")}
    assert reason_lines("failed", counts, examples) == [
        f"failed: spider_error × 2: IndexError: none at {URL}",
        f"failed: dns × 1: no such name at {URL}",
        "failed: connect × 5",
    ]
    assert reason_lines("failed", {}, {}) == []


def test_no_more_than_a_few_reasons_have_lines_of_their_own() -> None:
    """The summary stays short; `job --json` has all."""
    counts = {f"r{n}": 1 for n in range(MOST_LINES + 2)}
    lines = reason_lines("failed", counts, {name: example() for name in counts})
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "failed: r5 × 1, r6 × 1"


@pytest.mark.parametrize(
    ("entry", "count", "text"),
    [
        (example(), 1, f" at {URL}"),
        (example(), 3, f", the first at {URL}"),
        (example("why"), 3, f": why at {URL}"),
        (example(f"{URL}: why"), 1, f": why at {URL}"),
        (example(f"from {URL}, why"), 1, f": from {URL}, why"),
        (example("why", START_URL), 1, ": why at the start"),
        (example("w" * 1000), 1, f": {'w' * MOST_DETAIL}… at {URL}"),
    ],
)
def test_an_example_names_its_page_once(entry: dict[str, str], count: int, text: str) -> None:
    """Many details begin with the URL already."""
    assert example_text(entry, count) == text


@pytest.mark.parametrize(
    ("spec", "job_file", "url", "command"),
    [
        ({}, "", URL, f"zcrawl test {URL}"),
        ({}, "my job.toml", URL, f"zcrawl test 'my job.toml' {URL}"),
        ({"extract": [{}]}, "", URL, f"zcrawl test JOB.toml {URL}"),
        ({"kind": "ping"}, "", URL, f"zcrawl test JOB.toml {URL}"),
        ({"spider": "sp.py:S"}, "", URL, f"zcrawl test --spider sp.py:S {URL}"),
        ({"spider": "sp.py:S"}, "", START_URL, "zcrawl test --spider sp.py:S"),
        ({}, "", "https://a.test/?a=1&b='", "zcrawl test 'https://a.test/?a=1&b='\"'\"''"),
    ],
)
def test_the_next_step_is_a_command_for_a_shell(
    spec: dict[str, Any], job_file: str, url: str, command: str
) -> None:
    """With the job file where the page needs it; JOB.toml where nobody knows its name."""
    view = {"failed_reasons": {"dns": 1}, "examples": {"failed": {"dns": example(url=url)}}}
    assert next_step({**view, "spec": spec}, job_file) == f"then: {command}"


def test_items_set_aside_are_a_reason_to_look_closer_and_skips_are_not() -> None:
    """What robots.txt forbids has a hint of its own. Older runs have no examples."""
    examples = {"rejected": {"schema: n": example()}, "skipped": {"robots": example()}}
    view: dict[str, Any] = {"failed_reasons": {"dns": 3}, "examples": examples}
    assert next_step(view | {"skipped_reasons": {"robots": 1}}) == ""
    assert next_step(view | {"rejected_items": {"schema: n": 1}}) == f"then: zcrawl test {URL}"


def test_the_closing_lines_hold_the_examples_and_the_next_step() -> None:
    """Before the line that says where the items are."""
    counts = dict.fromkeys(("run", "pages", "failed", "skipped", "items", "pages_per_second"), 1)
    view = {**counts, "name": "j", "state": "completed", "reason": "", "seconds": 1.0}
    view |= {"failed_reasons": {"dns": 1}, "skipped_reasons": {}}
    view |= {"rejected_items": {"schema: n": 2}}
    failed, rejected = {"dns": example("no name")}, {"schema: n": example('n is "x": why')}
    view |= {"examples": {"failed": failed, "rejected": rejected}}
    assert closing_lines(view, "o.jsonl")[1:] == [
        f"failed: dns × 1: no name at {URL}",
        f'items set aside: schema: n × 2: n is "x": why at {URL}',
        f"then: zcrawl test {URL}",
        "1 items in o.jsonl",
    ]
