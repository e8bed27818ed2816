"""What consoles ask for: pages of the leader's memory, and why a host is not being fetched."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.desk_tools import FAILED, SLOW, answer, leading
from tests.unit.machine_tools import LeaderStory, result_of, spec, urls
from zcrawl.dispatch.limits import NAMES
from zcrawl.errors import RetryClass
from zcrawl.master.desk.arguments import Arguments
from zcrawl.master.snapshot import published
from zcrawl.mesh.messages import Event, Reply
from zcrawl.model.host import Manner
from zcrawl.model.reasons.cluster import BAD_REQUEST
from zcrawl.model.snapshot import ClusterSnapshot, LiveRunView, WorkerView
from zcrawl.model.spec import Politeness, Scope

LOST = "w1 is lost: no sign of life"


def hosts(number: int) -> list[str]:
    return [f"http://h{n:02}.test/" for n in range(number)]


def test_many_hosts_are_filtered_sorted_and_cut_at_the_leader() -> None:
    """A console gets the rows that it shows, and how many there are."""
    story = LeaderStory().elect()
    story.submit(*hosts(30), "http://h07.test/more")
    page = answer(story, "hosts", sort="queued", desc=True, limit=3)
    assert page["total"] == 30
    assert len(page["rows"]) == 3
    assert (page["rows"][0]["host"], page["rows"][0]["queued"]) == ("http://h07.test", 2)
    page = answer(story, "hosts", sort="host", filter="H1", offset=8, limit=9)
    assert [row["host"] for row in page["rows"]] == ["http://h18.test", "http://h19.test"]
    page = answer(story, "hosts", filter="h1", inverse=True, limit=1)
    assert page["total"] == 20


@pytest.mark.parametrize(
    "args",
    [
        {"sort": "nonsense"},
        {"limit": 0},
        {"limit": 100_000},
        {"offset": -1},
        {"filter": 5},
        {"limit": "x"},
    ],
)
def test_a_bad_page_is_refused_by_name(args: dict[str, Any]) -> None:
    """G7: a console of another version may ask for anything."""
    reply = leading(*urls(1)).ask("hosts", **args)
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, "bad_request")


def last_reply(op: str, args: dict[str, Any]) -> Reply:
    """The only reply to a request, when a node that nobody knows has had its time to come."""
    story = leading(*urls(1))
    before = len(story.replies)
    story.ask(op, **args)
    story.wait(3.25)
    assert len(story.replies) == before + 1
    story.master.check(story.now)
    return story.replies[-1]


@pytest.mark.parametrize(
    ("op", "args", "complaint"),
    [
        ("lanes", {"run": "x"}, "lanes: run must be a whole number"),
        ("lanes", {}, "lanes: 'run' is missing"),
        ("depths", {"run": "x"}, "depths: run must be a whole number"),
        ("depths", {}, "depths: 'run' is missing"),
        ("node", {}, "node: 'node' is missing"),
        ("history", {"span_s": "long"}, "history: span_s must be a number"),
        ("history", {"span_s": -1}, "span_s is 10 to 86,400"),
        ("history", {"span_s": 0}, "span_s is 10 to 86,400"),
        ("history", {"run": "x"}, "history: run must be a whole number"),
        ("in_flight", {"limit": None}, "Expected `int`, got `null` - at `$.limit`"),
        ("errors", {"limit": None}, "Expected `int`, got `null` - at `$.limit`"),
    ],
)
def test_bad_arguments_of_any_view_are_refused(
    op: str, args: dict[str, Any], complaint: str
) -> None:
    """By name, and never with an exception that would cost the leader its epoch."""
    reply = last_reply(op, args)
    assert (reply.ok, reply.data["code"]) == (False, "bad_request")
    assert complaint in reply.data["message"]


def test_a_node_that_nobody_knows_is_refused_by_its_name() -> None:
    """Also one that is not a text; the reply lists those that are there."""
    reply = last_reply("node", {"node": 5})
    assert (reply.ok, reply.data["code"]) == (False, "no_such_node")
    assert reply.data["message"] == "no worker '5'; known: w1"


@pytest.mark.parametrize("op", ["in_flight", "errors"])
@pytest.mark.parametrize("args", [{"node": 5}, {"unknown": "x"}, {"run": "x"}])
def test_arguments_that_a_view_does_not_have_and_runs_that_are_not_there_are_no_error(
    op: str, args: dict[str, Any]
) -> None:
    """A console of a newer version may send more; of a run that is not there nothing is shown."""
    reply = last_reply(op, args)
    assert reply.ok
    if "run" in args:
        assert reply.data["rows"] == []


@pytest.mark.parametrize("op", ["overview", "hosts", "jobs", "drain", "act", "submit"])
def test_arguments_that_nest_deep_cost_no_leader_its_epoch(op: str) -> None:
    """What encodes, sorts or shows them may raise RecursionError: that is the client's mistake."""
    story = leading(*urls(1))
    nested: Any = []
    for _ in range(20_000):
        nested = [nested]
    names = ("run", "node", "ref", "spec", "action", "mode")
    story.ask(op, **dict.fromkeys(names, nested))
    assert story.master.leader is not None
    story.master.check(story.now)


