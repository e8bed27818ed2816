"""What nodes and pages say reaches the terminal by the one rule, in every view of the CLI."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.hostile_text import EVERYTHING, forbidden, hostile
from tests.unit.cli.test_cli_display import plain_snapshot
from zcrawl.cli import output
from zcrawl.cli.commands.jobs import readable
from zcrawl.cli.commands.test import describe, extraction_rows
from zcrawl.cli.commands.up import describe as describe_up
from zcrawl.cli.crawl_session import closing_lines
from zcrawl.cli.display import LineDisplay, RateMeter, Silent, draw, line
from zcrawl.cli.main import run
from zcrawl.model.snapshot import EmbeddedSnapshot
from zcrawl.telemetry.logs.files import _json_line, _text_line

SEEDS = range(20)
VIEW: dict[str, Any] = {
    **dict.fromkeys(("job", "run", "percent", "pages", "items", "failed", "skipped"), 1),
    **dict.fromkeys(("queued", "in_flight", "bytes", "unchanged"), 2),
    "pages_per_second": 1.5,
    "seconds": 3.0,
    "name": "x",
    "state": "running",
    "reason": "x",
    **{name: {"x": 1} for name in ("failed_reasons", "skipped_reasons", "statuses")},
    **{name: {"x": 1} for name in ("rejected_links", "rejected_items")},
    "created_at": "x",
    "started_at": "x",
    "ended_at": "x",
    "workers": ["x"],
    "tags": ["x"],
    "spec": {"seeds": ["x"], "scope": {"hosts": ["x"]}, "fetch": {"headers": {"x": "x"}}},
    "in_flight_urls": ["x"],
    "runs": [{"run": 1, "state": "x", "pages": 1}, {"run": 2, "state": "x", "pages": 1}],
    "last_actions": [{"what": "x", "by": "x", "at": "x"}],
    "fields": {"x": {"failed": 1, "percent": 1, "filled": 1}},
    "examples": {
        kind: {"x": {"url": "x", "detail": "x"}} for kind in ("failed", "skipped", "rejected")
    },
}
REPORT: dict[str, Any] = {
    "url": "x",
    "outcome": "x",
    "reason": "x",
    "detail": "x",
    "final_url": "x",
    "content_type": "x",
    "charset": "x",
    "scope": "x",
    "sitemaps": ["x"],
    "rejected_links": {"x": 1},
    "guard": {"allowed": False, "why": "x", "addresses": {"x": "x"}},
    "robots": {
        "asked": True,
        "allowed": True,
        "later": False,
        "crawl_delay_s": 1.0,
        "url": "x",
        "status": "x",
        "user_agent": "x",
    },
    "hops": [
        {
            "status": 200,
            "bytes": 1,
            "method": "x",
            "url": "x",
            "proxy": "x",
            "ms": 1,
            "sent": {"x": "x"},
            "headers": [["x", "x"]],
        }
    ],
    "items": [{"x": "x"}],
    "requests": [{"method": "x", "url": "x", "handler": "x"}],
    "links": [{"scope": "x", "url": "x", "to": "x", "guard": "x"}],
}
EXTRACTION: dict[str, Any] = {
    "items": [{"x": "x"}],
    "extraction": {
        "problems": [{"errors": {"x": "x"}}],
        "rejected": [{"errors": {"x": "x"}, "reason": "x", "item": {"x": "x"}}],
    },
}
SNAPSHOT = {**plain_snapshot(), "leader": "x", "epoch": 1, "mishaps": {"in_row": 3, "last": "x"}}


def poisoned(value: Any, chance: random.Random) -> Any:
    """The same structure; every text in it, also of keys that are data, is hostile."""
    match value:
        case str():
            return hostile(chance)
        case dict():
            own = {"x", "200", "404", "500", "http_404"}  # keys that come from elsewhere
            return {
                hostile(chance) if key in own else key: poisoned(child, chance)
                for key, child in value.items()
            }
        case list() | tuple():
            return [poisoned(child, chance) for child in value]
        case _:
            return value


def as_snapshot(shot: Any) -> EmbeddedSnapshot:
    return msgspec.convert(shot, EmbeddedSnapshot)


def live_picture(shot: Any) -> None:
    file = io.StringIO()
    Console(file=file, width=200).print(draw(as_snapshot(shot), {7, 8}, RateMeter()))
    output.page(file.getvalue())
    assert not forbidden(file.getvalue()), "before the last border, too"


def of_job(view: Any) -> None:
    output.fields(readable(view))
    columns = ("job", "name", "state")
    output.table(columns, [[view[name] for name in columns]])
    for text in closing_lines(view, "x"):
        output.note(text)
    output.print_json(view)


def of_test(report: Any) -> None:
    for text in describe(report, None):
        output.data(text)
    output.print_json(report)


def of_lines(shot: Any) -> None:
    output.note(line(as_snapshot(shot), {7, 8}, RateMeter()))
    LineDisplay().note(shot["runs"][0]["name"])
    run, _ = shot["runs"]
    waits = {**shot, "runs": [{**run, "waits": f"waiting: {run['name']}"}]}
    Silent().show(as_snapshot(waits), {7})
    for text in describe_up(as_snapshot(shot), shot["leader"]):
        output.note(text)


VIEWS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "job": (VIEW, of_job),
    "test": (REPORT, of_test),
    "extraction": (EXTRACTION, lambda data: output.table("1234", extraction_rows(data))),
    "live picture": (SNAPSHOT, live_picture),
    "lines": (SNAPSHOT, of_lines),
    "error": ({"x": "x"}, lambda data: run(["job", "--data", "no-such", *data])),
    "usage error": ({"x": "x"}, lambda data: run([*data.values()])),
    "json error": ({"x": "x"}, lambda data: run([*data.values(), "--json"])),
}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_no_view_lets_a_control_through(
    name: str, terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every field of what is shown is hostile, twenty times under fixed seeds."""
    sample, show = VIEWS[name]
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    for seed in SEEDS:
        show(poisoned(sample, random.Random(seed)))
        out, err = capsys.readouterr()
        assert out + err
        assert not forbidden(out + err)


def test_a_log_has_no_control_in_either_form() -> None:
    """Daemons log to stderr, which may be a terminal, and people look at files with `cat`."""
    event = {"at": "t", "source": EVERYTHING, "event": EVERYTHING, "detail": EVERYTHING}
    for line_of in (_text_line, _json_line):
        assert not forbidden(line_of(event).decode())
    assert json.loads(_json_line(event))["detail"] == EVERYTHING


def test_items_keep_their_meaning_on_stdout(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON lines are escaped for everybody; CSV for a terminal, and for a program it stays."""
    item = json.dumps({"k": EVERYTHING}, ensure_ascii=False).encode() + b"\n"
    output.write_items(item, "jsonl")
    written = capfdbinary.readouterr().out
    assert json.loads(written) == {"k": EVERYTHING}
    assert not forbidden(written.decode())
    output.write_items(EVERYTHING.encode(), "csv")
    assert capfdbinary.readouterr().out == EVERYTHING.encode()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.write_items(b"a,b\r\n" + EVERYTHING.encode(), "csv")
    seen = capfdbinary.readouterr().out.decode()
    assert seen.startswith("a,b\r\n")
    assert not forbidden(seen.replace("\r\n", "\n"))
