"""Prints long files and long functions: a list to look at, which fails nothing. `make check` ends
with it."""

from __future__ import annotations

from tests.architecture import rules
from tests.architecture.test_architecture import sources


def main() -> None:
    for path, text in sources("zcrawl", "console"):
        for line in rules.long_parts(path, text):
            print(f"  {line}")


if __name__ == "__main__":
    main()
