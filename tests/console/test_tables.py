"""Tables: what is on the screen, what the cursor is on, and what an action is about."""

from __future__ import annotations

from typing import Any

import pytest

from console.columns.pages import TABLES
from console.plain_page import page_text
from console.questions import questions
from console.state import (
    Acted,
    Answered,
    Back,
    ConsolePage,
    Drill,
    GoTo,
    HappeningCame,
    Mark,
    MarkAll,
    Move,
    MoveTo,
    Place,
    SetFilter,
    SetSpan,
    SortBy,
    TogglePause,
    View,
)
from console.tables import STEP, shown
from console.view import chosen_rows, current_row, reduce
from tests.console.samples import answers, at, fake_app, heard, host, run, snapshot, worker

NODES, JOBS, HOSTS = Place(ConsolePage.NODES), Place(ConsolePage.JOBS), Place(ConsolePage.HOSTS)


def then(view: View, *events: Any) -> View:
    for event in events:
        view = reduce(view, event)
    return view


def ids(view: View, name: str = "id") -> list[Any]:
    return [row[name] for row in shown(TABLES[view.page], view).rows]


def nodes(*workers: dict[str, Any]) -> View:
    return then(heard(snapshot(0, workers=list(workers))), GoTo(NODES))


def test_the_cursor_follows_its_row_when_the_order_changes() -> None:
    """btop#192: the wrong process was killed because the list had moved."""
    view = then(nodes(worker("a"), worker("b"), worker("c")), Move(1))
    assert (current_row(view) or {})["id"] == "b"
    more = [worker(name) for name in ("0", "1", "2", "a", "b", "c")]
    view = heard(snapshot(1, workers=more), view=view)
    assert (current_row(view) or {})["id"] == "b"


def test_when_its_row_is_gone_the_cursor_stays_where_it_was() -> None:
    """On the row that took the place, or on the last one."""
    view = then(nodes(worker("a"), worker("b"), worker("c")), MoveTo(-1))
    view = heard(snapshot(1, workers=[worker("a")]), view=view)
    assert (current_row(view) or {})["id"] == "m1" or (current_row(view) or {})["id"] == "a"
    assert current_row(heard(snapshot(2, workers=[]), view=view)) is not None


def test_a_letter_sorts_and_again_turns_round() -> None:
    """Numbers begin with the largest, names with the first."""
    view = nodes(worker("a", rate=5.0), worker("b", rate=50.0), worker("c", rate=1.0))
    assert ids(then(view, SortBy("R")))[:3] == ["b", "a", "c"]
    assert ids(then(view, SortBy("R"), SortBy("R")))[-3:] == ["c", "a", "b"]
    assert ids(then(view, SortBy("N"))) == ["m1", "c", "b", "a"]
    assert then(view, SortBy("Z")) == view


def test_a_filter_shows_what_matches_and_its_inverse_what_does_not() -> None:
    """In any case of letters; escape clears it first."""
    view = then(nodes(worker("alpha"), worker("beta")), SetFilter("ALP"))
    assert ids(view) == ["alpha"]
    view = then(view, SetFilter("!alp"))
    assert ids(view) == ["beta", "m1"]
    assert len(ids(then(view, Back()))) == 3


def test_marks_choose_rows_and_stay_with_them() -> None:
    """An action is about the marked rows, or about the row at the cursor."""
    view = then(nodes(worker("a"), worker("b"), worker("c")), Mark(), Mark())
    assert [row["id"] for row in chosen_rows(view)] == ["a", "b"]
    view = heard(snapshot(1, workers=[worker("z"), worker("b"), worker("a")]), view=view)
    assert sorted(row["id"] for row in chosen_rows(view)) == ["a", "b"]
    assert [row["id"] for row in chosen_rows(then(view, Back()))] != ["a", "b"]
    assert len(chosen_rows(then(view, MarkAll()))) == 4
    assert len(chosen_rows(then(view, MarkAll(), MarkAll()))) == 1


