"""What processes say of themselves: workers in heartbeats, followers in VITALS; who shows it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from console.columns.work import node_rows
from console.plain_page import page_text
from console.state import ConsolePage, Drill, GoTo, MoveTo, Place, SnapshotCame, View
from console.view import reduce
from tests.console.samples import heard, snapshot
from tests.unit.cli.test_cli_wiring import World, world
from tests.unit.machine_tools import LeaderStory, header, heartbeat
from tests.unit.master.test_follower import Story, led
from zcrawl.cli.main import run
from zcrawl.master import events as m
from zcrawl.master.snapshot import published
from zcrawl.mesh import codec
from zcrawl.mesh.messages import ClientRequest, Message, MessageKind, Snapshot
from zcrawl.model.snapshot import PublishedSnapshot, WorkerView
from zcrawl.model.vitals import Vitals, WorkerVitals

__all__ = ["world"]  # a fixture

MASTERS = (m.NodeEntry("m1", True), m.NodeEntry("m2", True), m.NodeEntry("m3", True))


def vitals_of(view: list[dict[str, Any]]) -> dict[str, Any]:
    """Memory, lag and age of each master, as far as known."""
    names = ("rss_bytes", "lag_ms", "heard_s_ago")
    return {master["id"]: tuple(master.get(name) for name in names) for master in view}


def leading() -> LeaderStory:
    story = LeaderStory().elect()
    story.handle(m.CatalogueSeen(masters=MASTERS))
    return story


def masters(story: LeaderStory) -> dict[str, Any]:
    reply = story.ask("nodes")
    assert reply is not None
    assert reply.ok
    return vitals_of(reply.data["masters"])


def test_a_follower_tells_the_other_masters_what_it_takes() -> None:
    """Each time that it has measured itself; a leader has its snapshot for that."""
    assert led().handle(m.Measured(61_000_000, 2.5)) == [m.Publish(Vitals(61_000_000, 2.5))]
    assert leading().master.handle(m.Measured(61_000_000, 2.5), 101.0, 101.0) == []


def test_the_leader_shows_its_own_and_those_of_followers_with_their_age() -> None:
    """A master that has told nothing has no figures, not zeros."""
    story = leading()
    story.handle(m.Measured(50_000_000, 1.0))
    story.hear(Vitals(61_000_000, 2.5), "m2", epoch=0)
    story.now += 4.0
    vitals = masters(story)
    assert vitals["m2"][:2] == (61_000_000, 2.5)
    assert vitals["m2"][2] == pytest.approx(4.0, abs=0.1)
    assert vitals["m1"][:2] == (50_000_000, 1.0)
    assert vitals["m3"] == (None, None, None)
    shown = msgspec.to_builtins(list(story.leader.current_snapshot(story.now).masters))
    assert vitals_of(shown)["m2"][:2] == (61_000_000, 2.5)


def test_who_is_not_registered_is_not_kept() -> None:
    """Nobody fills the memory with names; who leaves is forgotten, and begins anew."""
    story = leading()
    for n in range(100):
        story.hear(Vitals(1, 1.0), f"x{n}", epoch=0)
    story.hear(Vitals(2, 1.0), "m2", epoch=0)
    assert masters(story).keys() == {"m1", "m2", "m3"}
    assert list(story.master.catalogue._vitals) == ["m2"]
    story.handle(m.CatalogueSeen(masters=MASTERS[:1]))
    story.handle(m.CatalogueSeen(masters=MASTERS))
    assert masters(story)["m2"] == (None, None, None)


def test_a_follower_knows_the_others_when_nobody_leads() -> None:
    """`nodes` answers from what it has heard itself, its own included."""
    story = Story()
    story.handle(m.CatalogueSeen(masters=MASTERS))
    story.handle(m.Measured(61_000_000, 2.5))
    story.hear(Vitals(62_000_000, 3.0), "m3", epoch=0)
    story.ask(ClientRequest("q1", "nodes", {}))
    (answer,) = story.effects
    assert isinstance(answer, m.ReplyTo)
    vitals = vitals_of(answer.reply.data["masters"])
    assert (vitals["m2"][0], vitals["m3"][0], vitals["m1"][0]) == (61_000_000, 62_000_000, None)


@pytest.mark.parametrize("bad", [[-1, 1.0], [1, -1.0], ["x", 1.0], [1, 1e12], [1]])
def test_vitals_that_make_no_sense_are_no_message(bad: list[Any]) -> None:
    """The union is closed and its values are bounded."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bad, Vitals)


