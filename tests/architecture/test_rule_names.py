"""Rules of the protocol are cited by name, and every name that is cited is a rule."""

from __future__ import annotations

import re
from pathlib import Path

FOLDERS = ("zcrawl", "console", "tests", "docs")
CITED = re.compile(r"\b[Rr]ules? `([a-z][a-z, ]+)`(?: and `([a-z][a-z, ]+)`)?")
NUMBERED = re.compile(r"\b[Rr]ules? [0-9]+\b")


def rule_names() -> set[str]:
    text = Path("docs/protocol.md").read_text()
    rules = text.partition("\n## The rules\n")[2].partition("\n## ")[0]
    return {name.lower() for name in re.findall(r"^- \*\*([^*]+)\.\*\*", rules, re.M)}


def texts() -> list[tuple[str, str]]:
    files = [file for folder in FOLDERS for file in sorted(Path(folder).rglob("*"))]
    return [
        (file.as_posix(), " ".join(file.read_text().split()))
        for file in files
        if file.suffix in (".py", ".md") and file.name != Path(__file__).name
    ]


def test_every_cited_rule_has_that_name_in_the_protocol() -> None:
    """A name that is written wrongly leads nobody to the rule."""
    names = rule_names()
    assert len(names) == 16
    cited = [
        (path, name)
        for path, text in texts()
        for match in CITED.finditer(text)
        for name in match.groups()
        if name
    ]
    assert len(cited) > 50
    assert [entry for entry in cited if entry[1] not in names] == []


def test_no_rule_is_cited_by_a_number() -> None:
    """Numbers change, and say nothing to somebody who has not read the list."""
    assert [path for path, text in texts() if NUMBERED.search(text)] == []
