"""StateChanges between snapshots become events."""

from zcrawl.gateway.changes import StateChanges
from zcrawl.model.snapshot import LiveRunView, MasterView, PublishedSnapshot, WorkerView


def snapshot(*states: tuple[int, str], workers: tuple[WorkerView, ...] = ()) -> PublishedSnapshot:
    runs = tuple(LiveRunView(7, run, name="books", state=state) for run, state in states)
    return PublishedSnapshot(leader="m1", epoch=1, runs=runs, workers=workers)


def test_the_first_snapshot_is_where_it_begins() -> None:
    """A client reads the state itself; it gets no events about what was there before."""
    changes = StateChanges()
    assert changes.see(snapshot((1, "running"))) == []
    assert changes.see(snapshot((1, "running"))) == []


def test_each_state_of_a_run_is_told_once_with_the_state_before() -> None:
    """New, paused, completed: one event each, with the job for filters."""
    changes = StateChanges()
    changes.see(snapshot())
    states = []
    for state in ("running", "running", "paused", "completed", "completed"):
        states += [(c.data["was"], c.data["state"]) for c in changes.see(snapshot((1, state)))]
    assert states == [("", "running"), ("running", "paused"), ("paused", "completed")]


def test_a_run_whose_end_was_told_is_not_told_again_when_it_comes_back() -> None:
    """The next leader shows recently ended runs again."""
    changes = StateChanges()
    changes.see(snapshot((1, "running")))
    assert len(changes.see(snapshot((1, "completed")))) == 1
    changes.see(snapshot())
    assert changes.see(snapshot((1, "completed"))) == []


def test_a_run_that_disappears_is_asked_about() -> None:
    """Its end is states from the answer; while it is alive it stays missing."""
    changes = StateChanges()
    changes.see(snapshot((1, "running")))
    assert changes.see(snapshot()) == []
    assert list(changes.missing) == [1]
    assert changes.settle(1, "running", "") == []
    assert list(changes.missing) == [1]
    (change,) = changes.settle(1, "failed", "dns")
    assert (change.run, change.job, change.name, change.data["state"]) == (1, 7, "books", "failed")
    assert changes.missing == {}


def test_nodes_come_change_and_go() -> None:
    """A worker's state and drain, and its end."""
    changes = StateChanges()
    changes.see(snapshot())
    states = []
    for worker in (
        WorkerView(id="w1", state="ready"),
        WorkerView(id="w1", state="ready", drained=True),
        None,
    ):
        workers = (worker,) if worker is not None else ()
        states += [change.data["state"] for change in changes.see(snapshot(workers=workers))]
    assert states == ["ready", "drained", "gone"]


def test_a_worker_beyond_the_end_of_the_snapshot_is_not_gone() -> None:
    """Of very many workers only the first are published."""
    changes = StateChanges()
    w1, w2 = WorkerView(id="w1"), WorkerView(id="w2")
    changes.see(snapshot(workers=(w1, w2)))
    part = PublishedSnapshot(leader="m1", epoch=1, workers=(w2,), workers_total=2)
    assert changes.see(part) == []


def test_another_leader_is_an_event() -> None:
    """With its epoch and the leader before; masters change their roles."""
    changes = StateChanges()
    changes.see(PublishedSnapshot(leader="m1", epoch=1, masters=(MasterView("m2"),)))
    after = PublishedSnapshot(leader="m2", epoch=2, masters=(MasterView("m2", "leader"),))
    leader, node = changes.see(after)
    assert leader.data == {"leader": "m2", "epoch": 2, "was": "m1"}
    assert node.data == {"node": "m2", "role": "master", "state": "leader", "was": "follower"}
