"""The command line and the actions: what is typed, what is sent, what may not be done."""

from __future__ import annotations

import pytest

from console.actions import ACTIONS, BY_NAME, offered, plan, read_limits, result_text, typed_values
from console.commands import AppCommand, Do, Mistake, completions, parse
from console.state import ConsolePage, GoTo, Place, SetFilter, View
from console.view import reduce
from tests.console.samples import at, heard, run, snapshot
from zcrawl.master.desk.rights import READS

VIEW = heard(snapshot(0, runs=[run(1, "docs"), run(2, "my shop"), run(3, "docs", job=1)]))


@pytest.mark.parametrize(
    ("typed", "page", "ref"),
    [
        ("nodes", ConsolePage.NODES, ""),
        ("queues", ConsolePage.QUEUES, ""),
        ("queues by job", ConsolePage.QUEUES, ""),
        ("queues by tag", ConsolePage.TAG_QUEUES, ""),
        ("queues by host", ConsolePage.HOST_QUEUES, ""),
        ("queues shop", ConsolePage.QUEUES, "shop"),
        ("queues '(no tag)'", ConsolePage.QUEUES, "(no tag)"),
        ("char", ConsolePage.CHARTS, ""),
        ("job docs", ConsolePage.JOB, "3"),
        ("job 2", ConsolePage.JOB, "2"),
        ("job 'my shop'", ConsolePage.JOB, "2"),
        ("job 77", ConsolePage.JOB, "77"),
        ("node w1", ConsolePage.NODE, "w1"),
        ("items 2", ConsolePage.ITEMS, "2"),
        ("host example.com", ConsolePage.HOSTS, ""),
    ],
)
def test_a_command_goes_to_a_page(typed: str, page: ConsolePage, ref: str) -> None:
    """By name, by number, by a beginning; of a job its newest run."""
    parsed = parse(typed, VIEW)
    assert isinstance(parsed, GoTo), parsed
    assert (parsed.place.page, parsed.place.ref) == (page, ref)


def test_a_host_is_found_by_its_name() -> None:
    """The list of hosts, filtered at the leader."""
    parsed = parse("host example.com", VIEW)
    assert isinstance(parsed, GoTo)
    assert reduce(VIEW, parsed).table.filter == "example.com"


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("pause docs", "zcrawl pause 1 --run 3"),
        ("resume 2", "zcrawl resume 2 --run 2"),
        ("cancel 'my shop'", "zcrawl cancel 2 --run 2"),
        ("delete 99", "zcrawl delete 99"),
        ("delete docs", "zcrawl delete 1"),
        ("cancel docs run=1", "zcrawl cancel 1 --run 1"),
        ("delete docs --run 1", "zcrawl delete 1 --run 1"),
        ("tune docs rate=5 run=1", "zcrawl tune 1 --run 1 --rate 5"),
        ("retry docs", "zcrawl retry 1 --run 3"),
        ("drain w1", "zcrawl drain w1"),
        ("undrain w1", "zcrawl undrain w1"),
        ("tune docs rate=5 concurrency=2", "zcrawl tune 1 --run 3 --rate 5 --concurrency 2"),
        ("tune docs 5 2", "zcrawl tune 1 --run 3 --rate 5 --concurrency 2"),
        ("reassign https://x.test w2", "zcrawl reassign https://x.test w2"),
        ("stepdown", "zcrawl step-down"),
    ],
)
def test_a_command_acts_and_knows_the_command_line_that_does_the_same(
    typed: str, command: str
) -> None:
    """lazydocker#627: what the console does can be put into a script."""
    parsed = parse(typed, VIEW)
    assert isinstance(parsed, Do), parsed
    (request,) = plan(parsed.action, parsed.rows, typed_values(parsed.action, parsed.typed))
    assert request.command == command
    assert request.op not in READS


@pytest.mark.parametrize(
    "typed",
    [
        *("", "nonsense", "job", "pause", "tune docs", "reassign https://x", "pause 'open"),
        *("cancel docs run=x", "cancel docs 3", "tune docs run=1"),
    ],
)
def test_a_mistake_is_told(typed: str) -> None:
    """And nothing is sent."""
    parsed = parse(typed, VIEW)
    assert isinstance(parsed, Mistake) and parsed.text


