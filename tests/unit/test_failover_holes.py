"""Failovers that leave something behind: answers of an earlier epoch, a database that forgot."""

from __future__ import annotations

from tests.unit.machine_tools import NO_PACE, LeaderStory, spec, urls
from zcrawl.master import events as m
from zcrawl.store.queries import Refill


def test_a_refill_of_an_earlier_epoch_of_this_process_counts_no_more() -> None:
    """What was read before another master led knows nothing of the rows that one admitted."""
    story = LeaderStory().elect()
    run = story.submit(*urls(2), of=spec(NO_PACE), seeding=True)["run"]
    story.handle(m.Deposed("for a while"))
    story.hold = lambda what: isinstance(what, Refill)
    story.elect()  # its window is empty: it asks for a refill
    [old] = [one for one in story.held if isinstance(one, m.Ask)]
    answer = story.store.query(old.query)
    story.handle(m.Deposed("again"))
    other = LeaderStory(story.store, "m2").elect()
    added = other.ask("add_seeds", "more", run=run, seeds=["http://a.test/9"], last=True)
    assert added is not None and added.ok
    story.held.clear()
    story.elect()
    story.handle(m.QueryDone(old.query, old.tag, answer))
    story.release()
    story.join()
    story.wait(2, each=story.beat)
    assert {one.url for one in story.assigned()} == {*urls(2), "http://a.test/9"}