def test_one_answer_serves_all_who_ask_the_same_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cost is that of the cluster's size, not of the number of consoles."""
    story = leading(*hosts(3))
    views = story.leader.desk._views
    calls = 0
    real = views.hosts

    def counted(args: Arguments, now: float) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        return real(args, now)

    monkeypatch.setattr(views, "hosts", counted)
    for _ in range(10):
        story.ask("hosts", limit=2)
    assert calls == 1
    story.tick(1.1)
    story.ask("hosts", limit=2)
    assert calls == 2


def why(story: LeaderStory, host: str = "http://a.test") -> str:
    story.tick(1.5)  # what was answered before is forgotten
    story.beat()
    (row,) = (host_row for host_row in answer(story, "hosts")["rows"] if host_row["host"] == host)
    assert row["reason"]
    code: str = row["why"]
    return code


def test_a_host_says_why_it_is_not_fetched() -> None:
    """G8: each reason of the planner has its words."""
    story = LeaderStory().elect()
    story.submit(*urls(9), of=spec(SLOW))
    assert why(story) == "no_worker"
    story.join()
    story.wait(1.0, story.beat)
    assert why(story) == "pace"
    story.ask("act", ref="1", action="pause")
    assert why(story) == "paused"


def test_a_host_at_its_limit_says_so() -> None:
    """Four at a time, and all four are on their way."""
    story = leading(*urls(40), politeness=Politeness(robots=False, rate=0, concurrency=4))
    story.beat(slots=100)
    story.wait(1.0, lambda: story.beat(slots=100))
    assert why(story) in ("concurrency", "worker_full")


def test_a_host_whose_job_has_all_its_pages_in_flight_says_so() -> None:
    """Of nine URLs two may be fetched, and both are on their way: nothing more is due."""
    story = LeaderStory().elect()
    story.submit(*urls(9), of=spec(scope=Scope(max_pages=2)))
    story.join()
    story.wait(1.0, story.beat)
    assert len(story.assigned()) == 2
    assert why(story) == "pages_in_flight"


def test_a_host_in_the_line_of_a_shared_limit_says_so() -> None:
    """All URLs that the limit of its domain allows are with its worker."""
    limit = Politeness(robots=False, rate=0, concurrency=4, domain_rate=0.01)
    story = leading(*urls(40), politeness=limit)
    story.wait(1.0, story.beat)
    assert why(story) == "shared"


def test_a_host_whose_last_request_waits_for_a_retry_says_until_when() -> None:
    """Nothing happens, and the screen tells why."""
    story = leading(*urls(1))
    (assignment,) = story.assigned()
    story.report(result_of(assignment, retry=RetryClass.THROTTLED, retry_after_s=60.0, **FAILED))
    assert why(story) == "retry"
    (limit,) = answer(story, "overview")["limits"]
    assert (limit["code"], limit["hosts"], limit["queued"]) == ("retry", 1, 1)


