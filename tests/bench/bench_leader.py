"""The leader's whole CPU per page with 10, 1,000 and 10,000 hosts in one run.

    python -m tests.bench.bench_leader [--pages 30000] [--rounds 3] [--profile HOSTS]

A real master leads on a real SQLite database (durable, as crawls have it): frames are decoded,
results planned, committed and acked, requests dispatched, grants stored, assignments encoded. Only
its workers are simulated: four that answer everything they get by the next turn, in virtual time,
at 1,500 pages a second. The first page of a host names all its others. What the simulated workers
cost is not counted. Prints the CPU per page of the whole run, and of its second half alone, when
every host has its owner; and both as a ratio to 10 hosts. Wanted is at most 1.2.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

from tests.unit.machine_tools import header, heartbeat, hello
from zcrawl.frontier.url import DEFAULT
from zcrawl.master import events as m
from zcrawl.master.master import Master
from zcrawl.mesh import codec
from zcrawl.mesh.messages import (
    KIND_OF,
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Assignment,
    Body,
    ClientRequest,
    Header,
    PageRecord,
    Result,
)
from zcrawl.model.host import Manner
from zcrawl.model.spec import JobSpec, Politeness
from zcrawl.model.states import Outcome
from zcrawl.store.sql.store import open_sqlite
from zcrawl.submit.read import to_dict

SIZES = (10, 1_000, 10_000)
WORKERS = 4
SLOTS = 64
PER_SECOND = 1_500.0
STEP_S = 0.005
UTC = 1_700_000_000.0
ITEM = b'{"url":"https://a.test/some/page","title":"A title of some words","bytes":14000}'
SEEDS_AT_ONCE = 1_000


class Bench:
    """One run of so many pages on so many hosts."""

    def __init__(self, folder: Path, pages: int, hosts: int) -> None:
        self.pages, self.hosts = pages, hosts
        self.master = Master("bench")
        self.store = open_sqlite(folder / "bench.db")
        self.now = 100.0
        self.cpu_s = 0.0
        self.done = 0
        self._events: deque[m.MasterEvent] = deque()
        self._frames: deque[list[bytes]] = deque()  # on their way to the master
        self._numbers = [0] * WORKERS
        self._acked = [0] * WORKERS
        self._assigned = [0] * WORKERS
        self._heard = [0] * WORKERS
        self._unsettled: list[dict[int, list[bytes]]] = [{} for _ in range(WORKERS)]
        self._beat_at = 0.0
        self._asked = 0
        self._reply: dict[str, object] = {}

    def run(self) -> tuple[float, float]:
        """CPU seconds a page: of all, of the second half."""
        self._lead(m.Elected(0, alone=True))
        for n in range(WORKERS):
            self._say(n, hello(slots=SLOTS))
        run = self._submit()
        halfway = 0.0
        while self.done < self.pages:
            if not halfway and self.done >= self.pages // 2:
                halfway, at = self.cpu_s, self.done
            self._turn()
            assert self.now < 1_000.0, f"run {run} stands at {self.done}"
        self.store.close()
        return self.cpu_s / self.done, (self.cpu_s - halfway) / (self.done - at)

    def _submit(self) -> object:
        rate = PER_SECOND / self.hosts
        polite = Politeness(robots=False, rate=rate, concurrency=8)
        spec = JobSpec("bench", politeness=polite)
        seeds = [f"http://h{n}.test/0" for n in range(self.hosts)]
        first = {"spec": to_dict(spec), "mode": "new", "seeds": seeds[:SEEDS_AT_ONCE]}
        self._ask("submit", {**first, "seeding": True})
        run = self._reply["run"]
        for at in range(SEEDS_AT_ONCE, len(seeds) + SEEDS_AT_ONCE, SEEDS_AT_ONCE):
            more, last = seeds[at : at + SEEDS_AT_ONCE], at + SEEDS_AT_ONCE >= len(seeds)
            self._ask("add_seeds", {"run": run, "seeds": more, "last": last})
        return run

    def _ask(self, op: str, args: dict[str, object]) -> None:
        self._asked += 1
        self._reply = {}
        self._lead(m.ClientAsked(b"c", ClientRequest(f"q{self._asked}", op, args)))
        assert self._reply, f"{op} was not answered"

    def _turn(self) -> None:
        self.now += STEP_S
        if self.now >= self._beat_at:
            self._beat_at = self.now + 1.0
            for n in range(WORKERS):
                body = heartbeat(
                    self.now,
                    slots=SLOTS,
                    produced=self._numbers[n],
                    acked=self._acked[n],
                    assigned=self._assigned[n],
                    rate=PER_SECOND / WORKERS,
                    heard=self._heard[n],
                )
                self._say(n, body)
                # The leader dropped what came too far ahead of its last commit.
                self._frames.extend(self._unsettled[n].values())
        self._lead(m.MasterTicked())

    # ------------------------------------------------------------ the leader: what is measured

    def _lead(self, event: m.MasterEvent) -> None:
        began = time.process_time()
        sent: list[m.SendToWorker] = []
        self._events.append(event)
        while self._events or self._frames:
            if self._frames:
                message = codec.decode(self._frames.popleft())
                line = message.header.source.encode()
                self._events.append(m.MessageCame(message, line))
            for effect in self.master.handle(self._events.popleft(), self.now, UTC + self.now):
                match effect:
                    case m.Execute(command):
                        self._events.append(m.CommandDone(command, self.store.execute(command)))
                    case m.Ask(query, tag):
                        self._events.append(m.QueryDone(query, tag, self.store.query(query)))
                    case m.SendToWorker(_, _, _, body, number):
                        codec.encode(_header(body, "bench", number), body)
                        sent.append(effect)
                    case m.Publish(body):
                        codec.encode(_header(body, "bench", 0), body)
                    case m.ReplyTo(_, reply):
                        assert reply.ok, reply
                        self._reply = reply.data
                    case _:
                        pass
        self.cpu_s += time.process_time() - began
        for delivery in sent:
            self._work(int(delivery.worker[1:]), delivery)

    # ------------------------------------------------------------ the workers: not measured

    def _work(self, n: int, sent: m.SendToWorker) -> None:
        self._heard[n] = max(self._heard[n], sent.sequence)
        match sent.body:
            case Assign(_, urls):
                self._assigned[n] = sent.sequence
                for assignment in urls:
                    self._answer(n, assignment)
            case Ack(upto):
                self._acked[n] = upto
                for number in [number for number in self._unsettled[n] if number <= upto]:
                    del self._unsettled[n][number]
            case _:
                pass

    def _answer(self, n: int, assignment: Assignment) -> None:
        self.done += 1
        links: list[tuple[str, bytes]] = []
        if assignment.url.endswith("/0"):
            others = range(1, self.pages // self.hosts)
            urls = [f"{assignment.url[:-1]}a/path/of/usual/length/page-{k}.html" for k in others]
            links = [(url, DEFAULT.key(url)) for url in urls]
        result = Result(
            lease_epoch=self.master.epoch,
            lease_n=assignment.n,
            seq=assignment.seq,
            run=assignment.run,
            host=assignment.host,
            attempt=assignment.attempt,
            outcome=Outcome.DONE,
            status=200,
            depth=assignment.depth,
            page=PageRecord(
                assignment.url, "A title of some words", "text/html", 14_000, UTC, 12.5
            ),
            items=[ITEM],
            links=links,
            host_next_in_s=self.hosts / PER_SECOND,
            manner=Manner() if assignment.url.endswith("/0") else None,
        )
        self._numbers[n] += 1
        self._say(n, result, self._numbers[n], assignment.seq)

    def _say(self, n: int, body: Body, number: int = 0, subject: int = 0) -> None:
        head = header(body, f"w{n}", epoch=self.master.epoch, sequence=number, subject=subject)
        frames = codec.encode(head, body)
        self._frames.append(frames)
        if number:
            self._unsettled[n][number] = frames


def _header(body: Body, source: str, number: int) -> Header:
    return Header(PROTOCOL_VERSION, int(KIND_OF[type(body)]), 0, 1, source, 1, number)


def measure(pages: int, hosts: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="zcrawl-bench-") as folder:
        return Bench(Path(folder), pages, hosts).run()


def profile(pages: int, hosts: int) -> None:
    profiler = cProfile.Profile()
    profiler.runcall(measure, pages, hosts)
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=int, metavar="HOSTS")
    options = parser.parse_args()
    if options.profile:
        profile(options.pages, options.profile)
        return
    # In turns: what else the machine does concerns all of them.
    measurements: dict[int, list[tuple[float, float]]] = {hosts: [] for hosts in SIZES}
    for _ in range(options.rounds):
        for hosts in SIZES:
            measurements[hosts].append(measure(options.pages, hosts))
    whole = {
        hosts: min(seconds for seconds, _ in runs) * 1e6 for hosts, runs in measurements.items()
    }
    steady = {
        hosts: min(seconds for _, seconds in runs) * 1e6 for hosts, runs in measurements.items()
    }
    figures = {
        "pages": options.pages,
        "whole_us_per_page": {str(hosts): round(us, 1) for hosts, us in whole.items()},
        "steady_us_per_page": {str(hosts): round(us, 1) for hosts, us in steady.items()},
        "whole_ratio": {str(hosts): round(us / whole[10], 2) for hosts, us in whole.items()},
        "steady_ratio": {str(hosts): round(us / steady[10], 2) for hosts, us in steady.items()},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
