"""The name of a process."""

from __future__ import annotations

from zcrawl.dispatch.host_state import sort_by_score
from zcrawl.model.process_name import process_name, worker_of


def test_the_worker_is_found_in_the_name_of_its_process() -> None:
    """Also if its id has the sign that parts the two."""
    assert process_name("w3", 4711) == "w3#4711"
    assert [worker_of(process_name(worker, 5)) for worker in ("w3", "a#b")] == ["w3", "a#b"]


def test_the_number_of_a_process_does_not_count_where_hosts_go() -> None:
    """A worker that was started again has the same rank as before."""
    first = [process_name(f"w{n}", 1) for n in range(9)]
    later = [process_name(f"w{n}", 4711) for n in range(9)]
    ranked = [
        [worker_of(name) for name in sort_by_score("host", names)] for names in (first, later)
    ]
    assert ranked[0] == ranked[1]
    assert len(set(ranked[0])) == 9
