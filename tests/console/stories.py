"""A cluster with some of everything, to look at: fixed data, the same on every machine."""

from __future__ import annotations

import math
from typing import Any

from tests.console.samples import AT, FakeFeed, answers, limit, run, snapshot, worker

SECONDS = 60
WORKERS = 48
STATES = {5: "idle", 11: "suspect", 17: "draining", 23: "lost", 29: "joining", 35: "drained"}
LAST_AT = AT + SECONDS - 1


def workers() -> list[dict[str, Any]]:
    """Forty-eight of them, six in a state that is not busy."""
    rows = []
    for n in range(1, WORKERS + 1):
        state = STATES.get(n, "busy")
        busy = state in ("busy", "draining")
        load = (n * 37 % 100) / 100 if busy else 0.0
        rows.append(
            worker(
                f"worker-{n:02}",
                state=state,
                running=round(32 * load),
                rate=14.0 * load,
                lag_ms=900.0 if n == 40 else 2.0 + n % 5,
                heard_s_ago=41.0 if state == "lost" else 0.4,
            )
        )
    return rows


def masters() -> list[dict[str, Any]]:
    """Three of them, the second leads."""
    return [
        {"id": f"m{n}", "role": "leader" if n == 2 else "follower", "healthy": True, "pid": n}
        | {"control": f"tcp://10.0.0.{n}:7600", "hostname": f"node-{n}", "version": "0.1.0"}
        | {"rss_bytes": 60_000_000 + n, "lag_ms": 2.0, "heard_s_ago": 0.5}
        for n in (1, 2, 3)
    ]


def history(at: float) -> dict[str, Any]:
    """A quarter of an hour in points of ten seconds, with the gap of a failover."""
    points = range(90)
    wave = [420 + 60 * math.sin(n / 9) + 25 * math.sin(n / 2.3) for n in points]
    series: dict[str, list[float]] = {
        "pages_s": wave,
        "failed_s": [max(0.0, 6 * math.sin(n / 7)) for n in points],
        "bytes_s": [21_000 * value for value in wave],
        "queued": [150_000.0 - 640 * n for n in points],
        "fetching": [90 + 30 * math.sin(n / 5) for n in points],
        "waiting": [20 + 10 * math.sin(n / 4) for n in points],
        "uncommitted": [6.0 + n % 7 for n in points],
        "p50": [60 + 20 * math.sin(n / 8) for n in points],
        "p95": [180 + 60 * math.sin(n / 11) for n in points],
        "p99": [420 + 160 * math.sin(n / 6) for n in points],
    }
    gap = range(44, 47)
    cut: dict[str, Any] = {
        name: [None if n in gap else value for n, value in enumerate(values)]
        for name, values in series.items()
    }
    return {"step_s": 10, "at": [at - 10 * (89 - n) for n in points], **cut}


def events() -> dict[str, Any]:
    """What was logged, newest first."""
    lines = [
        ("worker-02", "internal_error", "a plugin raised KeyError: 'price' in run 3", "error"),
        ("m2", "worker_lost", "worker-23 is lost: not heard for 10 heartbeats", "warning"),
        ("m2", "run_paused", "root@node-1 paused news", "info"),
        ("m2", "worker_joined", "worker-04 joined with 32 slots", "info"),
        ("m2", "run_ended", "wiki completed: 99,000 pages, 0 failed", "info"),
        ("m2", "new_leader", "m2 leads in epoch 7", "info"),
        ("m1", "stepped_down", "m1 lost its lease", "warning"),
    ]
    rows = [
        {"n": 90 - n, "at": AT - 17 * n, "name": name, "text": text, "source": source}
        | {"level": level}
        for n, (source, name, text, level) in enumerate(lines)
    ]
    return {"rows": rows, "total": len(rows), "offset": 0}


def busy_cluster() -> FakeFeed:
    """A minute of a crawl that is held by the rate limits of its hosts."""
    shots = []
    staff, leaders = workers(), masters()
    for second in range(SECONDS):
        done = 41_000 + 430 * second
        docs = run(4, "python-docs", pages=done, queued=92_000 - 64 * second, failed=212)
        docs |= {"admitted": 215_000, "in_flight": 120, "fetching": 88, "waiting": 24}
        docs |= {"uncommitted": 8, "bytes": done * 21_000}
        shop = run(3, "book-shop", pages=7_000 + 31 * second, max_pages=20_000, failed=2_950)
        shop |= {"admitted": 31_000, "queued": 12_000, "fetching": 9, "waiting": 1}
        shop |= {"in_flight": 10, "tags": ["eu", "daily"]}
        news = run(2, "news", state="paused", reason="paused by request", in_flight=0)
        wiki = run(1, "wiki", state="completed", pages=99_000, failed=0, queued=0, in_flight=0)
        wiki |= {"admitted": 99_000, "seconds": 3_723.0}
        shots.append(
            snapshot(
                second,
                leader="m2",
                epoch=7,
                masters=leaders,
                workers=staff,
                runs=[docs, shop, news, wiki],
                statuses={"4": {"200": done, "404": 180, "301": 950, "503": 32}},
                failed={"4": {"http_404": 180, "http_503": 32}, "3": {"read_timeout": 2_950}},
            )
        )
    said = answers()
    said["history"] = history(AT)
    said["events"] = events()
    docs_host = limit(host="https://docs.python.org", hosts=1, queued=74_210, share=0.87)
    said["overview"] = {
        "limits": [
            docs_host | {"advice": "raise 40/s", "gain": 2.0},
            limit("crawl_delay", text="robots.txt asks for a delay", hosts=31, queued=9_204)
            | {"share": 0.11, "advice": "the sites ask for it", "gain": None},
            limit("away", text="host down", hosts=3, queued=1_420, share=0.02)
            | {"advice": "asked again by itself", "gain": None},
        ],
        "commit_queue": 14,
    }
    return FakeFeed(*shots, said=said)
