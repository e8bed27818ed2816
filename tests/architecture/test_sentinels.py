"""What a value means in secret is known in one place: all others ask by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from zcrawl.model.log_event import declared_events
from zcrawl.model.reasons.registry import all_reasons

ROOT = Path(__file__).parents[2]
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("zcrawl", "console")
    for path in (ROOT / folder).rglob("*.py")
}

# A text that one module writes, and that no other may contain: it would be parsed there.
TEXTS = {
    "no live worker has": {"zcrawl/dispatch/placement.py"},
    "spider.invalid": {"zcrawl/frontier/extra.py"},
}
# A constant that one module compares with, and that no other may: it asks the predicate there.
COMPARED = {
    "ELSEWHERE": "zcrawl/frontier/robots_place.py",
    "SITEMAP_PRIO": "zcrawl/model/sitemap_request.py",
    "START_URL": "zcrawl/frontier/extra.py",
}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each string of a module with its line, without docstrings."""
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def text_complaints(path: str, source: str) -> list[str]:
    """Return where a module contains a text that only another one may."""
    return [
        f"{path}:{line}: {text!r} is known to {', '.join(sorted(places))} only"
        for line, value in texts(source)
        for text, places in TEXTS.items()
        if text in value and path not in places
    ]


def comparison_complaints(path: str, source: str) -> list[str]:
    """Return where a module compares with a constant that only another one may compare with."""
    return [
        f"{path}:{node.lineno}: compares with {name}; ask {COMPARED[name]}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if (name := getattr(part, "id", getattr(part, "attr", ""))) in COMPARED
        if path != COMPARED[name]
    ]


def event_complaints(path: str, source: str) -> list[str]:
    """Return the literals of a module that name a declared event: its level would hang on them."""
    events = declared_events() - {reason.code for reason in all_reasons()}
    return [
        f"{path}:{node.lineno}: log {node.args[0].value!r} by its constant of model/log_event"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
        if node.args[0].value in events and path != "zcrawl/model/log_event.py"
    ]


# Where names of processes are used. Elsewhere `#` begins a fragment, a comment or a colour.
PROCESS_FOLDERS = ("zcrawl/dispatch/", "zcrawl/master/", "zcrawl/result/", "zcrawl/testing/")


def process_complaints(path: str, source: str) -> list[str]:
    """Return where a module puts the name of a process together, or takes one apart."""
    if not path.startswith(PROCESS_FOLDERS):
        return []
    return [
        f"{path}:{line}: {text!r}: names of processes are made and read by model/process_name"
        for line, text in texts(source)
        if text == "#"
    ]


# Who may import the form of a sitemap's request: the others ask `is_sitemap` and `nesting`. The
# store compares in SQL, and its twin compares rows.
SITEMAP_FORM = {
    "zcrawl/mesh/messages.py",
    "zcrawl/model/rows.py",
    "zcrawl/store/sql/known.py",
    "zcrawl/testing/store/known.py",
    "zcrawl/worker/results/sitemaps.py",
}


def sitemap_complaints(path: str, source: str) -> list[str]:
    """Return whether a module imports the form of a sitemap's request that may not."""
    modules = {
        node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    }
    imports = "zcrawl.model.sitemap_request" in modules
    return [f"{path}: ask is_sitemap or nesting"] if imports and path not in SITEMAP_FORM else []


LOG_CALLS = frozenset({"Note", "note", "_note", "log", "_log", "tell", "_tell", "_on_error"})


def run_complaints(path: str, source: str) -> list[str]:
    """Return the calls that log a text about a run without the run as a field."""
    complaints = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or path.startswith("zcrawl/cli/"):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        has_run = len(node.args) > 2 or any(argument.arg == "run" for argument in node.keywords)
        if (
            name in LOG_CALLS
            and not has_run
            and any(names_run(argument) for argument in node.args[1:])
        ):
            complaints.append(f"{path}:{node.lineno}: logs about a run without `run`")
    return complaints


def names_run(text: ast.expr) -> bool:
    """Return whether a text is written with the number of a run at its beginning."""
    if not isinstance(text, ast.JoinedStr) or len(text.values) < 2:
        return False
    first = text.values[0]
    return isinstance(first, ast.Constant) and str(first.value).endswith("run ")


def test_no_module_parses_a_text_that_another_one_writes() -> None:
    """What a program has to know is a field beside the text."""
    assert [
        complaint for path, source in SOURCES.items() for complaint in text_complaints(path, source)
    ] == []


