"""Names the tests that passed only when they ran once more, as a plugin of pytest.

`make test` loads it twice: in the run of all tests, whose counts it keeps in pytest's cache, and in
the run of those that failed (`--last-failed`), whose summary then tells of both.
"""

from __future__ import annotations

from typing import Final

import pytest
from _pytest.terminal import TerminalReporter

KEPT: Final = "zcrawl/first_try"
OUTCOMES: Final = ("passed", "failed", "error", "skipped")


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    reports = {outcome: terminalreporter.getreports(outcome) for outcome in OUTCOMES}
    assert config.cache is not None
    if not config.getoption("lf"):
        config.cache.set(KEPT, {outcome: len(those) for outcome, those in reports.items()})
        return
    first: dict[str, int] = config.cache.get(KEPT, {})
    counts = ", ".join(f"{count} {outcome}" for outcome, count in first.items() if count)
    terminalreporter.section("second try")
    terminalreporter.write_line(f"first try of all: {counts or 'unknown'}")
    for report in reports["passed"]:
        terminalreporter.write_line(f"needed a second try: {report.nodeid}")
    for report in (*reports["failed"], *reports["error"]):
        terminalreporter.write_line(f"failed twice: {report.nodeid}")
