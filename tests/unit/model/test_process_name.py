"""The name of a process."""

from __future__ import annotations

from zcrawl.model.process_name import process_name, worker_of


def test_the_worker_is_found_in_the_name_of_its_process() -> None:
    """Also if its id has the sign that parts the two."""
    assert process_name("w3", 4711) == "w3#4711"
    assert [worker_of(process_name(worker, 5)) for worker in ("w3", "a#b")] == ["w3", "a#b"]
