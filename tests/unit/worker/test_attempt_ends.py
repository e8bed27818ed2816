"""Every attempt ends with a Result, whatever it raises, and no task of a worker dies unseen."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx
import msgspec
import pytest

from tests.unit.machine_tools import assignment, attempt, grant, header
from tests.unit.worker.test_pipeline import HTML, SITE, Owner, Rig, page, rig
from tests.unit.worker.test_worker_machine import Worker
from zcrawl.errors import RetryClass
from zcrawl.fetch.wire.cookie_jar import CookieStore
from zcrawl.mesh.codec import MAX_FRAME_BYTES
from zcrawl.mesh.memory import MemoryHub
from zcrawl.mesh.messages import Assign, Assignment, Heartbeat, RunConfig
from zcrawl.model.reasons.failure import RESULT_UNSENDABLE
from zcrawl.model.spec import Fetch, JobSpec, Politeness
from zcrawl.model.states import Outcome
from zcrawl.runtime.loop import TASK_FAILED, supervised, tell_unhandled
from zcrawl.worker import events as w
from zcrawl.worker.driver.loop import WorkerLoop
from zcrawl.worker.pipeline.pipeline import Pipeline
from zcrawl.worker.results.attempt import Attempt

WITH_COOKIES = JobSpec("j", politeness=Politeness(robots=False), fetch=Fetch(cookies=True))


def answer(*cookies: str) -> httpx.Response:
    headers = [*HTML.items(), *(("set-cookie", cookie) for cookie in cookies)]
    return httpx.Response(200, headers=headers, text="<title>t</title>")


async def test_cookies_with_and_without_an_end_are_kept_in_one_order() -> None:
    """Two cookies that differ only in what one of them does not have: no order of theirs fails."""
    cookies = ("a=1; Path=/", "a=1; Path=/; Max-Age=60", "a=2; Path=/x", "=1", "b", "b; Secure")
    world = Rig({f"{SITE}/a": answer(*cookies)}, WITH_COOKIES)
    (ended,) = await world.fetch("/a")
    assert ended.outcome is Outcome.DONE
    assert ended.cookies is not None


@pytest.mark.parametrize("error", [TypeError("None < str"), asyncio.CancelledError("foreign")])
async def test_whatever_comes_after_the_page_still_ends_in_a_result(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the attempt has learnt beside its page may fail too, and its slot must not leak."""

    def fails(self: CookieStore, url: str) -> None:
        raise error

    monkeypatch.setattr(CookieStore, "changes", fails)
    world = Rig({f"{SITE}/a": answer("a=1"), f"{SITE}/b": answer()}, WITH_COOKIES)
    for ended in await world.fetch("/a", "/b"):
        assert (ended.outcome, ended.reason) == (Outcome.FAILED, "internal_error")
        assert ended.retry is RetryClass.TRANSIENT
        assert type(error).__name__ in ended.detail
    assert world.errors == ["internal_error"] * 2


async def test_an_attempt_whose_request_is_cancelled_by_others_ends_in_a_result() -> None:
    """A name server's answer that all of a host's requests wait for may be cancelled."""
    world = rig({"/a": page(), "/b": page()})

    def cancelled() -> None:
        if len(world.requested) == 1:
            raise asyncio.CancelledError("of a shared question")

    world.on_get = cancelled
    lost, good = await world.fetch("/a", "/b")
    assert (lost.outcome, lost.reason) == (Outcome.FAILED, "internal_error")
    assert good.outcome is Outcome.DONE


async def test_an_attempt_without_an_end_is_a_failure_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A way through the pipeline that decides nothing is a bug, and costs its own page only."""

    def forgets(self: Attempt, *anything: Any) -> Attempt:
        return self

    monkeypatch.setattr(Attempt, "read", forgets)
    world = rig({"/a": page()})
    (ended,) = await world.fetch("/a")
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, "internal_error")
    assert "no end" in ended.detail


async def test_what_was_found_before_a_failure_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt that fails after its page was done reports the failure only: the page, its items
    and its links are the next attempt's."""
    monkeypatch.setattr(Attempt, "add_traits", lambda *anything: 1 / 0)
    world = rig({"/a": page()})
    (ended,) = await world.fetch("/a")
    assert (ended.outcome, ended.reason, ended.status) == (Outcome.FAILED, "internal_error", 0)
    assert (ended.page, ended.items, ended.links, ended.rejected) == (None, [], [], {})


async def test_a_cancelled_attempt_reports_nothing() -> None:
    """The worker does not wait for it any more."""
    world = rig({"/a": page()})
    world.pipeline.start(Assignment(0, 0, 1, 1, f"{SITE}/a", 1, 1, None))
    world.pipeline.cancel(0)
    await world.fetch("/a")
    assert list(world.results) == [0]
    assert world.results[0].outcome is Outcome.DONE


async def test_a_run_that_cannot_be_taken_in_fails_by_name() -> None:
    """A plugin's engine that raises anything when it is made costs its own run only."""

    def broken(spec: JobSpec) -> Any:
        raise ZeroDivisionError("in a plugin")

    owner = Owner()
    pipeline = Pipeline(owner, broken, lambda: 0.0, lambda: 0.0)
    pipeline.adopt(RunConfig(1, 1, msgspec.json.encode(JobSpec("j")), []))
    pipeline.start(Assignment(0, 0, 1, 1, f"{SITE}/a", 1, 1, None))
    for _ in range(5):
        await asyncio.get_running_loop().create_task(_turn())
    assert owner.ends[0].reason == "internal_error"
    assert owner.notes[0][0] == "internal_error"
    assert "ZeroDivisionError" in owner.notes[0][1]


