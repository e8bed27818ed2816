"""Counts by reason for people: each with the first example, and the command that looks closer.

Used by what `crawl` and `submit --wait` tell at the end, and by `job`. Pure: it makes lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from zcrawl.cli import output
from zcrawl.frontier.extra import is_start

MOST_LINES: Final = 5  # reasons with an example; the others are only counted
MOST_DETAIL: Final = 300  # characters
Examples = Mapping[str, Mapping[str, str]]  # reason → url, detail


def reason_lines(title: str, counts: Mapping[str, int], examples: Examples) -> list[str]:
    """A line for each reason that has an example, most frequent first, and one for the others."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    top_pairs = [pair for pair in ordered if pair[0] in examples][:MOST_LINES]
    lines = [f"{title}: {name} × {n}{example_text(examples[name], n)}" for name, n in top_pairs]
    others = dict(pair for pair in ordered if pair not in top_pairs)
    return lines + ([f"{title}: {output.counts(others)}"] if others else [])


def example_text(example: Mapping[str, str], count: int = 1) -> str:
    """What stands behind a count: `: IndexError: … (sp.py, line 8) at http://…`"""
    url = example["url"]
    detail = example["detail"].removeprefix(f"{url}: ").strip()
    if len(detail) > MOST_DETAIL:
        detail = f"{detail[:MOST_DETAIL]}…"
    where = "at the start" if is_start(url) else f"at {url}"
    if not detail:
        return f", the first {where}" if count > 1 else f" {where}"
    return f": {detail}" if url in detail else f": {detail} {where}"


def next_step(view: Mapping[str, Any], job_file: str = "") -> str:
    """The command that shows one of the pages that went wrong; empty: none did."""
    for kind, counts in (("failed", "failed_reasons"), ("rejected", "rejected_items")):
        examples = view.get("examples", {}).get(kind, {})
        for name in view.get(counts, {}):  # most frequent first
            if name in examples:
                return f"then: {_test_command(view, job_file, examples[name]['url'])}"
    return ""


def _test_command(view: Mapping[str, Any], job_file: str, url: str) -> str:
    spec = view.get("spec", {})
    words = ["zcrawl", "test"]
    only_in_files = ("extract", "middlewares", "parsers", "schema", "plugins")
    if job_file:
        words.append(shlex.quote(job_file))
    elif any(spec.get(key) for key in only_in_files) or spec.get("kind", "crawl") != "crawl":
        words.append("JOB.toml")
    elif spec.get("spider"):
        words += ["--spider", shlex.quote(str(spec["spider"]))]
    return " ".join(words if is_start(url) else [*words, shlex.quote(url)])