def test_some_commands_are_the_apps_own() -> None:
    """Theme, submit, cluster, help, quit, filter."""
    assert parse("theme nord", VIEW) == AppCommand("theme", "nord")
    assert parse("q", VIEW) == AppCommand("quit")
    assert parse("filter a b", VIEW) == SetFilter("a b")


def test_commands_complete_from_what_is_known() -> None:
    """Words first, then jobs, workers, hosts."""
    assert completions("pa", VIEW) == ["pause"]
    assert completions("pause d", VIEW) == ["pause docs"]
    assert completions("job m", VIEW) == ["job 'my shop'"]
    assert completions("drain ", VIEW) == ["drain w1", "drain w2"]
    assert completions("host https://h1", at(Place(ConsolePage.HOSTS)))[0] == "host https://h1.test"
    assert completions("xyz ", VIEW) == []


@pytest.mark.parametrize("page", list(ConsolePage))
def test_a_read_only_console_offers_nothing(page: ConsolePage) -> None:
    """k9s#857: it holds everywhere."""
    assert offered(View(place=Place(page), readonly=True)) == []


def test_every_action_is_offered_somewhere_and_its_keys_do_not_clash() -> None:
    """One key, one action, on each page."""
    seen: set[str] = set()
    for page in ConsolePage:
        actions = offered(View(place=Place(page)))
        keys = [action.key for action in actions]
        assert len(keys) == len(set(keys)), page
        assert not set(keys) & set("qpnsyjk"), "these keys are taken"
        seen.update(action.name for action in actions)
    assert seen == set(BY_NAME) and len(ACTIONS) == len(BY_NAME)


def test_what_cannot_be_undone_is_destructive() -> None:
    """Enter does not do it: the default answer is no. Every action asks."""
    destructive = {action.name for action in ACTIONS if action.destructive}
    assert destructive == {"cancel", "delete", "drain", "step_down", "retry_all"}


def test_an_action_leaves_out_rows_that_it_does_not_fit() -> None:
    """A run that has ended cannot be paused; a master cannot be drained."""
    rows = [run(1), run(2, state="completed"), run(1)]
    assert [request.args["ref"] for request in plan(BY_NAME["pause"], rows)] == ["1"]
    assert plan(BY_NAME["drain"], [{"id": "m1", "kind": "master"}]) == []


@pytest.mark.parametrize("typed", ["fast", "rate=x", "speed=3", "rate=1 concurrency=1.5", ""])
def test_a_mistyped_rate_limit_is_told(typed: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match=r"\w"):
        read_limits(typed_values(BY_NAME["tune"], typed))


def test_a_reply_is_told_in_a_few_words() -> None:
    """What changed, or that nothing did."""
    (pause,) = plan(BY_NAME["pause"], [run(1)])
    (retry,) = plan(BY_NAME["retry"], [run(1)])
    reply = {"job": 1, "run": 1, "state": "paused", "changed": 0}
    assert result_text(pause, reply) == "run 1: paused, no change"
    assert result_text(retry, {**reply, "changed": 7}) == "run 1: paused, 7 to retry"
    assert result_text(retry, reply) == "run 1: paused, nothing to retry"


def test_a_group_of_errors_is_retried_by_reason_and_host() -> None:
    """Only what is marked."""
    row = {"job": 3, "run": 4, "reason": "it's; dns", "host_id": 7}
    (request,) = plan(BY_NAME["retry_group"], [row])
    args = {"ref": "3", "action": "retry", "reason": "it's; dns", "host": 7, "run": 4}
    assert request.args == args
    assert request.command == "zcrawl retry 3 --reason 'it'\"'\"'s; dns' --host 7 --run 4"


def test_a_row_is_acted_on_by_its_own_run() -> None:
    """Two runs of a job are two rows; the older one is not the newest."""
    rows = [run(3, "docs", job=1), run(1, "docs", job=1)]
    for name in ("pause", "resume", "cancel", "retry", "delete"):
        requests = plan(BY_NAME[name], rows)
        assert [request.args["run"] for request in requests] == [3, 1]
        assert requests[1].command == f"zcrawl {name} 1 --run 1"
