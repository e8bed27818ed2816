"""A worker takes over other settings while it runs."""

from __future__ import annotations

from tests.unit.machine_tools import grant
from tests.unit.worker.test_worker_machine import Worker, of, sent, started
from zcrawl.mesh.messages import Heartbeat, Hello, Reloaded, ReloadNode
from zcrawl.model.reload_report import ReloadReport
from zcrawl.worker import events as w


def test_more_slots_start_more_at_once() -> None:
    """And the leader hears of them with the next heartbeat, which does not wait."""
    worker = Worker(slots=1)
    worker.welcome(grant(concurrency=8))
    assert started(worker.assign(1, 2, 3)) == [1]
    assert started(worker.handle(w.SettingsChanged(3, ()))) == [2, 3]
    (beat,) = sent(worker.tick(), Heartbeat)
    assert beat.vitals.slots == 3


def test_fewer_slots_end_nothing_that_runs() -> None:
    """Less is started until enough has ended."""
    worker = Worker(slots=3)
    worker.welcome(grant(concurrency=8))
    assert started(worker.assign(1, 2, 3, 4)) == [1, 2, 3]
    effects = worker.handle(w.SettingsChanged(1, ()))
    assert of(effects, w.CancelFetch) == []
    assert started(worker.end(1)) == []
    assert started(worker.end(2)) == []
    assert started(worker.end(3)) == [4]


def test_other_labels_are_told_with_a_new_hello() -> None:
    """The same labels, or other slots, need none."""
    worker = Worker()
    worker.welcome(grant())
    assert sent(worker.handle(w.SettingsChanged(8, ())), Hello) == []
    (hello,) = sent(worker.handle(w.SettingsChanged(8, ("eu",))), Hello)
    assert hello.slots == 8
    assert sent(worker.handle(w.SettingsChanged(8, ("eu",))), Hello) == []


def test_settings_that_change_before_there_is_a_leader_are_kept() -> None:
    """HELLO has them."""
    worker = Worker(slots=1)
    worker.handle(w.SettingsChanged(5, ("eu",)))
    worker.welcome(grant())
    assert sent(worker.effects, Hello)[-1].slots == 5


def test_a_reload_is_left_to_the_node_and_its_report_goes_to_the_leader() -> None:
    """Each time that the leader asks; the node carries a request out once."""
    worker = Worker()
    worker.welcome(grant())
    for _ in range(2):
        assert of(worker.say(ReloadNode("r")), w.AskForReload) == [w.AskForReload("r")]
    report = ReloadReport(changed=["worker.slots: 4 → 5"])
    effects = worker.handle(w.NodeReloaded("r", "w", report))
    assert sent(effects, Reloaded) == [Reloaded("r", "w", report)]
