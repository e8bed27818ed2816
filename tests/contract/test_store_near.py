"""What every store makes of pages whose text is almost that of an earlier page of the run."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.contract.store_world import DONE, SKIPPED, A, B, C, D, World, links
from zcrawl.mesh.messages import Traits
from zcrawl.model.states import RunState
from zcrawl.store.commands import Applied, ApplyResults
from zcrawl.store.queries import Items, ReadItems


def spec(near: str, distance: int = 3, **more: object) -> bytes:
    return msgspec.json.encode({"duplicates": {"near": near, "distance": distance}, **more})


def prints(bits: int) -> Traits:
    """Bits of a job's distance count four times: a fingerprint has 256."""
    return Traits(fingerprint=bits.to_bytes(32))


def kept(world: World, run: int) -> list[dict[str, object]]:
    rows = world.ask(ReadItems(run, 0, 100), Items).rows
    return [msgspec.json.decode(row.data) for row in rows]


def test_by_default_every_page_is_kept(world: World) -> None:
    """Whatever a worker tells."""
    job = world.submit(A, B)
    for row in job.admitted:
        assert world.finish(row, DONE, traits=prints(5)).skipped == []
    assert kept(world, job.run) == [{"n": 1}, {"n": 1}]


def test_a_near_duplicate_is_marked_with_the_first_page(world: World) -> None:
    """Within the distance, in one batch or a later one; an original has an empty mark."""
    job = world.submit(A, B, C, D, spec=spec("mark"))
    a, b, c, d = job.admitted
    world.apply(
        world.change(a, DONE, traits=prints(0)), world.change(b, DONE, traits=prints(0xFFF))
    )
    world.finish(c, DONE, traits=prints(0x1FFF))  # 13 bits from A, 1 from B, which is no original
    world.finish(d, DONE)  # without a fingerprint
    assert [item["duplicate_of"] for item in kept(world, job.run)] == [None, A, None, None]
    row = world.run_row(job.run)
    assert (row.counters.done, row.counters.items, row.state) == (4, 4, "completed")


def test_a_near_duplicate_is_skipped_with_its_reason_and_its_links_are_followed(
    world: World,
) -> None:
    """It counts as skipped, has no item, and the store says which request that was."""
    job = world.submit(A, B, spec=spec("skip"))
    a, b = job.admitted
    world.finish(a, DONE, traits=prints(1 << 40))
    applied = world.finish(b, DONE, traits=prints(1 << 40 | 3), links=links(C))
    assert applied.skipped == [b.seq]
    assert [row.url for row in applied.admitted] == [C]
    assert world.failures(job.run) == [(B, SKIPPED, "near_duplicate")]
    assert world.tallies(job.run).skipped == {"near_duplicate": 1}
    counters = world.run_row(job.run).counters
    assert (counters.done, counters.skipped, counters.items, counters.pending) == (1, 1, 1, 1)


@pytest.mark.parametrize(("distance", "originals"), [(0, 5), (1, 3), (2, 2), (3, 2)])
def test_the_distance_is_the_jobs(world: World, distance: int, originals: int) -> None:
    """0: the very same text only. It counts from originals, not from other duplicates."""
    urls = [f"https://a.test/{n}" for n in range(6)]
    job = world.submit(*urls, spec=spec("skip", distance))
    for row, bits in zip(job.admitted, (0, 0, 4, 8, 12, 16), strict=True):
        world.finish(row, DONE, traits=prints(((1 << bits) - 1) << 30))
    counters = world.run_row(job.run).counters
    assert (counters.done, counters.skipped) == (originals, 6 - originals)


def test_a_result_that_comes_twice_is_no_duplicate_of_itself(world: World) -> None:
    """The repeat changes nothing."""
    job = world.submit(A, B, spec=spec("skip"))
    change = world.change(job.admitted[0], DONE, traits=prints(9))
    world.apply(change)
    world.do(ApplyResults(world.epoch, [change], world.now), Applied)
    assert world.run_row(job.run).counters.done == 1
    assert world.failures(job.run) == []


def test_runs_do_not_see_each_other(world: World) -> None:
    """A page of another run is not a reason to skip."""
    for _ in range(2):
        job = world.submit(A, name="site", mode="update", spec=spec("skip"))
        world.finish(job.admitted[0], DONE, traits=prints(9))
        assert world.run_row(job.run).counters.done == 1


def test_skipped_pages_count_for_no_limit(world: World) -> None:
    """max_pages counts what is kept."""
    job = world.submit(A, B, C, spec=spec("skip", scope={"max_pages": 2}))
    a, b, c = job.admitted
    world.finish(a, DONE, traits=prints(9))
    world.finish(b, DONE, traits=prints(9))
    assert world.run_row(job.run).state is RunState.RUNNING
    world.finish(c, DONE, traits=prints(1 << 60 | 0xFFFFF))
    row = world.run_row(job.run)
    assert (row.state, row.reason, row.counters.done) == ("completed", "max_pages", 2)


def test_an_unchanged_page_is_an_original_of_its_run(world: World) -> None:
    """A new page that copies it is found, although it was not read again."""
    recrawl = {"incremental": True, "interval": 0, "min_interval": 0}
    both = spec("skip", recrawl=recrawl)
    first = world.submit(A, name="site", spec=both)
    prints_of_a, prints_of_b = b"1234567" * 4 + b"1234", b"1234567" * 4 + b"1235"
    world.finish(first.admitted[0], DONE, traits=Traits(content=b"c", fingerprint=prints_of_a))
    second = world.submit(A, B, name="site", mode="again")
    a, b = second.admitted
    same = Traits(content=b"c", unchanged=True, fingerprint=prints_of_a)
    world.finish(a, DONE, traits=same, items=(), reason="unchanged")
    world.finish(b, DONE, traits=Traits(content=b"d", fingerprint=prints_of_b))
    assert world.failures(second.run) == [(B, SKIPPED, "near_duplicate")]


def test_a_crowded_band_takes_no_more_and_its_pages_are_found_by_others(world: World) -> None:
    """Forty pages that share a band, as pages with one menu may, are forty originals."""
    rng = random.Random(1)
    bits = [rng.getrandbits(224) for _ in range(40)]
    job = world.submit(*(f"https://a.test/{n}" for n in range(41)), spec=spec("skip"))
    changes = [
        world.change(row, DONE, traits=prints(fingerprint))
        for row, fingerprint in zip(job.admitted, [*bits, bits[-1] ^ 1], strict=True)
    ]
    world.apply(*changes[:20])
    assert world.apply(*changes[20:]).skipped == [job.admitted[-1].seq]
    assert world.run_row(job.run).counters.done == 40


def test_fingerprints_go_with_their_run(world: World) -> None:
    """Deleted in chunks like all rows."""
    job = world.submit(A, B, C, spec=spec("mark"))
    for row, bits in zip(job.admitted, (0, 0xFFFF << 20, 0xFFFFFF << 60), strict=True):
        world.finish(row, DONE, traits=prints(bits))
    world.change_run(job.run, RunState.DELETED, "deleted")
    chunks = 1
    while world.sweep(job.run, limit=2).more:
        chunks += 1
        assert chunks < 50
    assert world.reload().sweeps == []
