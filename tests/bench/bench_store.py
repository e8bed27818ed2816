"""Whole result commits a second: SQLite and MariaDB side by side, and what of it is Python.

    python -m tests.bench.bench_store [--seconds 5] [--profile]

Each result ends its request, with a page and an item, and brings 1 or 10 new links; batches of
200 and 500. Both databases are durable (SQLite synchronous=FULL, MariaDB
innodb_flush_log_at_trx_commit=1) with a 64 MB buffer pool on the same disk.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.store_world import key_of
from tests.servers.mariadb import mariadb
from zcrawl.mesh.messages import PageRecord
from zcrawl.model.rows import NewLink, QueuedRow
from zcrawl.model.states import RequestState
from zcrawl.store.commands import (
    Applied,
    ApplyResults,
    Change,
    Loaded,
    SubmitJob,
    Submitted,
    TakeOver,
)
from zcrawl.store.sql.store import PeeweeStore, open_mysql, open_sqlite

HOSTS = 20
ITEM = b'{"url":"https://a.test/some/page","title":"A title of some words","bytes":14000}'


class Crawl:
    """A crawl without the web: every admitted URL is a result later."""

    def __init__(self, store: PeeweeStore, new_links: int) -> None:
        self._store = store
        self._new_links = new_links
        self._numbers = itertools.count(1)
        self._urls = itertools.count(1)
        loaded = store.execute(TakeOver("bench", 0, 1.0))
        assert isinstance(loaded, Loaded)
        self._epoch = loaded.epoch
        seeds = tuple(self._link() for _ in range(1_000))
        submitted = store.execute(
            SubmitJob(1, "q", "bench", b"{}", "new", seeds, (), True, None, 1.0)
        )
        assert isinstance(submitted, Submitted)
        self._queue: deque[QueuedRow] = deque(submitted.admitted)

    def _link(self) -> NewLink:
        n = next(self._urls)
        url = f"https://host{n % HOSTS}.test/a/path/of/usual/length/page-{n}.html?id={n}"
        return NewLink(url, key_of(url), f"https://host{n % HOSTS}.test", 1)

    def batch(self, size: int) -> list[Change]:
        rows = [self._queue.popleft() for _ in range(size)]
        return [
            Change(
                worker=f"w{n % 4}",
                incarnation=7,
                number=0,
                seq=row.seq,
                run=row.run,
                state=RequestState.DONE,
                status=200,
                attempts=1,
                page=PageRecord(row.url, "A title of some words", "text/html", 14_000, 5.0, 12.5),
                items=(ITEM,),
                links=tuple(self._link() for _ in range(self._new_links)),
                host=row.host,
                host_next_at=float(row.seq),
            )
            for n, row in enumerate(rows)
        ]

    def number(self, changes: list[Change]) -> list[Change]:
        """Each batch is one worker's."""
        import msgspec

        return [
            msgspec.structs.replace(change, worker="w", number=next(self._numbers))
            for change in changes
        ]

    def commit(self, changes: list[Change]) -> None:
        applied = self._store.execute(ApplyResults(self._epoch, changes, 2.0))
        assert isinstance(applied, Applied)
        self._queue.extend(applied.admitted)


def measure(store: PeeweeStore, size: int, new_links: int, seconds: float) -> tuple[float, float]:
    """Results a second, and µs of this process's CPU a result, without making the batches."""
    crawl = Crawl(store, new_links)
    results, wall_s, cpu_s = 0, 0.0, 0.0
    while wall_s < seconds:
        changes = crawl.number(crawl.batch(size))
        wall, cpu = time.perf_counter(), time.process_time()
        crawl.commit(changes)
        wall_s += time.perf_counter() - wall
        cpu_s += time.process_time() - cpu
        results += size
    return results / wall_s, cpu_s / results * 1e6


@contextmanager
def stores() -> Iterator[dict[str, object]]:
    """Makers of empty stores."""
    with tempfile.TemporaryDirectory() as folder, mariadb(durable=True) as server:
        numbers = itertools.count()
        yield {
            "SQLite": lambda: open_sqlite(Path(folder) / f"{next(numbers)}.db"),
            "MariaDB": lambda: open_mysql([server.url(server.new_database())]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--profile", action="store_true", help="show where MariaDB's Python goes")
    options = parser.parse_args()
    with stores() as makers:
        print("batch  links  store     results/s  µs CPU/result  of SQLite")
        for size, new_links in itertools.product((200, 500), (1, 10)):
            base = 0.0
            for name, make in makers.items():
                store = make()  # type: ignore[operator]
                profile = cProfile.Profile()
                if options.profile and name == "MariaDB":
                    profile.enable()
                rate, cpu_us = measure(store, size, new_links, options.seconds)
                profile.disable()
                store.close()
                base = base or rate
                print(
                    f"{size:5}  {new_links:5}  {name:8}  {rate:9,.0f}  {cpu_us:13,.0f}  "
                    f"{rate / base:8.0%}",
                    flush=True,
                )
                if options.profile and name == "MariaDB":
                    pstats.Stats(profile).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
