"""A leader that gives a new run what its job knows: in chunks, within its scope, once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine_tools import (
    NO_PACE,
    LeaderStory,
    held_leases,
    link,
    result_of,
    urls,
)
from zcrawl.errors import CommitUnknown
from zcrawl.master import recall
from zcrawl.master.events import Ask, CommandFailed
from zcrawl.mesh.messages import Traits
from zcrawl.model.spec import JobSpec, Recrawl, Scope
from zcrawl.store.commands import AdmitKnown, Sweep
from zcrawl.store.queries import ReadKnown, Refill
from zcrawl.store.rules import RECALLED

EVERY = Recrawl(True, 0.0, 0.0, 0.0)  # every run looks at every page
PAGES = urls(7)


def job(**changes: Any) -> JobSpec:
    return JobSpec("job", politeness=NO_PACE, recrawl=EVERY, **changes)


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> LeaderStory:
    """A leader whose job knows seven pages: the seed and six behind it. Chunks hold three."""
    monkeypatch.setattr(recall, "CHUNK", 3)
    story = LeaderStory().elect()
    story.join()
    story.submit(PAGES[0], of=job())
    finish_all(story, links=[link(url) for url in PAGES[1:]])
    assert [run.state for run in story.store.runs()] == ["completed"]
    return story


def finish_all(story: LeaderStory, **changes: Any) -> None:
    """Every page that is assigned is done, until nothing more comes."""
    settle(story)
    done = 0
    traits = Traits(content=b"same")
    while len(story.assigned()) > done:
        assignment = story.assigned()[done]
        done += 1
        run = next(run for run in story.store.runs() if run.id == assignment.run)
        if not run.state.ended and story.states(assignment.run)[assignment.url] == "QUEUED":
            story.report(result_of(assignment, traits=traits, **changes))
        settle(story)


def settle(story: LeaderStory) -> None:
    for _ in range(5):
        story.tick()


def again(story: LeaderStory, **changes: Any) -> int:
    run: int = story.submit(PAGES[0], **{"of": job(), "mode": "again", **changes})["run"]
    settle(story)
    return run


def test_a_new_run_has_all_that_the_job_knows(story: LeaderStory) -> None:
    """Seven pages in chunks of three; the seed is one of them, and each is there once."""
    run = again(story)
    assert sorted(row.url for row in story.store.requests(run)) == PAGES
    assert story.store.tables.runs[run].recall == RECALLED
    finish_all(story)
    assert set(story.states(run).values()) == {"DONE"}


def test_pages_that_left_the_scope_are_left_out(story: LeaderStory) -> None:
    """The job was given another scope: what it knows beyond it is not asked for."""
    narrow = job(scope=Scope(exclude=(r"/[3456]$",)))
    run = again(story, of=narrow, mode="update")
    assert sorted(row.url for row in story.store.requests(run)) == PAGES[:3]


def test_a_chunk_whose_commit_is_lost_or_unknown_is_there_once(story: LeaderStory) -> None:
    """The repeat finds the run elsewhere, and the leader asks the database what is true."""
    story.hold = lambda what: isinstance(what, AdmitKnown)
    run = again(story)
    (command,) = (call for call in story.held if isinstance(call, AdmitKnown))
    story.held.clear()
    story.store.execute(command)  # applied, and the answer is lost
    story.hold = lambda what: False
    story.handle(CommandFailed(command, CommitUnknown("no answer")))
    for _ in range(8):
        story.tick(0.3)
    assert sorted(row.url for row in story.store.requests(run)) == PAGES
    finish_all(story)
    assert set(story.states(run).values()) == {"DONE"}


def test_a_failed_read_is_tried_again(story: LeaderStory) -> None:
    """After a moment, and it is told."""
    story.store.query_faults = lambda query: isinstance(query, ReadKnown)
    run = again(story)
    assert len(story.store.requests(run)) == 1
    assert "recall_failed" in {note.name for note in story.notes}
    story.store.query_faults = None
    for _ in range(8):
        story.tick(0.3)
    assert len(story.store.requests(run)) == 7


def test_the_next_leader_goes_on_where_the_last_one_died(story: LeaderStory) -> None:
    """The cursor is stored with each chunk."""
    story.hold = lambda what: isinstance(what, AdmitKnown) and what.after > 0
    run = again(story)
    stood_at = story.store.tables.runs[run].recall
    assert stood_at not in (0, None, RECALLED)
    reads: list[int] = []
    other = LeaderStory(story.store, "m2", story.now + 60)

    def note(what: Any) -> bool:
        if isinstance(what, ReadKnown):
            reads.append(what.after)
        return False

    other.hold = note
    other.elect()
    for _ in range(6):
        other.tick(0.3)
    assert reads[0] == stood_at
    assert sorted(row.url for row in story.store.requests(run)) == PAGES


def test_a_lease_that_a_new_leader_adopts_keeps_what_is_known(story: LeaderStory) -> None:
    """Should it be given to another worker, that one asks with the same condition."""
    run = again(story)
    held = [
        assignment for assignment in story.assigned() if assignment.run == run and assignment.known
    ]
    assert held
    other = LeaderStory(story.store, "m2", story.now + 60)
    other.hold = lambda what: isinstance(what, Refill)  # it has no rows but those it is told of
    other.elect()
    other.join(held=held_leases(held, epoch=1, started=True))
    leases = other.leader.state.leases.by_seq
    assert {leases[assignment.seq].row.known for assignment in held} == {
        assignment.known for assignment in held
    }


def test_a_run_that_is_cancelled_meanwhile_gets_no_more(story: LeaderStory) -> None:
    """A chunk that was read for it is thrown away, and the next run is served."""
    story.hold = lambda what: isinstance(what, ReadKnown)
    run = again(story)
    (held,) = (call for call in story.held if isinstance(call, Ask))
    story.held.clear()
    story.hold = lambda what: False
    story.ask("act", ref="job", action="cancel")
    story.run(held)
    for _ in range(5):
        story.tick(0.3)
    assert len(story.store.requests(run)) == 1
    assert len(story.store.requests(again(story))) == 7


def test_what_an_earlier_run_left_queued_is_waited_for(story: LeaderStory) -> None:
    """It is remembered when it is swept, and so the new run is given it too."""
    run = again(story)
    story.hold = lambda what: isinstance(what, Sweep)
    finish_first = next(assignment for assignment in story.assigned() if assignment.run == run)
    more = [link("http://a.test/new")]
    story.report(result_of(finish_first, traits=Traits(content=b"other"), links=more))
    story.ask("act", ref="job", action="cancel")
    following = again(story)
    assert len(story.store.requests(following)) == 1
    story.release()
    for _ in range(8):
        story.tick(0.3)
    assert len(story.store.requests(following)) == 8
