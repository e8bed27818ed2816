"""Run the command `zcrawl`, installed or by `python -m zcrawl`."""

from __future__ import annotations

import gc


def start() -> None:
    """Load the command line and run it."""
    # Before the imports: they create many objects, but no garbage.
    gc.set_threshold(500_000, 20, 50)
    from zcrawl.cli.main import main

    main()


if __name__ == "__main__":
    start()
