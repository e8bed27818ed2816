"""What a process takes of a core."""

from __future__ import annotations

import time

from zcrawl.runtime.clock import CpuMeter


def test_work_is_measured_as_a_percentage_of_one_core() -> None:
    """Half a second of CPU time in two seconds is 25 %; without time there is no figure."""
    moments, used = iter([10.0, 12.0, 12.0]), iter([1.0, 1.5, 1.5])
    meter = CpuMeter(lambda: next(moments), lambda: next(used))
    assert meter.percent() == 25.0
    assert meter.percent() is None


def test_the_real_clocks_see_work() -> None:
    """The process's own clock of CPU time."""
    meter = CpuMeter()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    busy = meter.percent()
    assert busy is not None
    assert busy > 0
