"""Random commands through two stores that were written independently: same outcomes, always."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.store_world import client_action, link, page, timeless
from tests.servers.mariadb import Mariadb
from zcrawl.errors import StoreError
from zcrawl.mesh.messages import Traits
from zcrawl.model.reasons.skip import DUPLICATE
from zcrawl.model.rows import LaneWant, NewLink
from zcrawl.model.states import RequestState, RunState
from zcrawl.store.commands import (
    AddSeeds,
    AdmitKnown,
    AdvanceOutput,
    ApplyResults,
    CancelOffline,
    Change,
    ChangeRun,
    Command,
    CommandOutcome,
    CountCrash,
    ExtendLease,
    GrantHosts,
    Loaded,
    NoteArchive,
    NoteOutput,
    Reload,
    RetryDead,
    SetDrain,
    SetWish,
    SubmitJob,
    Sweep,
    TakeOver,
    TuneRun,
)
from zcrawl.store.ports import Store
from zcrawl.store.queries import (
    FindItems,
    FindJob,
    KnownPages,
    ListJobs,
    Query,
    ReadFailed,
    ReadItems,
    ReadKnown,
    ReadOutputs,
    Refill,
    Tallies,
)
from zcrawl.store.rules import RECALLED
from zcrawl.store.sql import schema
from zcrawl.store.sql.store import PeeweeStore, open_mysql, open_sqlite
from zcrawl.testing.store.store import FakeStore

URLS = [f"https://{host}.test/{i}" for host in "abc" for i in range(5)]
NOW = 100.0
DELETED = RunState.DELETED

runs = st.integers(1, 4)
seqs = st.integers(1, 14)
limits = st.integers(1, 4)
epochs = st.sampled_from([0] * 12 + [-1, 1])  # distance from the stored one


@st.composite
def new_links(draw: st.DrawFn) -> NewLink:
    return link(draw(st.sampled_from(URLS)), draw(st.integers(0, 2)), draw(st.integers(0, 1)))


some_links = st.lists(new_links(), max_size=4).map(tuple)
specs = st.sampled_from(
    [
        b"{}",
        b'{"scope":{"max_pages":2}}',
        b'{"scope":{"max_pages":4}}',
        b'{"recrawl":{"incremental":true}}',
        b'{"recrawl":{"incremental":true,"interval":0,"min_interval":0},"scope":{"max_pages":3}}',
        b'{"recrawl":{"incremental":true},"duplicates":{"near":"skip"}}',
        b'{"duplicates":{"near":"mark"}}',
    ]
)
traits = st.sampled_from(
    [
        None,
        Traits(content=b"1", fingerprint=b"a" * 32),
        Traits('"e"', "", b"1", unchanged=True, fingerprint=b"a" * 32),
        Traits('"e"', "today", b"2", fingerprint=b"a" * 31 + b"b"),
        Traits(content=b"3", fingerprint=b"z" * 32),
    ]
)
finals = st.one_of(st.none(), new_links())
netlocs = st.lists(st.sampled_from(["a.test", "b.test"]), max_size=2).map(tuple)
reasons = st.sampled_from(["", "dns", "robots"])


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """A change whose number is relative: 1 is the next, 0 a repeat, 2 a gap."""
    state = draw(st.sampled_from([*RequestState, RequestState.DONE, None]))
    done = state is RequestState.DONE
    return Change(
        worker=draw(st.sampled_from(["w1", "w2"])),
        incarnation=draw(st.integers(1, 2)),
        number=draw(st.sampled_from([1] * 20 + [0, 0, 2])),
        seq=draw(seqs),
        run=draw(runs),
        state=state,
        dropped=draw(st.sampled_from([False] * 9 + [True])),
        reason=draw(reasons),
        status=draw(st.sampled_from([0, 200, 404])),
        attempts=draw(st.integers(0, 2)),
        due_at=draw(st.sampled_from([0.0, 50.0])),
        page=page("https://a.test/", draw(st.integers(0, 9))) if done else None,
        items=draw(st.lists(st.sampled_from([b"x", b"y"]), max_size=2).map(tuple)),
        links=draw(some_links),
        seed_hosts=draw(st.sampled_from([(), (), ("c.test",)])),
        host=draw(st.integers(0, 3)),
        host_next_at=draw(st.sampled_from([0.0, 7.0, 9.0])),
        crawl_delay_s=draw(st.sampled_from([0.0, 2.0, 3.0])),
        traits=draw(traits) if done else None,
        final=draw(finals) if done else None,
        detail=draw(st.sampled_from(["", "no such name", "é"])),
        examples=draw(st.sampled_from([(), (), (("schema: n", "n is 'x'"),)])) if done else (),
    )


@st.composite
def retries(draw: st.DrawFn) -> RetryDead:
    """A part of one of a few retries: the same request is always about the same rows."""
    run, reason, host = draw(runs), draw(reasons), draw(st.integers(0, 2))
    number = draw(st.integers(0, 1)) + 10 * host + 100 * len(reason) + 1_000 * run
    # Each at its own moment: actions are listed by their time.
    request = client_action(f"r{number}", at=NOW + number)
    return RetryDead(draw(epochs), run, draw(limits), NOW, request, reason, host)


requests = st.integers(1, 30).map(str)
outputs = st.sampled_from([None, ("/x.jsonl", "jsonl")])
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(ApplyResults, epochs, st.lists(changes(), max_size=6), st.just(NOW)),
    st.builds(ApplyResults, epochs, st.lists(changes(), max_size=6), st.just(NOW)),
    st.builds(
        SubmitJob,
        epoch=epochs,
        request=requests,
        name=st.sampled_from(["one", "two"]),
        spec=specs,
        mode=st.sampled_from(["new", "update", "again"]),
        seeds=some_links,
        seed_hosts=netlocs,
        seeding=st.booleans(),
        output=outputs,
        now=st.just(NOW),
    ),
    st.builds(AddSeeds, epochs, requests, runs, some_links, netlocs, st.booleans(), st.just(NOW)),
    st.builds(
        ChangeRun, epochs, requests, runs, st.sampled_from(list(RunState)), reasons, st.just(NOW)
    ),
    st.builds(Sweep, epochs, runs, limits),
    st.builds(
        AdmitKnown,
        epochs,
        runs,
        st.sampled_from([0, 0, 2, RECALLED]),
        st.sampled_from([2, 3]),
        some_links,
        st.booleans(),
        st.just(NOW),
    ),
    st.builds(TuneRun, epochs, requests, runs, specs),
    retries(),
    retries(),
    st.builds(
        SetDrain,
        epochs,
        st.sampled_from(["w1", "w2"]),
        st.booleans(),
        st.integers(0, 2),
        st.just(NOW),
        st.just("idle"),
        st.one_of(st.none(), requests.map(lambda id: client_action(f"d{id}"))),
    ),
    st.builds(
        SetWish,
        epochs,
        st.integers(1, 4),
        st.sampled_from(["w1", "w2"]),
        st.just(b"{}"),
        requests.map(lambda id: client_action(f"w{id}", at=float(id))),
        st.lists(st.integers(1, 4), max_size=2).map(tuple),
    ),
    st.builds(CountCrash, epochs, seqs, st.integers(1, 3), st.booleans(), st.just(NOW)),
    st.builds(GrantHosts, epochs, st.lists(st.tuples(st.integers(1, 4), netlocs), max_size=2)),
    st.builds(ExtendLease, epochs, st.sampled_from([5.0, 6.0])),
    st.builds(AdvanceOutput, epochs, runs, st.just("/x.jsonl"), st.integers(0, 5), limits),
    st.builds(NoteOutput, epochs, runs, st.just("/x.jsonl"), st.sampled_from(["", "[full] no"])),
    st.builds(NoteArchive, epochs, runs, st.sampled_from(["", "[full] no", "[away] no"])),
    st.builds(TakeOver, st.just("m"), st.integers(0, 5), st.just(NOW)),
    st.builds(CancelOffline, st.just("offline"), runs, st.just(NOW)),
    st.builds(Reload, epochs, st.just(NOW)),
)


def resolve(command: Command, fake: FakeStore) -> Command | None:
    """Relative epochs and numbers become real ones; None: the outcome may differ."""
    tables = fake.tables
    if isinstance(command, TakeOver | CancelOffline):
        return command
    command = msgspec.structs.replace(command, epoch=tables.epoch + command.epoch)
    if isinstance(command, CountCrash):
        # In which order a deleted run loses its rows is left to the store.
        request = tables.requests.get(command.seq)
        deleted = [run.id for run in tables.runs.values() if run.state is RunState.DELETED]
        return None if request is None or request.run in deleted else command
    if isinstance(command, ApplyResults):
        marks = dict(tables.watermarks)
        numbered = []
        for change in command.changes:
            worker = (change.worker, change.incarnation)
            number = marks.get(worker, 0) + change.number
            marks[worker] = max(marks.get(worker, 0), number)
            request = tables.requests.get(change.seq)
            run = change.run if request is None or change.run == 4 else request.run
            host = change.host if change.host in tables.hosts else 0
            change = msgspec.structs.replace(change, number=number, run=run, host=host)
            numbered.append(change)
        return msgspec.structs.replace(command, changes=numbered)
    return command


def attempt(store: Store, command: Command) -> CommandOutcome | tuple[type[StoreError], str]:
    try:
        outcome = store.execute(command)
    except StoreError as error:
        return type(error), error.code
    return timeless(outcome) if isinstance(outcome, Loaded) else outcome


def compare_reads(fake: FakeStore, real: PeeweeStore) -> None:
    lanes = [
        LaneWant(run.id, host, after, 3)
        for run in fake.tables.runs.values()
        if not run.state.ended
        for host in fake.tables.hosts
        for after in (None, (0, 1, 4))
    ]
    queries: list[Query] = [
        Refill(tuple(lanes)),
        ListJobs(),
        FindJob("one"),
        FindJob("2"),
        ReadOutputs(),
    ]
    for run in fake.tables.runs:
        queries += [
            Tallies(run),
            ReadItems(run, 1, 3),
            ReadFailed(run, 2, 5),
            *(ReadFailed(run, 0, 5, reason) for reason in ("dns", "cancelled", DUPLICATE)),
            ReadFailed(run, 0, 5, host=1),
            FindItems(run, 4, 2),
            FindItems(run, 1 << 60, 2, "Y"),
            ReadOutputs(run),
        ]
    for query in queries:
        assert fake.query(query) == real.query(query), query
    for job in {run.job.id for run in fake.tables.runs.values() if run.state is not DELETED}:
        # In which order a sweep meets its rows, and gives ids to what is known, is the store's.
        assert known_urls(fake, job) == known_urls(real, job)


def known_urls(store: Store, job: int) -> list[tuple[str, int]]:
    reply = store.query(ReadKnown(job, 0, 100))
    assert isinstance(reply, KnownPages)
    return sorted((row.url, row.depth) for row in reply.rows)


def play(steps: list[Command], fake: FakeStore, real: PeeweeStore) -> None:
    """Every command through both; then everything that can be read."""
    seeds = (link(URLS[0]), link(URLS[6]))
    first = SubmitJob(1, "0", "one", b"{}", "new", seeds, (), False, None, NOW)
    for step in [TakeOver("m", 0, NOW), first, *steps]:
        command = step if step is first else resolve(step, fake)
        if command is None:
            continue
        assert attempt(fake, command) == attempt(real, command), command
        fake.check()
    compare_reads(fake, real)
    last = Reload(fake.tables.epoch, NOW)
    assert attempt(fake, last) == attempt(real, last)


stories = st.lists(commands, min_size=3, max_size=30)


@settings(max_examples=120)
@given(stories)
def test_two_stores_never_disagree(steps: list[Command]) -> None:
    """The fake and SQLite give the same outcome or the same error for every command."""
    with tempfile.TemporaryDirectory() as folder:
        real = open_sqlite(Path(folder) / "z.db")
        real._writer.connection.execute("PRAGMA synchronous = off")  # the disk is not the subject
        try:
            play(steps, FakeStore(), real)
        finally:
            real.close()


@pytest.fixture(scope="module")
def shared_database(mariadb_server: Mariadb) -> Iterator[str]:
    name = mariadb_server.new_database()
    yield name
    mariadb_server.drop(name)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(stories)
def test_the_fake_and_mysql_never_disagree(
    mariadb_server: Mariadb, shared_database: str, steps: list[Command]
) -> None:
    """The same on MySQL; the tables are emptied before each story, which is faster than DDL."""
    real = open_mysql([mariadb_server.url(shared_database)])
    try:
        session = real._writer
        for model in schema.MODELS:
            if model not in (schema.SchemaVersionTable, schema.SequenceTable):
                session.run(f"DELETE FROM {model._meta.table_name}")
        session.run("UPDATE sequences SET value = 0")
        play(steps, FakeStore(), real)
    finally:
        real.close()