@pytest.mark.parametrize(
    ("manner", "code"),
    [
        (Manner(failures=5, opens=1), "away"),
        (Manner(slow_s=30.0), "throttled"),
        (Manner(failures=9, opens=9), "ending"),
    ],
)
def test_a_host_that_behaves_badly_says_so(manner: Manner, code: str) -> None:
    """Its breaker is open, it asks for patience, or it is down."""
    story = leading(*urls(30), politeness=SLOW)
    host = next(iter(story.leader.state.planner.hosts))
    story.leader.state.planner.learn_pace(host, story.now + 60.0, 0.0, manner)
    row = answer(story, "hosts")["rows"][0]
    assert (row["why"], bool(row["reason"])) == (code, True)


def test_one_host_and_several_that_are_down_are_called_by_the_same_words() -> None:
    """By these words the console finds the jobs that wait for such a host."""
    story = leading(*urls(30), politeness=SLOW)
    host = next(iter(story.leader.state.planner.hosts))
    manner = Manner(failures=5, opens=1)
    story.leader.state.planner.learn_pace(host, story.now + 60.0, 0.0, manner)
    reason = answer(story, "hosts")["rows"][0]["reason"]
    assert reason.partition(",")[0] == NAMES["away"]


def test_failures_are_grouped_by_run_host_and_reason() -> None:
    """With the newest URL, so that one can try it by hand."""
    story = leading(*urls(3))
    for assignment in story.assigned():
        story.report(result_of(assignment, retry=RetryClass.PERMANENT, status=404, **FAILED))
    (group,) = answer(story, "errors")["rows"]
    assert (group["count"], group["reason"], group["host"]) == (3, "dns", "http://a.test")
    assert group["url"].startswith("http://a.test/")
    assert group["name"] == "job"
    assert answer(story, "errors", filter="tls")["total"] == 0


def test_what_happens_is_told_to_all_and_kept_for_those_who_come_later() -> None:
    """A worker joins, is lost, a run ends: EVENTs, and pages of them."""
    story = leading(*urls(1))
    story.report(result_of(story.assigned()[0]))
    story.wait(12.0)
    names = [body.name for body in story.published if isinstance(body, Event)]
    assert {"worker_joined", "run_ended", "worker_lost"} <= set(names)
    kept = answer(story, "events", sort="n", desc=True, limit=50)["rows"]
    assert {"leader", "worker_joined", "run_ended", "worker_lost"} <= {
        event["name"] for event in kept
    }
    (lost,) = (event for event in kept if event["name"] == "worker_lost")
    assert (lost["level"], lost["text"], lost["source"]) == ("warning", LOST, "m1")


def test_a_storm_of_one_kind_is_told_in_a_few_events() -> None:
    """The rest is counted: a console must not drown, nor the leader."""
    story = leading(*urls(1))
    story.published.clear()
    for _ in range(100):
        story.ask("nonsense")
    events = [event for event in story.published if isinstance(event, Event)]
    assert 5 <= len([event for event in events if event.name == "request_refused"]) <= 25
    story.wait(2.0, story.beat)
    kept = answer(story, "events", filter="more request_refused")["rows"]
    assert kept


def test_queues_count_what_is_ready_delayed_and_in_the_database() -> None:
    """By run, and by host within a run."""
    story = leading(*urls(9), "http://b.test/1")
    (row,) = answer(story, "queues")["rows"]
    assert row["queued"] + row["fetching"] + row["waiting"] == 10
    assert row["hosts"] >= 1
    lanes = answer(story, "lanes", run=1)["rows"]
    assert sum(lane["queued"] for lane in lanes) == row["queued"]


def test_a_queue_tells_which_kinds_of_pages_wait_in_it() -> None:
    """By the extraction block that reads them, the most first; pages without one have no kind."""
    story = LeaderStory().elect()
    story.submit(*urls(6))
    assert story.master.leader is not None
    (lane,) = story.master.leader.state.frontier.lanes.values()
    for row, block in zip(list(lane.ready.values()), ["list", "book", "book", ""], strict=False):
        lane.ready[row.seq] = msgspec.structs.replace(row, block=block)
    (seen,) = answer(story, "lanes", run=1)["rows"]
    assert list(seen["kinds"].items()) == [("book", 2), ("list", 1)]


