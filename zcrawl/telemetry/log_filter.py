"""Which log lines somebody wants to see: `level:warning node:w3 job:docs timed out`.

Every part has to fit. A level means that one and worse; a node and a job are meant whole, with `*`
for any characters; whatever else is typed has to occur somewhere in the line. Used by the leader,
which has the older lines, and by the console, which has the newest: both must choose alike. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from zcrawl.telemetry.levels import ORDER, rank
from zcrawl.text.wildcards import matches

# Texts of events name their run so, at their beginning or after the job's name.
_RUN = re.compile(r"(?:^|, )run ([0-9]{1,18})\b")


class LogFilter(NamedTuple):
    level: int = 0
    nodes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def fits(self, line: Mapping[str, Any], job: Collection[str]) -> bool:
        """`job` is what the job is called that the line is about: its name, its number."""
        node = str(line.get("source", ""))
        if rank(str(line.get("level", ""))) < self.level:
            return False
        if not all(matches(node.casefold(), one) for one in self.nodes):
            return False
        names = [one.casefold() for one in job] if self.jobs else []
        if not all(any(matches(n, one) for n in names) for one in self.jobs):
            return False
        text = f"{line.get('level')} {node} {line.get('name')} {line.get('text')}".casefold()
        return all(word in text for word in self.words)


def read_filter(typed: str) -> LogFilter:
    level, nodes, jobs, words = 0, [], [], []
    for word in typed.casefold().split():
        name, found, value = word.partition(":")
        if name == "level" and found and _levels(value):
            level = max(level, rank(_levels(value)[0]))
        elif name == "node" and value:
            nodes.append(value)
        elif name == "job" and value:
            jobs.append(value)
        else:
            words.append(word)
    return LogFilter(level, tuple(nodes), tuple(jobs), tuple(words))


def _levels(value: str) -> list[str]:
    """A level by its beginning: `warn` will do."""
    return [one for one in ORDER if value and one.startswith(value)]


def run_of(text: str) -> int:
    """The run that a line is about, 0 if about none."""
    found = _RUN.search(text[:200])
    return int(found[1]) if found is not None else 0
