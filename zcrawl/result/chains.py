"""How many steps led to a request without any page: redirects to other hosts, canonical links.

Each of them becomes a request of its own, at the depth of the one before, and counts as no page. A
worker sees one step; so two servers that send a crawler to each other, to another URL each time,
would keep a run going for ever, whatever its limits. The leader sees all steps. It remembers them
while it leads: another leader begins to count anew, which is an end as well.
"""

from __future__ import annotations

from typing import Final

MOST_CANONICAL: Final = 10  # steps of that kind
_MOST_REMEMBERED: Final = 50_000


class Chains:
    def __init__(self) -> None:
        self._steps: dict[tuple[int, str], int] = {}  # (run, URL) → steps that led there

    def follow(self, run: int, url: str, target: str) -> int:
        """The steps that lead to `target`, if `url` leads there. Asked again it tells the same."""
        steps = self._steps.get((run, url), 0) + 1
        if len(self._steps) >= _MOST_REMEMBERED:
            # The older half: their targets were asked for long ago, or wait for longer than that.
            self._steps = dict(list(self._steps.items())[_MOST_REMEMBERED // 2 :])
        self._steps[(run, target)] = steps
        return steps