async def _turn() -> None: ...


# ---------------------------------------------------------------- the worker's loop


class Bench:
    """A worker's loop over a mesh in memory, whose machine has one request running."""

    def __init__(self, **options: Any) -> None:
        self.notes: list[tuple[str, str]] = []
        self.hub = MemoryHub()
        self.heard: list[Any] = []
        self.hub.master("m1", 9).listen(
            lambda came: self.heard.extend(arrival.message for arrival in came)
        )
        self.worker = Worker()
        self.worker.welcome(grant(concurrency=4))
        self.worker.assign(1)
        self.loop = WorkerLoop(
            self.worker.machine,
            self.hub.worker("w1", 1),
            clock=lambda: self.worker.now,
            rss_bytes=options.pop("rss_bytes", lambda: 1),
            cpu_percent=lambda: None,
            log=lambda name, detail, **fields: self.notes.append((name, detail)),
            **options,
        )
        self.loop._pipeline = rig({}).pipeline

    def flush(self) -> list[Any]:
        self.loop._flush()
        self.hub.advance(1.0)
        heard, self.heard = self.heard, []
        return [message.body for message in heard]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"reason": "lone \ud800 surrogate"}, "UnicodeEncodeError"),
        ({"items": [b" " * MAX_FRAME_BYTES]}, "MeshError"),
    ],
)
async def test_a_result_that_cannot_be_sent_is_replaced_by_one_that_can(
    changes: dict[str, Any], why: str
) -> None:
    """It would be sent again for ever, and its request would never end. The others go out."""
    bench = Bench()
    bench.loop.fetch_ended(1, attempt(1, **changes))
    bench.loop._outgoing.append(w.PublishToAll(bench.worker.machine._pulse.beat(1.0, 1, False)))
    assert [type(body) for body in bench.flush()] == [Heartbeat], "the rest is not lost"
    (ended,) = bench.flush()
    assert (ended.seq, ended.outcome, ended.reason) == (1, Outcome.FAILED, RESULT_UNSENDABLE)
    assert ended.lease_n == 1
    assert ended.retry is RetryClass.PERMANENT
    assert why in ended.detail
    assert bench.notes[0][0] == "message_unsendable"
    bench.worker.machine.check()


async def test_an_effect_that_fails_ends_the_worker_by_name() -> None:
    """A request that counts as started and is not would keep its slot for ever."""
    bench = Bench()

    class Broken:
        def start(self, *anything: Any) -> None:
            raise RuntimeError("cannot start")

        async def close(self) -> None: ...

    bench.loop._pipeline = cast(Pipeline, Broken())
    bench.loop.handle(w.MasterMessageCame(*_assign(2)))
    assert bench.loop._ended.done()
    assert "cannot start" in bench.loop._ended.result()
    assert bench.notes[0][0] == "machine_error"
    assert "Traceback" in bench.notes[0][1]


def _assign(seq: int) -> tuple[Any, Any]:
    body = Assign([], [assignment(seq, seq)])
    return header(body, "m1", 9, epoch=1, sequence=50), body


async def test_measuring_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the sign of life that the watchdog wants: one failed look must not end it."""
    looks = 0

    def rss() -> int:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise OSError(24, "too many open files")
        return looks

    monkeypatch.setattr("zcrawl.worker.driver.loop.MEASURE_S", 0.001)
    bench = Bench(rss_bytes=rss)
    task = supervised(bench.loop._measure(), "measure", bench.loop.note)
    async with asyncio.timeout(5):
        while looks < 4:
            await asyncio.get_running_loop().create_task(_turn())
    assert not task.done()
    assert bench.loop.counters["measure_failed"] == 1
    task.cancel()


async def test_a_task_that_dies_is_told_with_its_traceback() -> None:
    """And whoever depends on it is called; being cancelled is not a failure."""
    notes: list[tuple[str, str]] = []
    failures: list[str] = []

    async def work(raises: bool) -> None:
        if raises:
            raise ValueError("of a task")
        await asyncio.get_running_loop().create_future()

    def tell(name: str, detail: str) -> None:
        notes.append((name, detail))

    tasks = [supervised(work(raises), "work", tell, failures.append) for raises in (True, False)]
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await _turns()
    assert failures == ["work: ValueError: of a task"]
    ((name, detail),) = notes
    assert name == TASK_FAILED
    assert "Traceback" in detail


async def test_what_nobody_catches_is_told() -> None:
    """A callback that raises leaves a trace in the node's own log."""
    notes: list[tuple[str, str]] = []
    tell_unhandled(lambda name, detail, **fields: notes.append((name, detail)))

    def fails() -> None:
        raise KeyError("in a callback")

    asyncio.get_running_loop().call_soon(fails)
    await _turns()
    assert notes[0][0] == "unhandled_error"
    assert "KeyError" in notes[0][1]


async def _turns() -> None:
    for _ in range(3):
        await asyncio.get_running_loop().create_task(_turn())
