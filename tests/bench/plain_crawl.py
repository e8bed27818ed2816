"""`zcrawl` with the address guard taken out, or left in: for `bench_politeness` only.

    python -m tests.bench.plain_crawl with|without crawl …

Both load the same modules before they begin, so that nothing but the guard differs. Workers are
forked from this process and have what it has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from zcrawl.cli.main import main
from zcrawl.fetch import guard


def take_the_guard_out() -> None:
    def check(self: guard.Guard, url: str) -> None:
        return

    def pick(self: guard.Guard, name: str, port: int, addresses: Iterable[str]) -> list[str]:
        return list(addresses)

    guard.Guard.check = check  # type: ignore[method-assign]
    guard.Guard.pick = pick  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv.pop(1) == "without":
        take_the_guard_out()
    sys.argv[0] = "zcrawl"
    main()
