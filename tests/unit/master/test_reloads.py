"""The leader's book of reloads: who was told, who has answered, who is silent."""

from __future__ import annotations

from zcrawl.master.reloads import MASTER, MOST_KEPT, PATIENCE_S, WORKER, Reloads, belongs_to
from zcrawl.model.reload_report import ReloadReport

CHANGED = ReloadReport(changed=["log.level: info → error"])


def test_a_node_is_told_each_second_until_it_answers() -> None:
    """A lost message, or a lost answer, does no harm."""
    reloads = Reloads()
    reloads.begin("r", ["m1", "m2"], ["w-1"], 0.0)
    (due,) = reloads.due(0.0)
    assert (due.request, due.masters, due.workers) == ("r", ["m1", "m2"], ["w-1"])
    assert reloads.due(0.5) == []
    reloads.answered("r", MASTER, "m1", "m1", CHANGED)
    (due,) = reloads.due(1.0)
    assert (due.masters, due.workers) == (["m2"], ["w-1"])
    reloads.answered("r", MASTER, "m2", "m2", ReloadReport())
    reloads.answered("r", WORKER, "w-1", "w", CHANGED)
    assert reloads.due(5.0) == []
    view = reloads.view("r")
    assert view["waiting"] == []
    assert [(row["kind"], row["node"], row["changed"]) for row in view["nodes"]] == [
        ("master", "m1", CHANGED.changed),
        ("master", "m2", []),
        ("worker", "w", CHANGED.changed),
    ]


def test_the_processes_of_a_node_have_one_row() -> None:
    """Each of them must answer, and all bring the report of their supervisor."""
    reloads = Reloads()
    reloads.begin("r", [], ["w-1", "w-2"], 0.0)
    reloads.answered("r", WORKER, "w-1", "w", CHANGED)
    assert reloads.view("r")["waiting"] == ["w-2"]
    reloads.answered("r", WORKER, "w-2", "w", CHANGED)
    assert [row["node"] for row in reloads.view("r")["nodes"]] == ["w"]


def test_a_master_and_a_worker_may_have_one_name() -> None:
    """Both are named after their host by default."""
    reloads = Reloads()
    reloads.begin("r", ["host"], ["host"], 0.0)
    reloads.answered("r", WORKER, "host", "host", CHANGED)
    assert reloads.view("r")["waiting"] == ["host"]
    reloads.answered("r", MASTER, "host", "host", ReloadReport())
    assert [row["kind"] for row in reloads.view("r")["nodes"]] == ["master", "worker"]


def test_a_silent_node_is_named() -> None:
    """After a while nobody waits for it any more."""
    reloads = Reloads()
    reloads.begin("r", ["m1"], [], 0.0)
    assert reloads.due(PATIENCE_S + 0.1) == []
    (row,) = reloads.view("r")["nodes"]
    assert row["error"] == "no answer within 10 s"
    reloads.answered("r", MASTER, "m1", "m1", CHANGED)
    assert reloads.view("r")["nodes"] == [row], "too late"


def test_a_second_request_joins_the_first() -> None:
    """With one id there is one reload; old ones are forgotten, and unknown ones are said to be."""
    reloads = Reloads()
    reloads.begin("r", ["m1"], [], 0.0)
    reloads.answered("r", MASTER, "m1", "m1", CHANGED)
    reloads.begin("r", ["m1"], [], 5.0)
    assert reloads.view("r")["waiting"] == []
    for number in range(MOST_KEPT):
        reloads.begin(str(number), ["m1"], [], 6.0)
    reloads.check()
    assert reloads.view("r") == {"began": False, "waiting": [], "nodes": []}
    reloads.answered("r", MASTER, "m1", "m1", CHANGED)


def test_an_answer_of_a_process_that_was_not_asked_does_not_count() -> None:
    """Workers choose what they send."""
    reloads = Reloads()
    reloads.begin("r", ["m1"], ["w1"], 0.0)
    reloads.answered("r", WORKER, "w9", "m1", CHANGED)
    assert reloads.view("r")["nodes"] == []


def test_a_name_means_a_node_with_all_its_processes() -> None:
    """`--node w` is w, or w-1, w-2 and so on; not a node whose name begins alike."""
    assert belongs_to("w", "w")
    assert belongs_to("w-12", "w")
    assert not belongs_to("w-x", "w")
    assert not belongs_to("ww-1", "w")