def test_a_paused_view_keeps_its_rows_while_the_data_goes_on() -> None:
    """What is chosen is what is seen; then the newest is shown again."""
    view = then(nodes(worker("a"), worker("b")), Move(1), TogglePause())
    after = heard(snapshot(1, workers=[worker("x")]), view=view)
    assert ids(after) == ["a", "b", "m1"]
    assert (chosen_rows(after)[0])["id"] == "b"
    assert ids(then(after, TogglePause())) == ["m1", "x"]


def test_a_remote_table_asks_for_its_page_filter_and_order() -> None:
    """The leader filters and sorts: ten thousand rows never travel."""
    view = then(at(HOSTS), SetFilter("!news"), SortBy("O"))
    question, _ = questions(view)
    assert question.op == "hosts"
    expected_args = {"filter": "news", "inverse": True, "sort": "owner", "desc": False, "offset": 0}
    assert expected_args.items() <= question.args.items()
    assert "filter" not in questions(at(HOSTS))[0].args


def loaded(offset: int) -> dict[str, Any]:
    rows = [host(n) for n in range(offset + 1, offset + 201)]
    return {"rows": rows, "total": 1_000, "offset": offset}


def test_moving_past_the_loaded_rows_asks_for_more() -> None:
    """The cursor goes through the whole table; the rows around it are loaded."""
    view = then(at(HOSTS), Answered("hosts:", loaded(0), 1.0), MoveTo(199))
    assert questions(view)[0].args["offset"] == STEP
    view = then(view, Answered("hosts:", loaded(STEP), 2.0))
    assert (current_row(view) or {})["id"] == 200
    view = then(view, Move(1))
    assert (current_row(view) or {})["id"] == 201
    view = then(view, MoveTo(0))
    assert questions(view)[0].args["offset"] == 0
    view = then(view, Answered("hosts:", loaded(0), 3.0))
    assert (current_row(view) or {})["id"] == 1


def test_enter_opens_and_escape_comes_back_to_the_same_row() -> None:
    """Each list has its detail; the trail is remembered."""
    view = then(at(JOBS), SortBy("J"), Move(1))
    chosen = current_row(view)
    inside = then(view, Drill())
    assert (inside.page, inside.place.ref) == (ConsolePage.JOB, str((chosen or {})["run"]))
    back = then(inside, Back())
    assert (back.page, current_row(back)) == (ConsolePage.JOBS, chosen)
    assert then(back, Back()).page is ConsolePage.OVERVIEW


@pytest.mark.parametrize(
    ("page", "inside"),
    [
        (ConsolePage.NODES, ConsolePage.NODE),
        (ConsolePage.JOBS, ConsolePage.JOB),
        (ConsolePage.QUEUES, ConsolePage.LANES),
        (ConsolePage.TAG_QUEUES, ConsolePage.QUEUES),
        (ConsolePage.HOST_QUEUES, ConsolePage.HOST),
        (ConsolePage.HOSTS, ConsolePage.HOST),
        (ConsolePage.ERRORS, ConsolePage.FAILED),
        (ConsolePage.ITEMS, ConsolePage.ITEM),
    ],
)
def test_every_list_can_be_drilled_into(page: ConsolePage, inside: ConsolePage) -> None:
    """And the page inside asks for what it shows."""
    view = then(at(Place(page)), MoveTo(-1 if page is ConsolePage.NODES else 0), Drill())
    if page is ConsolePage.NODES:
        view = then(at(Place(page)), MoveTo(1), Drill())
    assert view.page is inside
    answers_by_op = answers()
    assert all(question.op in answers_by_op for question in questions(view))
    shown_text = page_text(at(view.place, view), 120)
    assert "asking the leader" not in shown_text


