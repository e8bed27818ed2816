"""The tour in CONTRIBUTING.md leads to places that exist."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TASKS = (
    "skip reason",
    "output format",
    "CLI command",
    "operation (what clients request)",
    "heartbeat field",
    "retry rule",
    "console page",
)


def tour() -> str:
    """The text between the tour's heading and the next one."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    return text.partition("## The ten-minute tour")[2].partition("\n## ")[0]


def test_the_tour_leads_to_places_that_exist() -> None:
    """A module that was moved takes its line in the tour along."""
    paths = re.findall(r"`((?:zcrawl|console|tests|docs)/[\w/.-]*)`", tour())
    assert len(paths) > 15
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


def test_the_tour_answers_the_usual_questions() -> None:
    """Each of the usual tasks has its line."""
    assert [task for task in TASKS if f" {task} |" not in tour()] == []


def test_the_tour_names_things_that_are_where_it_says() -> None:
    """The names in parentheses are in the file before them."""
    named = re.findall(r"`([\w/]+\.py)` \(`(\w+)`\)", tour())
    named += [
        ("tests/architecture/rules.py", "WORLD_FOLDERS"),
        ("tests/architecture/rules.py", "PLACES"),
    ]
    assert [
        (path, name) for path, name in named if name not in (REPOSITORY / path).read_text()
    ] == []
