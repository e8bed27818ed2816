"""Tables in the docs that are written from a registry are those of the registry."""

from __future__ import annotations

import pytest

from tests.architecture.tables import REPOSITORY, TABLES, with_tables


@pytest.mark.parametrize("page", TABLES)
def test_the_tables_of_a_page_are_those_of_the_registry(page: str) -> None:
    """`make tables` brings them up to date."""
    text = (REPOSITORY / page).read_text("utf-8")
    assert text == with_tables(page, text)


def test_a_page_without_a_place_for_its_table_is_an_error() -> None:
    """A comment that somebody removed does not end the check in silence."""
    with pytest.raises(ValueError, match="no place"):
        with_tables("docs/protocol.md", "# The mesh protocol\n")