def test_an_error_of_the_leader_is_shown_where_the_rows_would_be() -> None:
    """And old rows stay, with the error beside them."""
    fresh = then(heard(snapshot(0)), GoTo(HOSTS), Answered("hosts:", {}, 1.0, "no leader"))
    assert "no leader" in page_text(fresh, 120)
    stale = then(at(HOSTS), Answered("hosts:", {}, 2.0, "no leader"))
    text = page_text(stale, 120)
    assert "no leader" in text and "https://h1.test" in text


def test_what_an_action_did_is_shown_and_kept() -> None:
    """With the command line that does the same."""
    view = then(heard(snapshot(0)), Acted("zcrawl pause 1", "run 1: paused", True, 1.0, 5.0))
    assert "zcrawl pause 1  →  run 1: paused" in page_text(view, 120)
    assert view.live.happenings[-1].text == "zcrawl pause 1  →  run 1: paused"


def test_queues_have_a_trend() -> None:
    """Of the last answers, row by row."""
    view = at(Place(ConsolePage.QUEUES))
    for n in range(20):
        rows = [{"id": 1, "queued": n}]
        view = then(view, Answered("queues:", {"rows": rows, "total": 1}, float(n)))
    (row,) = shown(TABLES[ConsolePage.QUEUES], view).rows
    assert row["trend"] == tuple(range(8, 20))


def test_time_left_is_what_is_left_over_the_rate() -> None:
    """max_pages ends a job sooner than its queue."""
    first = [run(1, pages=100, queued=400, in_flight=0, failed=0, skipped=0)]
    second = [run(1, pages=110, queued=390, in_flight=0, failed=0, skipped=0, max_pages=130)]
    view = heard(snapshot(0, runs=first), snapshot(1, runs=second))
    (row,) = shown(TABLES[ConsolePage.JOBS], then(view, GoTo(JOBS))).rows
    assert row["eta"] == pytest.approx(2.0)


def test_the_charts_have_three_spans() -> None:
    """And ask for the one that is shown."""
    view = then(heard(snapshot(0)), GoTo(Place(ConsolePage.CHARTS)))
    spans = []
    for _ in range(3):
        spans.append(questions(view)[0].args["span_s"])
        view = then(view, SetSpan())
    assert spans == [900, 3_600, 21_600]


async def test_a_click_chooses_a_row_and_a_second_one_opens_it() -> None:
    """The row under the mouse, not the one that was there before."""
    app = fake_app()
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("5")
        await pilot.pause()
        await pilot.pause()
        await pilot.click("#body", offset=(5, 4))
        await pilot.pause()
        assert (current_row(app.view) or {})["id"] == 4
        await pilot.click("#body", offset=(5, 4), times=2)
        await pilot.pause()
        assert (app.view.page, app.view.place.ref) == (ConsolePage.HOST, "4")


def test_marks_stay_when_the_loaded_part_of_a_list_moves_on() -> None:
    """What says "2 marked" acts on two, also when they are not on the screen any more."""
    view = then(at(HOSTS), Answered("hosts:", loaded(0), 1.0), Mark(), MoveTo(199), Mark())
    assert questions(view)[0].args["offset"] == STEP
    view = then(view, Answered("hosts:", loaded(STEP), 2.0))
    assert [row["id"] for row in chosen_rows(view)] == [1, 200]
    view = then(view, SetFilter("nothing like it"))
    assert len(chosen_rows(view)) == 2
    assert "2 marked" in page_text(view, 120)


def test_a_marked_row_is_acted_on_as_it_is_now() -> None:
    """Its state may have changed since; what an action fits is decided by the newest."""
    view = then(heard(snapshot(0, runs=[run(1), run(2)])), GoTo(JOBS), MarkAll())
    view = heard(snapshot(1, runs=[run(1, state="completed"), run(2)]), view=view)
    assert {row["run"]: row["state"] for row in chosen_rows(view)} == {1: "completed", 2: "running"}


