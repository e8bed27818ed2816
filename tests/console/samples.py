"""Snapshots, answers and views to look at, without a cluster; and a feed that plays them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
from textual import events
from textual.app import App
from textual.pilot import Pilot

from console.app import ConsoleApp
from console.feed.ports import Emit
from console.keyboard import QUIET_BEFORE_S, DialogScreen, OrderedApp
from console.questions import questions
from console.state import Answered, GoTo, Place, SnapshotCame, View
from console.view import reduce
from zcrawl.errors import RefusedError
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.snapshot import PublishedSnapshot
from zcrawl.roles.watching import WatchTarget

AT = 1_700_000_000.0
WHY = "Name or service not known"


def worker(name: str = "w1", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "state": "busy",
        "slots": 32,
        "running": 8,
        "waiting": 3,
        "leases": 11,
    }
    fields |= {"rate": 40.0, "outbox": 2, "rss_bytes": 48_000_000, "lag_ms": 2.0}
    fields |= {"heard_s_ago": 0.4, "pid": 7, "hostname": "here", "version": "0.1.0"}
    return {"id": name, **fields, **changes}


def run(number: int = 1, name: str = "docs", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"job": number, "state": "running", "reason": "", "pages": 500}
    fields |= {"items": 500, "failed": 3, "skipped": 7, "queued": 480, "in_flight": 10}
    fields |= {"admitted": 1000, "bytes": 5_000_000, "seconds": 12.5, "rate": 5.0}
    return {"run": number, "name": name, **fields, "concurrency": 4, **changes}


def snapshot(at: float = 0.0, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "leader": "m1",
        "epoch": 3,
        "workers": [worker("w1"), worker("w2", state="idle", running=0, rate=0.0)],
        "runs": [run(1), run(2, "shop", state="paused", in_flight=0)],
        "statuses": {"1": {"200": 500, "404": 3}},
        "failed": {"1": {"http_404": 3}},
        "store": {"state": "ok", "error": None, "since_s": 0.0},
        "next_retry_s": None,
        "counters": {},
    }
    return {**fields, "at": AT + at, **changes}


def host(number: int = 1, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"host": f"https://h{number}.test", "queued": 90 - number}
    fields |= {"ready": 40, "delayed": 2, "beyond": 9, "in_flight": 4, "owner": "w1"}
    fields |= {"interval_s": 0.2, "concurrency": 4, "crawl_delay_s": 0.0, "next_in_s": 0.1}
    fields |= {"runs": [1], "why": "pace", "reason": "pace: 5/s; next in 0.1 s"}
    return {"id": number, **fields, **changes}


def limit(code: str = "pace", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"text": "rate limit", "hosts": 40, "queued": 4000, "share": 0.9}
    return {"code": code, **fields, "host": "", "advice": "raise 5/s", "gain": 1.8, **changes}


def limits() -> list[dict[str, Any]]:
    retry = limit("retry", text="waiting for a retry", hosts=2, queued=9, share=0.1)
    return [limit(), retry | {"advice": "passes by itself", "gain": None}]


def item(number: int, **fields: Any) -> dict[str, Any]:
    data = {"url": f"https://h1.test/{number}", "status": 200, "title": f"Page {number}", **fields}
    return {"id": number, "run": 1, "data": json.dumps(data)}


def answers(words: str = "") -> dict[str, dict[str, Any]]:
    """What a leader says, by request; `words` stands wherever the web has its say."""
    said = words or "https://h1.test/a"
    flight = {"seq": 5, "url": said, "run": 1, "worker": "w1", "attempt": 2, "since_s": 3.0}
    failed = {"seq": 9, "url": said, "state": "dead", "reason": words or "dns", "status": 0}
    group = {"run": 1, "job": 1, "name": words or "docs", "host_id": 4, "host": said, "count": 12}
    group |= {"reason": words or "dns", "status": 503, "url": said, "at": AT}
    group |= {"detail": words or WHY}
    queue = {"id": 1, "job": 1, "name": words or "docs", "state": "running", "queued": 480}
    queue |= {
        "ready": 70,
        "delayed": 10,
        "beyond": 400,
        "fetching": 6,
        "waiting": 4,
        "commit_queue": 3,
    }
    queue |= {"tag": words or "shop", "tags": [words or "shop", "daily"], "host": said}
    queue |= {"uncommitted": 4, "jobs": 2, "hosts": 7}
    rest = {"id": 2, "name": "news", "tags": [], "tag": "(no tag)", "host": "https://h2.test"}
    queue |= {"trend": [9, 8, 7, 9, 6, 5, 4, 4, 3, 3, 2, 2]}
    queues = [queue, queue | rest | {"queued": 12, "ready": 12, "delayed": 0, "beyond": 0}]
    events = [
        {"n": n, "at": AT - n, "name": words or "worker_joined", "text": said, "source": "m1"}
        | {"level": ("info", "warning", "error")[n % 3]}
        for n in range(30)
    ]
    kinds = {words or "book": 60, "list": 20}
    wave = [float(n % 60) for n in range(200)]
    names = ("pages_s", "failed_s", "bytes_s", "queued", "in_flight", "p50", "p95", "p99")
    rows = [host(n, host=said if words and n == 1 else f"https://h{n}.test") for n in range(1, 61)]
    return {
        "role": {"role": ""},
        "jobs": {"jobs": [run(99, words, state="completed")] if words else []},
        "overview": {"limits": limits(), "commit_queue": 3},
        "hosts": {"rows": rows, "total": 10_000, "offset": 0},
        "lanes": {"rows": [row | {"kinds": kinds} for row in rows[:9]], "total": 9, "offset": 0},
        "queues": {"rows": queues, "total": 2, "offset": 0},
        "errors": {"rows": [group], "total": 1, "offset": 0},
        "failed": {
            "rows": [{**failed, "attempts": 4, "depth": 2, "parent": said, "detail": words or WHY}]
        },
        "items": {"rows": [item(n, title=words or f"Page {n}") for n in range(50, 0, -1)]},
        "events": {"rows": events, "total": 30, "offset": 0},
        "history": {"step_s": 1, "at": [AT + n for n in range(200)], **dict.fromkeys(names, wave)},
        "in_flight": {"rows": [flight], "total": 1, "offset": 0},
        "node": {**worker("w1", hostname=words or "here"), "credit": 29, "hosts": 4},
        "depths": {"depths": {"0": 1, "1": 40, "2": 459}},
        "job": {**run(1, words or "docs"), "percent": 51.0, "started_at": "2026", "workers": ["w1"]}
        | {"spec": {"seeds": [said], "scope": {"include": [said]}, "politeness": {"rate": 5}}}
        | {"statuses": {"200": 500}, "failed_reasons": {words or "dns": 3}, "skipped_reasons": {}}
        | {"examples": {"failed": {words or "dns": {"url": said, "detail": words or WHY}}}},
    }


def came(shot: dict[str, Any]) -> SnapshotCame:
    """A snapshot as a console gets it."""
    return SnapshotCame(msgspec.convert(shot, PublishedSnapshot), shot["at"] - AT)


def heard(*snapshots: dict[str, Any], view: View | None = None) -> View:
    """A view that heard these, a second apart."""
    view = view or View(cluster="test")
    for snapshot in snapshots:
        view = reduce(view, came(snapshot))
    return view


def at(place: Place, view: View | None = None, words: str = "") -> View:
    """A view of a place, with all that it asks for answered."""
    view = reduce(view or heard(snapshot(0), snapshot(1)), GoTo(place))
    said = answers(words)
    for question in questions(view):
        view = reduce(view, Answered(question.slot, said[question.op], 1.0))
    return view


class FakeFeed:
    """Implements `feed.Feed`: says a few snapshots, answers what it knows, notes what is asked."""

    def __init__(self, *snapshots: dict[str, Any], said: dict[str, Any] | None = None) -> None:
        self.snapshots = snapshots or (snapshot(0), snapshot(1))
        self.said = said if said is not None else answers()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.emit: Emit = lambda event: None

    async def watch(self, emit: Emit) -> None:
        self.emit = emit
        for snapshot in self.snapshots:
            emit(came(snapshot))
        await asyncio.Event().wait()

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((op, args))
        if op not in self.said:
            raise RefusedError(f"{op} is not known here", code="unknown_op")
        answer: dict[str, Any] = self.said[op]
        return answer

    def done(self, op: str) -> list[dict[str, Any]]:
        return [args for operation, args in self.requests if operation == op]


async def _nobody() -> list[Endpoints]:
    return []


TARGET = WatchTarget("test", _nobody, "nobody is here")


def text_of(app: ConsoleApp, page: bool = False) -> str:
    """What is painted: on the screen that is on top, or on the page below all dialogs."""
    screen = app.screen_stack[0] if page else app.screen
    strips = screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot: Pilot[None], true: Callable[[], bool], patience_s: float = 30.0) -> None:
    """Wait for something."""
    async with asyncio.timeout(patience_s):
        while not true():
            await pilot.pause(0.02)


async def press_after(pilot: Pilot[None], opens: str, *keys: str) -> None:
    """Press a key that opens a dialog; when it is on the screen, press the others."""
    await pilot.press(opens)
    await until(pilot, lambda: is_open(pilot.app))
    await answer(pilot, *keys)
    await pilot.pause()


async def answer(pilot: Pilot[None], *keys: str) -> None:
    """Press keys as a person does who reads the question: each stands alone."""
    app = pilot.app
    assert isinstance(app, OrderedApp)
    for key in keys:
        await until(pilot, lambda: is_quiet(app))
        await pilot.press(key)
        await until(pilot, lambda: app._lone_key is None)


def is_quiet(app: OrderedApp) -> bool:
    """Whether a key that is pressed now would stand alone."""
    seen_at = app.screen.seen_at if isinstance(app.screen, DialogScreen) else None
    return app._key_clock.now() - max(app._typed_at, seen_at or 0.0) >= QUIET_BEFORE_S


def is_open(app: App[None]) -> bool:
    """Whether a dialog is there and painted."""
    screen = app.screen
    return isinstance(screen, DialogScreen) and screen.seen and screen.focused is not None


def burst(app: App[None], typed: str) -> None:
    """Send keys as a terminal does that gets them in one piece: no pause between them."""
    for char in typed:
        key = KEYS.get(char, char)
        app.post_message(events.Key(key, char if char.isprintable() else None))


KEYS = {":": "colon", "/": "slash", "\n": "enter", " ": "space", "\x1b": "escape", "\t": "tab"}
KEYS |= {"?": "question_mark", "!": "exclamation_mark", "=": "equals_sign", "'": "apostrophe"}


def fake_app(
    feed: FakeFeed | None = None,
    targets: dict[str, WatchTarget] | None = None,
    **options: Any,
) -> ConsoleApp:
    """An app on a fake feed, with a clock that stands still. It composes a page at its first visit:
    all of them would cost each test two seconds."""
    made: dict[str, Any] = {"clock": lambda: 1.0, "utc": lambda: AT, "ahead": False, **options}
    return ConsoleApp(targets or {"test": TARGET}, feed=feed or FakeFeed(), **made)
