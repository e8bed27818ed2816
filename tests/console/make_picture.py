"""Draws the picture of the docs: `python -m tests.console.make_picture FILE.svg`."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import Any

from console.questions import questions
from tests.console.samples import AT, FakeFeed, answers, fake_app, run, snapshot, worker

SECONDS = 120


def story() -> FakeFeed:
    """Two minutes of a crawl that is held by the pace of its hosts."""
    workers = [
        worker(f"worker-{n}", rate=95.0 + 9 * n, running=11 + 4 * n, slots=32, lag_ms=3.0 + n)
        for n in range(1, 5)
    ]
    workers.append(worker("worker-5", state="suspect", rate=0.0, running=0, heard_s_ago=4.1))
    pages = 41_000.0
    shots = []
    for at in range(SECONDS):
        pages += 420 + 60 * math.sin(at / 9) + 25 * math.sin(at / 2.3)
        docs = run(4, "python-docs", pages=int(pages), queued=90_000 - 350 * at, failed=212)
        docs |= {"admitted": 215_000, "in_flight": 96, "bytes": int(pages) * 21_000}
        shop = run(3, "book-shop", pages=7_000 + 31 * at, max_pages=20_000, failed=12)
        shop |= {"admitted": 31_000, "queued": 12_000}
        news = run(2, "news", state="paused", reason="paused by request", in_flight=0)
        wiki = run(1, "wiki", state="completed", pages=99_000, failed=0, seconds=3_723.0)
        more: dict[str, Any] = {"runs": [docs, shop, news, wiki], "workers": workers}
        more["statuses"] = {"4": {"200": int(pages), "404": 180, "301": 950, "503": 32}}
        more["failed"] = {"4": {"http_404": 180, "http_503": 32}, "3": {"read_timeout": 12}}
        shots.append(snapshot(at, **more))
    said = answers()
    said["overview"] = {
        "why": {"pace": [812, 74_210], "crawl_delay": [31, 9_204], "retry": [4, 12]},
        "commit_backlog": 14,
    }
    names = [
        ("worker-2", "internal_error", "run 3: a plugin raised KeyError: 'price'", "error"),
        ("m2", "worker_lost", "worker-6", "warning"),
        ("m2", "run_paused", "run 2 by request", "info"),
        ("worker-4", "follows", "m2 in epoch 7", "info"),
        ("m2", "worker_joined", "worker-4: 32 slots", "info"),
        ("m2", "run_ended", "wiki, run 1: completed, 99000 pages, 0 failed", "info"),
        ("m2", "leader", "m2 leads in epoch 7", "info"),
    ]
    rows = [
        {"n": 9 - n, "at": AT + 100 - 17 * n, "name": name, "text": text, "source": source}
        | {"level": level}
        for n, (source, name, text, level) in enumerate(names)
    ]
    said["events"] = {"rows": rows, "total": len(rows), "offset": 0}
    return FakeFeed(*(shot | {"leader": "m2", "epoch": 7} for shot in shots), said=said)


async def draw() -> str:
    app = fake_app(story())
    async with app.run_test(size=(120, 34)) as pilot:
        while any(question.slot not in app.view.live.answers for question in questions(app.view)):
            await pilot.pause()
        app.draw()
        await pilot.pause()
        return app.export_screenshot(title="zcrawl console")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(asyncio.run(draw()), "utf-8")