def test_a_page_that_is_first_opened_while_paused_shows_its_first_answer() -> None:
    """And keeps it: a paused view never moves."""
    view = then(heard(snapshot(0)), TogglePause(), GoTo(HOSTS))
    assert "asking the leader" in page_text(view, 120)
    view = then(view, Answered("hosts:", {"rows": [host(1)], "total": 1}, 1.0))
    view = then(view, Answered("hosts:", {"rows": [host(2)], "total": 1}, 2.0))
    assert ids(view) == [1]
    assert ids(then(view, TogglePause())) == [2]


def test_the_leader_has_a_memory_and_a_lag_of_its_own() -> None:
    """Its loop is everybody's bottleneck; of a follower that tells nothing nothing is known."""
    masters = [{"id": "m1"}, {"id": "m2"}]
    shot = snapshot(0, masters=masters, process={"rss_bytes": 61_000_000, "lag_ms": 250.0})
    lines = page_text(then(heard(shot), GoTo(NODES)), 160).splitlines()
    leader = next(line for line in lines if " m1 " in line and "leader" in line and "●" not in line)
    follower = next(line for line in lines if " m2 " in line)
    assert "61.0 MB" in leader and "250" in leader and "MB" not in follower


def test_a_job_shows_how_often_its_fields_were_filled() -> None:
    """As the extraction counted them over the whole run, not only in the newest items."""
    place = Place(ConsolePage.JOB, "1", (("job", 1), ("run", 1)))
    view = at(place)
    data = answers()["job"] | {"fields": {"price": {"filled": 1, "failed": 2, "percent": 12.5}}}
    view = then(view, Answered(place.key, data, 2.0))
    text = page_text(view, 160)
    assert "Fields of all items" in text and "2 unreadable" in text and "12 %" in text


def test_a_host_says_what_its_robots_are_and_how_it_fails() -> None:
    """In the list, if it is wide enough."""
    rows = [
        host(1, opens=2, failures=9, crawl_delay_s=10.0),
        host(2, failures=3, robots=True),
        host(3),
    ]
    view = then(at(HOSTS), Answered("hosts:", {"rows": rows, "total": 3}, 2.0))
    lines = page_text(view, 200).splitlines()
    of_host = (next(row for row in lines if f"//h{n}.test" in row) for n in (1, 2, 3))
    first, second, third = of_host
    assert " down " in first and "10 s" in first
    assert "3 in a row" in second and "read" in second
    assert "none" in third and "–" in third


def test_somebody_who_looks_into_a_thousand_hosts_fills_no_memory() -> None:
    """The newest places are remembered, and the answers about them."""
    view = at(HOSTS)
    for n in range(1_000):
        place = Place(ConsolePage.HOST, str(n), (("host", f"h{n}"),))
        view = then(view, GoTo(place), Move(1), Answered(place.key, {"rows": [host(n)]}, 2.0))
        view = then(view, Back())
    assert len(view.tables) <= 50 and len(view.live.answers) <= 30 and len(view.trail) <= 20


def test_a_name_that_nobody_knows_has_no_facts() -> None:
    """No zeros, no "heard 0 s ago": the leader's refusal, and what the log says."""
    for page, title in ((ConsolePage.NODE, "Worker w9"), (ConsolePage.JOB, "Job w9")):
        place = Place(page, "w9", (("id", "w9"),))
        view = then(heard(snapshot(0)), GoTo(place), Answered(place.key, {}, 1.0, "no such thing"))
        text = page_text(view, 120)
        assert title in text and "no such thing" in text and "0.0 s" not in text


def test_a_line_that_a_list_cuts_can_be_opened() -> None:
    """Of the log and of failed URLs; all of it, on as many rows as it needs."""
    long = "https://h1.test/" + "a" * 150 + "/end"
    fields = {"at": 5.0, "text": long, "source": "w1", "level": "error"}
    view = then(
        heard(snapshot(0)), HappeningCame("slow", fields, 1.0), GoTo(Place(ConsolePage.LOG))
    )
    inside = then(view, Drill())
    text = page_text(inside, 80)
    assert inside.page is ConsolePage.LINE and "/end" in text and "/end" not in page_text(view, 80)
    assert then(inside, Back()).page is ConsolePage.LOG


