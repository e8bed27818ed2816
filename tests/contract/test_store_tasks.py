"""Tasks with an id have no host. Runs on each backend."""

from __future__ import annotations

from tests.contract.store_world import World
from zcrawl.frontier.tasks import task_key
from zcrawl.model.rows import NO_HOST, LaneWant, NewLink, Refilled
from zcrawl.model.states import RequestState
from zcrawl.store.commands import Applied, Loaded, TakeOver
from zcrawl.store.queries import FailureGroupRows, ReadFailureGroups, Refill

IDS = ("customer 7", "größe", "x" * 2_000)


def admit(world: World) -> Applied:
    """A page leads to tasks, as a run's seeds would."""
    page = world.submit("http://a.test/").admitted[0]
    links = tuple(NewLink(id, task_key(id), "", 0) for id in IDS)
    applied = world.finish(page, RequestState.DONE, links=links)
    assert isinstance(applied, Applied)
    return applied


def test_a_task_has_the_host_zero_and_no_row_of_a_host_is_made(world: World) -> None:
    """Its id comes back as it was, from the commit, from the queue and after a takeover."""
    applied = admit(world)
    assert [(row.url, row.host) for row in applied.admitted] == [(id, NO_HOST) for id in IDS]
    assert applied.hosts == []
    run = applied.admitted[0].run
    ((_, rows, ends),) = world.ask(Refill((LaneWant(run, NO_HOST, None, 10),)), Refilled).lanes
    assert [row.url for row in rows] == list(IDS)
    assert ends
    loaded = world.do(TakeOver("m2", 0, world.now), Loaded)
    assert [(lane.host, lane.queued) for lane in loaded.lanes] == [(NO_HOST, 3)]
    assert all(host.id != NO_HOST for host in loaded.hosts)


def test_a_failed_task_is_counted_without_a_host(world: World) -> None:
    """The groups of failures have an empty origin for it."""
    row = admit(world).admitted[0]
    world.finish(row, RequestState.DEAD, reason="executor_error")
    groups = world.ask(ReadFailureGroups(None, 10, 10), FailureGroupRows).rows
    assert [(group.host, group.origin, group.url) for group in groups] == [(NO_HOST, "", IDS[0])]
