"""Suggestions for misspelt names."""

from __future__ import annotations

from zcrawl.text.spelling import near_names


def test_the_nearest_names_come_first_and_strange_ones_not_at_all() -> None:
    """As many as are wanted, of any iterable."""
    names = ("politeness", "polite", "output")
    assert near_names("politness", names) == ["politeness"]
    assert near_names("politness", iter(names), most=2) == ["politeness", "polite"]
    assert near_names("scope", names) == []
    assert near_names("outpt", names, cutoff=0.95) == []