def test_no_module_but_its_own_compares_with_a_sentinel() -> None:
    """What a URL or a number means is asked by name: `is_start(url)`."""
    complaints = [
        complaint
        for path, source in SOURCES.items()
        for complaint in comparison_complaints(path, source)
    ]
    assert complaints == []


def test_the_rule_finds_a_comparison() -> None:
    """The rule can fail; to make such a value is allowed."""
    assert comparison_complaints("zcrawl/x.py", "start = url == extra.START_URL\n") != []
    assert comparison_complaints("zcrawl/x.py", "if url in (START_URL, other): pass\n") != []
    assert comparison_complaints("zcrawl/x.py", "url = page or START_URL\n") == []
    assert comparison_complaints("zcrawl/frontier/extra.py", "url == START_URL\n") == []


def test_a_request_is_asked_whether_it_is_a_sitemap() -> None:
    """Its priority and its block are the stored form: nobody else reads them."""
    complaints = [
        complaint
        for path, source in SOURCES.items()
        for complaint in sitemap_complaints(path, source)
    ]
    assert complaints == []


def test_the_rule_finds_who_reads_the_form_of_a_sitemap() -> None:
    """The rule can fail."""
    bad = "from zcrawl.model.sitemap_request import SITEMAP_PRIO\n"
    assert sitemap_complaints("zcrawl/result/plan.py", bad) != []
    assert sitemap_complaints("zcrawl/model/rows.py", bad) == []


def test_an_event_with_a_level_is_logged_by_its_constant() -> None:
    """A misspelt literal would silently be information."""
    complaints = [
        complaint
        for path, source in SOURCES.items()
        for complaint in event_complaints(path, source)
    ]
    assert complaints == []


def test_every_declared_event_is_logged_by_somebody() -> None:
    """A constant that nobody uses is an event that does not exist."""
    own = declared_events() - {reason.code for reason in all_reasons()}
    used = {
        getattr(node, "id", "")
        for path, source in SOURCES.items()
        if path != "zcrawl/model/log_event.py"
        for node in ast.walk(ast.parse(source))
    }
    assert {name for name in own if name.upper() not in used} == set()


def test_the_rule_finds_an_event_that_is_written_out() -> None:
    """The rule can fail; an event without a level may be written out."""
    assert event_complaints("zcrawl/x.py", 'Note("worker_lost", worker)\n') != []
    assert event_complaints("zcrawl/x.py", 'self._log("worker_died", text)\n') != []
    assert event_complaints("zcrawl/x.py", 'Note(WORKER_LOST, w)\nNote("worker_left", w)\n') == []


def test_the_name_of_a_process_is_made_and_read_in_one_place() -> None:
    """What parts a worker's id from its incarnation is nobody else's knowledge."""
    complaints = [
        complaint
        for path, source in SOURCES.items()
        for complaint in process_complaints(path, source)
    ]
    assert complaints == []


def test_the_rule_finds_a_name_that_is_taken_apart() -> None:
    """The rule can fail, for a name that is read and for one that is made."""
    reads = "score = name.rpartition('#')[0]\n"
    makes = 'name = f"{worker}#{incarnation}"\n'
    assert process_complaints("zcrawl/dispatch/host_state.py", reads) != []
    assert process_complaints("zcrawl/master/commits.py", makes) != []
    assert process_complaints("zcrawl/frontier/url.py", 'cut = href.find("#")\n') == []


def test_whoever_logs_about_a_run_says_which() -> None:
    """A text that names a run goes with the run as a field: nothing reads it out of the text."""
    complaints = [
        complaint for path, source in SOURCES.items() for complaint in run_complaints(path, source)
    ]
    assert complaints == []


def test_the_rule_finds_a_note_without_its_run() -> None:
    """The rule can fail, for effects as for calls; a run as a field satisfies it."""
    bad = (
        'effects.append(Note("lost", f"run {run}: lost"))\nself.note("lost", f"run {run}: lost")\n'
    )
    good = 'Note("lost", f"run {run}: lost", run)\nself._log("lost", f"run {n}: lost", run=n)\n'
    assert len(run_complaints("zcrawl/x.py", bad)) == 2
    assert run_complaints("zcrawl/x.py", good) == []


def test_the_rule_finds_a_text_that_is_parsed() -> None:
    """The rule can fail, and a docstring does not count."""
    bad = 'def f(reason):\n    return reason.startswith("waiting: no live worker has ")\n'
    assert text_complaints("zcrawl/cli/commands/submit.py", bad) != []
    assert text_complaints("zcrawl/dispatch/placement.py", bad) == []
    assert text_complaints("zcrawl/cli/main.py", '"""What no live worker has."""\n') == []
