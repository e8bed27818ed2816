"""Keys are made by the rules of the run: by other rules a page is lost, or there twice."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.machine_tools import NO_PACE, LeaderStory, run_row, spec
from tests.unit.machine_tools import assignment as plain_assignment
from tests.unit.master.test_recall import EVERY, finish_all, settle
from zcrawl.dispatch.leases import Leases
from zcrawl.dispatch.runs import Runs
from zcrawl.frontier.extra import Extra, encode, request_key
from zcrawl.frontier.scope import canonical_rules
from zcrawl.frontier.seen import SeenTable
from zcrawl.frontier.url import CANONICAL_VERSION
from zcrawl.mesh.messages import Assignment, Result
from zcrawl.model.reasons.failure import BAD_RESULT
from zcrawl.model.reasons.skip import REDIRECTED
from zcrawl.model.spec import JobSpec, Scope
from zcrawl.result import plan
from zcrawl.result.plan import ResultPlanner
from zcrawl.result.receive import Received
from zcrawl.worker.pipeline.outgoing import Sending
from zcrawl.worker.results.attempt import Attempt

SCOPE = Scope(hosts=("*",), collapse_scheme=True, collapse_www=True)
RULES = canonical_rules(SCOPE, CANONICAL_VERSION)
HANDLER = Extra(handler="product")
POST = Extra(method="POST", body=b"q=1", handler="search")
PLAIN_PAGE, SECURE_PAGE = "http://x.test/a", "https://www.x.test/a"


def assignment(extra: Extra, url: str = PLAIN_PAGE) -> Assignment:
    return msgspec.structs.replace(plain_assignment(1, 1), url=url, extra=encode(extra))


def handed_over(request: Assignment, target: str, status: int = 301) -> Result:
    """What a redirect of a spider's request to another host is reported as."""
    attempt = Attempt(request).handed_over((target, bytes(16)))
    return Sending(request, {}, RULES, []).hand_over(attempt, status).result()


@pytest.mark.parametrize(("extra", "status"), [(HANDLER, 301), (POST, 307)])
def test_a_redirect_between_variants_that_collapse_gets_a_key_of_its_own(
    extra: Extra, status: int
) -> None:
    """Target and request have one key, and the request that ends has taken it."""
    request = assignment(extra)
    own = request_key(PLAIN_PAGE, extra, RULES)
    ((url, key, _, _),) = handed_over(request, SECURE_PAGE, status).requests
    assert (url, request_key(url, extra, RULES)) == (SECURE_PAGE, own), "they do collapse"
    assert key != own
    assert key == handed_over(request, SECURE_PAGE, status).requests[0][1], "each time the same"


def test_a_redirect_to_another_page_has_the_key_of_its_links() -> None:
    """A link to http://y.test/ and a redirect to https://www.y.test/ are one request."""
    ((_, key, _, _),) = handed_over(assignment(HANDLER), "https://www.y.test/b").requests
    assert key == RULES.key("http://y.test/b")


@pytest.mark.parametrize("target", [SECURE_PAGE, "https://www.y.test/b"])
def test_the_leader_checks_the_keys_of_redirects_by_the_same_rules(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A true result is not buried as bad_result, although every request is a sample."""
    monkeypatch.setattr(plan, "SAMPLE_EVERY", 1)
    runs = Runs()
    runs.put(run_row(1, spec(scope=SCOPE)))
    planner = ResultPlanner(Leases(), runs, SeenTable(64))
    planner._links_until_sample = 1
    body = handed_over(assignment(HANDLER), target)
    change = planner.plan(Received(("w1", 7), 1, 1, body, 0.0), 0.0, 0.0)
    assert change.reason == REDIRECTED
    assert [link.url for link in change.links] == [target]


def test_a_key_that_only_a_redirect_can_have_is_refused_for_other_requests() -> None:
    """Otherwise a worker could bring one page into a run twice."""
    runs = Runs()
    runs.put(run_row(1, spec(scope=SCOPE)))
    planner = ResultPlanner(Leases(), runs, SeenTable(64))
    planner._links_until_sample = 1
    request = assignment(HANDLER)
    lie = msgspec.structs.replace(handed_over(request, SECURE_PAGE), reason="other")
    change = planner.plan(Received(("w1", 7), 1, 1, lie, 0.0), 0.0, 0.0)
    assert change.reason == BAD_RESULT


def test_a_run_of_the_stored_spec_keys_its_seeds_by_that_spec() -> None:
    """`again` runs what is stored, whatever rules the submission that asks for it has."""
    story = LeaderStory().elect()
    story.submit(PLAIN_PAGE, of=JobSpec("job", politeness=NO_PACE, scope=SCOPE))
    story.ask("act", job="job", action="cancel")
    bare = JobSpec("job", politeness=NO_PACE)
    run = story.submit("http://www.x.test/a", of=bare, mode="again")["run"]
    (row,) = story.store.requests(run)
    assert row.key == RULES.key(PLAIN_PAGE)


def test_what_an_earlier_run_knew_under_other_rules_is_recalled_once() -> None:
    """A job whose rules changed: the pages of its earlier runs get the keys of the new one."""
    story = LeaderStory().elect()
    story.join()
    seeds = (PLAIN_PAGE, "https://x.test/a", "http://x.test/?b=1&a=2")
    before = JobSpec("job", politeness=NO_PACE, recrawl=EVERY, scope=Scope(hosts=("*",)))
    story.submit(*seeds, of=before)
    finish_all(story)
    after = Scope(hosts=("*",), collapse_scheme=True, sort_query=True)
    spec_after = msgspec.structs.replace(before, scope=after)
    run = story.submit(PLAIN_PAGE, of=spec_after, mode="update")["run"]
    settle(story)
    rows = {row.url: row.key for row in story.store.requests(run)}
    assert sorted(rows) == ["http://x.test/?a=2&b=1", PLAIN_PAGE]
    assert all(
        key == canonical_rules(after, CANONICAL_VERSION).key(url) for url, key in rows.items()
    )
