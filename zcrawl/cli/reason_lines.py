"""Counts by reason for people: each with its first example, and a command to examine it.

Used by the summaries of `crawl` and `submit --wait`, and by `job`. Pure: it only builds lines.
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
    """Return a line for each reason with an example, most frequent first, and one for the rest."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    top_pairs = [pair for pair in ordered if pair[0] in examples][:MOST_LINES]
    lines = [f"{title}: {name} × {n}{example_text(examples[name], n)}" for name, n in top_pairs]
    others = dict(pair for pair in ordered if pair not in top_pairs)
    return lines + ([f"{title}: {output.counts(others)}"] if others else [])


def example_text(example: Mapping[str, str], count: int = 1) -> str:
    """Return an example as the end of a line: `: IndexError: … (sp.py, line 8) at http://…`."""
    url = example["url"]
    detail = example["detail"].removeprefix(f"{url}: ").strip()
    if len(detail) > MOST_DETAIL:
        detail = f"{detail[:MOST_DETAIL]}…"
    where = "at the start" if is_start(url) else f"at {url}"
    if not detail:
        return f", the first {where}" if count > 1 else f" {where}"
    return f": {detail}" if url in detail else f": {detail} {where}"


def next_step(view: Mapping[str, Any], job_file: str = "") -> str:
    """Return the command that shows one of the failed pages; empty if no page failed."""
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