def test_jobs_that_ended_before_the_leader_took_over_are_not_gone() -> None:
    """The snapshot has what this leader knows; the database has the rest, and is asked rarely."""
    view = then(heard(snapshot(0, runs=[run(7, "news")])), GoTo(JOBS))
    question, _ = questions(view)
    assert (question.op, question.every_s) == ("jobs", 60.0)
    stored: list[Any] = [run(3, "wiki", state="completed"), run(7, "news", state="completed")]
    stored += [run(8, "starting"), {"run": None}, 5]
    view = then(view, Answered(question.slot, {"jobs": stored}, 1.0))
    assert {row["name"]: row["state"] for row in shown(TABLES[ConsolePage.JOBS], view).rows} == {
        "news": "running",
        "wiki": "completed",
    }
    assert "wiki" in page_text(view, 80)


def test_what_happened_is_shown_beside_failures_and_on_the_page_of_a_job() -> None:
    """As the leader told it: the newest of a group, the first of each reason of a job."""
    why = "IndexError: [bold]none[/bold] (sp.py, line 8)"
    errors = at(Place(ConsolePage.ERRORS), words=why)
    assert why in page_text(errors, 220)
    about = (("run", 1), ("reason", "spider_error"), ("host_id", 4))
    assert why in page_text(at(Place(ConsolePage.FAILED, "1", about), words=why), 220)
    text = page_text(at(Place(ConsolePage.JOB, "1", (("run", 1),)), words=why), 160)
    assert "The first of each reason" in text and f"{why} at {why}" in text


def test_a_job_without_failures_has_no_examples_to_show() -> None:
    """A master of an older version tells none either."""
    view = at(Place(ConsolePage.JOB, "1", (("run", 1),)))
    key = next(slot for slot in view.content.answers if slot == view.place.key)
    data = {**view.content.answers[key].data, "examples": {}}
    view = reduce(view, Answered(key, data, 2.0))
    assert "The first of each reason" not in page_text(view, 160)


def test_the_nodes_of_a_list_have_rows_with_state_and_fingerprint() -> None:
    """In words, not only in colours: alive, silent, and another list."""
    listed = [
        {"id": "n1", "fingerprint": "aa11"},
        {"id": "n2", "fingerprint": "bb22", "differs": True},
        {"id": "n3", "alive": False},
    ]
    standalone = {"node": "n1", "fingerprint": "aa11", "watched": True, "nodes": listed}
    view = then(heard(snapshot(0, workers=[], standalone=standalone)), GoTo(NODES))
    assert ids(view) == ["m1", "n1", "n2", "n3"]
    words = [" ".join(row.split()) for row in page_text(view, 120).splitlines()]
    assert any("n1 aa11 listed alive" in row for row in words)
    assert any("n2 ▲ bb22 listed differs" in row for row in words)
    assert any("n3 listed silent" in row for row in words)


def test_the_page_of_a_listed_node_asks_nothing_of_a_worker() -> None:
    """The leader does not know it as a worker, and would refuse."""
    listed = [{"id": "n2", "fingerprint": "bb22", "differs": True, "address": "tcp://h:1"}]
    standalone = {"node": "n1", "fingerprint": "aa11", "watched": True, "nodes": listed}
    view = then(heard(snapshot(0, workers=[], standalone=standalone)), GoTo(NODES), Move(1))
    view = then(view, Drill())
    assert {question.op for question in questions(view)} == {"events", "role"}
    page = page_text(view, 120)
    assert "Listed node n2" in page and "▲ bb22, another one than here" in page
