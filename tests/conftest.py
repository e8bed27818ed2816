"""For all tests: Hypothesis measures no time, because how long an example takes depends on the
machine; Ctrl-C is not ignored; what is imported and collected is not searched for garbage again
and again; and `scheduling` says which process runs which test.
"""

from __future__ import annotations

import gc
import signal

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScheduling

from tests import scheduling

settings.register_profile("zcrawl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("zcrawl")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in the background with Ctrl-C ignored, and commands inherit that from
    # here: tests that interrupt them would wait for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    process: dict[str, object] | None = getattr(config, "workerinput", None)  # not in the first one
    if process is not None:
        scheduling.lower_priority(str(process["workerid"]), int(str(process["workercount"])))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # thousands of tests and their modules stay until the end


@pytest.hookimpl(optionalhook=True)  # with -p no:xdist there is nobody who calls it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScheduling | None:
    return scheduling.make_scheduler(config, log)
