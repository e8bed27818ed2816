"""What ownership costs: `owns()` for 8 and for 100 nodes, and how evenly resources are shared.

    python -m tests.bench.bench_ownership

The time is that of the slowest case, a resource that the asking node owns, because then every node
is compared. Wanted: at most 5 µs for 8 nodes and 60 µs for 100.
"""

from __future__ import annotations

import json
import sys
import time

from zcrawl.ownership import Assigner

WANTED_US = {8: 5.0, 100: 60.0}
RESOURCES = 20_000
ROUNDS = 20


def owns_us(count: int) -> float:
    """Return the microseconds of one call, the best of several rounds."""
    assigner = Assigner("node-1", [f"node-{n}" for n in range(1, count + 1)])
    own = [name for n in range(RESOURCES) if assigner.owns(name := f"host-{n}.example.com")]
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for name in own:
            assigner.owns(name)
        best = min(best, (time.perf_counter() - began) / len(own))
    return best * 1e6


def main() -> int:
    took = {count: round(owns_us(count), 2) for count in WANTED_US}
    print(json.dumps({"owns_us": took, "wanted_us": WANTED_US}))
    return int(any(took[count] > wanted for count, wanted in WANTED_US.items()))


if __name__ == "__main__":
    sys.exit(main())