def test_requests_in_flight_can_be_seen_by_worker() -> None:
    """With how long they are out."""
    story = leading(*urls(3))
    story.tick(2.0)
    rows = answer(story, "in_flight", worker="w1")["rows"]
    assert len(rows) == 3
    assert all(row["since_s"] >= 2.0 for row in rows)
    assert answer(story, "in_flight", worker="w2")["rows"] == []


def test_items_can_be_read_by_any_master() -> None:
    """Newest first; a follower reads them from the database too."""
    story = leading(*urls(3))
    for assignment in story.assigned():
        story.report(result_of(assignment))
    assert len(answer(story, "items", run=1, limit=2)["rows"]) == 2
    assert answer(story, "items", text="nowhere")["rows"] == []


def test_items_of_a_run_can_be_read_in_order() -> None:
    """`after` gives the oldest first, page by page, and each item once."""
    story = leading(*urls(3))
    for assignment in story.assigned():
        story.report(result_of(assignment))
    first = answer(story, "items", run=1, after=0, limit=2)
    second = answer(story, "items", run=1, after=first["last"], limit=2)
    assert (first["more"], second["more"]) == (True, False)
    ids = [row["id"] for row in [*first["rows"], *second["rows"]]]
    newest_first = answer(story, "items", run=1)["rows"]
    assert ids == sorted(row["id"] for row in newest_first)
    assert answer(story, "items", run=1, after=second["last"])["rows"] == []


def test_items_in_order_are_those_of_one_run() -> None:
    """Without a run, or with a text to search for, `after` is refused."""
    story = leading(*urls(1))
    for args in ({"after": 0}, {"run": 1, "after": 0, "text": "x"}):
        reply = story.ask("items", **args)
        assert reply is not None
        assert (reply.ok, reply.data["code"]) == (False, BAD_REQUEST)


def test_the_published_snapshot_is_bounded_and_says_how_many_there_are() -> None:
    """Its cost does not grow with the cluster without end."""
    tallies = {str(n): {"200": 1} for n in range(700)}
    whole = ClusterSnapshot(
        leader="m1",
        epoch=3,
        workers=(WorkerView(id="w1"),) * 1_500,
        runs=tuple(LiveRunView(1, n) for n in range(700)),
        statuses=tallies,
        failed=tallies,
    )
    small = published(whole)
    assert (len(small.workers), small.workers_total) == (1_000, 1_500)
    assert (len(small.runs), small.runs_total, len(small.statuses)) == (500, 700, 500)
    assert small.epoch == 3


def test_a_snapshot_looks_at_each_worker_once_however_many_runs_there_are() -> None:
    """Five hundred workers and two hundred runs took 70 ms of each second of the leader."""
    story = LeaderStory().elect()
    for n in range(30):
        story.submit(f"http://h{n}.test/", of=msgspec.structs.replace(spec(), name=f"job{n}"))
    story.join()
    looks = 0
    info = story.leader.state.roster.workers["w1"]

    class Lacks(dict[int, str]):
        def __iter__(self) -> Any:
            nonlocal looks
            looks += 1
            return super().__iter__()

    info.lacks = Lacks({2: "a spider"})
    runs = story.leader.current_snapshot(story.now).runs
    reasons = {run.run: run.reason for run in runs}
    assert looks == 1
    assert reasons[2] == "waiting: no live worker has a spider yet"
    assert reasons[3] == ""


def test_the_owner_of_a_host_is_the_worker_that_has_it_or_would_get_it() -> None:
    """`held` tells the two apart; http and https of a name are one resource."""
    story = leading("http://a.test/1")
    held = answer(story, "owner", resource="a.test")
    assert (held["owner"], held["held"]) == ("w1", True)
    assert answer(story, "owner", resource="http://A.test/other")["owner"] == "w1"
    free = answer(story, "owner", resource="elsewhere.test")
    assert (free["owner"], free["held"], free["nodes"]) == ("w1", False, ["w1"])


def test_a_resource_that_is_not_valid_has_no_owner() -> None:
    """G7: refused by its name."""
    reply = leading(*urls(1)).ask("owner", resource="http://")
    assert reply is not None
    assert not reply.ok
