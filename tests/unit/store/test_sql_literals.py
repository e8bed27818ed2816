"""Values in the text of a statement."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.errors import StoreDataError
from zcrawl.model.states import RequestState, RunState
from zcrawl.store.sql.dialects.mysql_literals import filled, literal, row_literal, split_rows


def test_values_are_written_as_mysql_reads_them() -> None:
    """Enums as their value, floats as DOUBLE, bytes as hexadecimal."""
    row = (1, -2, True, None, 1.5, 1e-9, b"\x00\xff", b"", "a", RequestState.DONE, RunState.PAUSED)
    done = int(RequestState.DONE)
    assert row_literal(row) == f"(1,-2,1,NULL,1.5e0,1e-09,X'00ff',X'','a',{done},'paused')"


@given(st.text())
def test_a_text_cannot_leave_its_quotes(text: str) -> None:
    """Read as MySQL reads it, the literal is the text again and ends where it should."""
    quoted = literal(text)
    assert quoted[0] == quoted[-1] == "'"
    read, inner, i = [], quoted[1:-1], 0
    while i < len(inner):
        if inner[i] in "\\'":
            assert inner[i + 1] == inner[i]
            i += 1
        read.append(inner[i])
        i += 1
    assert "".join(read) == text


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, ["x"], object(), (1,), {}])
def test_what_no_column_can_hold_is_a_data_error(value: object) -> None:
    """A bad value is found by bisection, so its type must be reported as an error of the data."""
    with pytest.raises(StoreDataError):
        literal(value)


def test_marks_are_filled_and_nothing_else_changes() -> None:
    """A percent sign and marks within values stay as they are."""
    assert filled("SELECT '%' , ? LIKE ?", ("a?b", "%s{}")) == "SELECT '%' , 'a?b' LIKE '%s{}'"
    assert filled("SELECT '%s'", ()) == "SELECT '%s'"
    with pytest.raises(ValueError, match="2 values for 1 marks"):
        filled("SELECT ?", (1, 2))


def test_rows_are_split_below_the_limit() -> None:
    """A row that is too long alone goes alone; no rows make no statement."""
    made = list(split_rows("I ", ["(1)", "(22)", "(333333)", "(4)"], ";", 9))
    assert made == ["I (1),(22);", "I (333333);", "I (4);"]
    assert list(split_rows("I ", [], "", 9)) == []