def test_a_follower_has_memory_lag_and_last_word_on_the_screen() -> None:
    """On Nodes and on its own page, as they are now."""
    vitals = {"rss_bytes": 61_000_000, "lag_ms": 250.0, "heard_s_ago": 0.4}
    shot = snapshot(0, masters=[{"id": "m1"}, {"id": "m2", "healthy": True, **vitals}])
    view = reduce(heard(shot), GoTo(Place(ConsolePage.NODES)))
    (line,) = (row for row in page_text(view, 120).splitlines() if " m2 " in row)
    assert "61.0 MB" in line
    assert "250" in line
    assert "0.4" in line
    inside = reduce(reduce(view, MoveTo(1)), Drill())
    assert inside.place.ref == "m2"
    later = snapshot(1, masters=[{"id": "m1"}, {"id": "m2", **vitals, "rss_bytes": 99_000_000}])
    text = page_text(heard(later, view=inside), 80)
    assert "99.0 MB" in text
    assert "250 ms" in text
    assert "follower" in text


def test_nodes_prints_memory_and_lag_of_masters_and_workers(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master of an older version, or one that was not heard, has empty fields."""
    world.live = True
    plain_ask = world.ask
    row = {"role": "follower", "healthy": True, "control": "tcp://a:1", "pid": 7}
    row |= {"hostname": "here", "detail": ""}

    async def ask(op: str, args: dict[str, Any]) -> dict[str, Any]:
        vitals = {"rss_bytes": 61_000_000, "lag_ms": 12.4, "heard_s_ago": 0.1}
        both = [{"id": "m2", **row, **vitals}, {"id": "m3", **row}]
        return {**await plain_ask(op, args), "masters": both}

    world.ask = ask  # type: ignore[method-assign]
    world.install(monkeypatch)
    assert run(["nodes"]) == 0
    out = capsys.readouterr().out
    assert "61.0 MB" in out
    assert "12 ms" in out
    assert "47.0 MB" in out


def test_nodes_says_what_is_wrong_with_a_worker_that_does_not_hear(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks alive: its heartbeats come."""
    world.live = True
    plain_ask = world.ask

    async def ask(op: str, args: dict[str, Any]) -> dict[str, Any]:
        reply = await plain_ask(op, args)
        deaf = [{**row, "state": "suspect", "deaf": True} for row in reply["workers"]]
        return {**reply, "workers": deaf}

    monkeypatch.setattr(world, "ask", ask)
    world.install(monkeypatch)
    assert run(["nodes"]) == 0
    assert "w1 is heard, but does not hear the leader" in capsys.readouterr().err


# Every field has a value of its own, so that one that is lost or mixed up on the way is noticed.
EACH = {name: n for n, name in enumerate(WorkerVitals.__struct_fields__, start=11)}


def test_each_field_of_a_heartbeat_comes_to_nodes_to_snapshots_and_to_the_console() -> None:
    """It is declared once, in `WorkerVitals`; nobody on the way lists the fields again."""
    story = LeaderStory().elect()
    story.join()
    story.hear(heartbeat(story.now, **EACH))
    reply = story.ask("nodes")
    assert reply is not None
    assert EACH.items() <= reply.data["workers"][0].items()
    shot = published(story.leader.current_snapshot(story.now))
    frames = codec.encode(header(MessageKind.SNAPSHOT, "m1"), Snapshot(shot))
    message = codec.decode(frames)
    assert isinstance(message, Message)
    assert isinstance(message.body, Snapshot)
    view = reduce(View(), SnapshotCame(message.body.data, 0.0))
    (row,) = (row for row in node_rows(view) if row["kind"] == "worker")
    assert row["id"] == "w1"
    assert EACH.items() <= row.items()


def test_vitals_of_a_newer_or_an_older_worker_are_read() -> None:
    """New fields go to the end: what is not known is ignored, what is missing has its default."""
    whole = WorkerVitals(**EACH)
    wire = msgspec.to_builtins(whole)
    assert msgspec.convert([*wire, "of a newer version"], WorkerVitals) == whole
    assert msgspec.convert(wire[:2], WorkerVitals) == WorkerVitals(slots=11, rate=12)


def test_a_snapshot_of_a_newer_or_an_older_leader_is_read() -> None:
    """The same by name: a console need not be of the version of its masters."""
    plain = {"leader": "m1", "epoch": 3, "workers": [{"id": "w1", "mood": "good"}], "new": [1]}
    read = msgspec.convert(plain, PublishedSnapshot)
    assert read == PublishedSnapshot("m1", 3, workers=(WorkerView(id="w1"),))
