"""The two clients say the same, and read what the gateway writes."""

import ast
from pathlib import Path

import pytest

from zcrawl.client import calls
from zcrawl.client.errors import BadRequest, NotFound, TooMany, Unavailable, error_of
from zcrawl.client.event_stream import EventParser

CLIENT = Path(calls.__file__).parent


def test_both_clients_have_the_same_calls() -> None:
    """What one can do, the other can; with the same parameters."""

    def signatures(file: str, name: str) -> dict[str, str]:
        tree = ast.parse((CLIENT / file).read_text())
        (client,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
        return {
            node.name: ast.unparse(node.args)
            for node in client.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("__a")
            and node.name not in ("__enter__", "__exit__")
        }

    assert signatures("aio.py", "AsyncClient") == signatures("sync.py", "Client")


def test_events_are_read_however_they_are_cut() -> None:
    """Byte by byte, with heartbeats between them; a half event of a broken stream is dropped."""
    stream = (
        b': hi\n\nid: b-1\nevent: run\ndata: {"run":1}\n\n: beat\n\nid: b-2\nevent: log\ndata: {'
    )
    parser = EventParser()
    events = [event for at in range(len(stream)) for event in parser.feed(stream[at : at + 1])]
    assert [(event.id, event.kind, event.data) for event in events] == [("b-1", "run", {"run": 1})]
    parser.reconnect()
    assert parser.last_id == "b-1"
    (event,) = parser.feed(b"id: b-2\nevent: log\ndata: {}\n\n")
    assert event.id == "b-2"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFound), (422, BadRequest), (429, TooMany), (503, Unavailable), (502, Unavailable)],
)
def test_every_answer_has_its_error(status: int, kind: type[Exception]) -> None:
    """Also one that is no problem+json, from a proxy."""
    assert type(error_of(status, b"<html>bad gateway", "3")) is kind


def test_only_what_may_succeed_later_is_sent_again() -> None:
    """A refusal is raised at once; 503 until the patience ends."""
    retries = calls.CallRetries(1.0, 100.0)
    with pytest.raises(NotFound):
        retries.pause(error_of(404, b""), 100.0)
    assert retries.pause(error_of(503, b""), 100.0) > 0
    assert calls.CallRetries(9.0, 0.0).pause(error_of(429, b"", "7"), 0.0) == 7
    with pytest.raises(Unavailable):
        retries.pause(error_of(503, b""), 101.0)
