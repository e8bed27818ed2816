"""The registry of output formats: complete declarations, writers that exist, no second list."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zcrawl.cli.specs import format_of as cli_format_of
from zcrawl.errors import JobError
from zcrawl.model.formats import (
    FORMATS,
    Format,
    StdoutKind,
    all_endings,
    declare,
    ending_of,
    format_of,
    listed_endings,
)
from zcrawl.model.spec import OutputSpec
from zcrawl.model.states import Kept
from zcrawl.outputs.columns import Layout
from zcrawl.outputs.files.growing import OutputFile
from zcrawl.outputs.files.sinks import batch_of, kind_of
from zcrawl.outputs.files.writers import WholeFile, load, records_of, whole_file
from zcrawl.outputs.records import Records
from zcrawl.roles.preflight import EXTRAS
from zcrawl.submit.outputs import check_outputs, part_path, targets

REPOSITORY = Path(__file__).resolve().parents[3]
WHOLE: dict[str, Any] = {
    "name": "made",
    "title": "Made up",
    "endings": (".made",),
    "writer": "zcrawl.outputs.records:JsonLines",
    "appendable": True,
    "display": StdoutKind.TEXT,
    "about": "Grows.",
}


@pytest.mark.parametrize("left_out", WHOLE)
def test_a_format_without_one_of_its_facts_cannot_be_declared(left_out: str) -> None:
    """Each is asked of whoever adds a format."""
    with pytest.raises(TypeError, match=left_out):
        declare(Format(**{name: value for name, value in WHOLE.items() if name != left_out}))
    assert "made" not in FORMATS


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "csv"},
        {"name": ""},
        {"title": ""},
        {"about": ""},
        {"endings": ()},
        {"endings": ("made",)},
        {"endings": (".made", ".csv")},
        {"writer": ""},
        {"writer": "zcrawl.outputs.records"},
        {"extra": "made"},
        {"package": "made"},
    ],
)
def test_a_declaration_that_is_not_complete_is_refused(changes: dict[str, Any]) -> None:
    """A name or an ending twice, no writer, no documentation, an extra without its package."""
    with pytest.raises(ValueError, match="output format"):
        declare(Format(**(WHOLE | changes)))
    assert "made" not in FORMATS


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
def test_each_writer_exists_and_writes(format: Format, tmp_path: Path) -> None:
    """It is loaded by its name and has all calls of its kind."""
    protocol = Records if format.appendable else WholeFile
    calls = {name for name in vars(protocol) if not name.startswith("_")}
    assert calls
    assert calls <= set(dir(load(format)))
    layout = Layout({"url": "string"})
    if format.appendable:
        records = records_of(format, layout, lambda name: b"")
        data = records.render([], "x", first=True)
        assert bool(data) is records.has_head
        records.resume(data)
    else:
        file = whole_file(format, tmp_path / "x", layout)
        file.add([b'{"url": "http://a.test/"}'])
        file.close()
        assert (tmp_path / "x").stat().st_size > 0


def test_each_extra_can_be_installed() -> None:
    """It is one of the package, and `crawl` looks for a module of it before it starts."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    for format in FORMATS.values():
        if format.extra:
            needs = extras["optional-dependencies"][format.extra]
            assert any(line.startswith(format.package) for line in needs), format.name
            assert EXTRAS[format.extra] == (format.package, f"{format.title} output")


def test_a_name_is_read_by_its_ending() -> None:
    """In any case of letters; the ending is what stands behind the number of a part."""
    for format in FORMATS.values():
        for ending in format.endings:
            assert format_of(f"items{ending.upper()}") == format.name
            assert ending_of(f"a.b{ending}") == ending
    assert format_of("items.json") is None
    assert ending_of("items") == ""
    assert all_endings() == [".jsonl", ".ndjson", ".csv", ".parquet", ".warc.gz"]
    assert listed_endings() == ".jsonl, .csv, .parquet or .warc.gz"
    assert listed_endings(captures=False) == ".jsonl, .csv or .parquet"


@pytest.fixture
def made() -> Iterator[Format]:
    """A format that is declared for one test, with a writer that exists."""
    format = FORMATS[declare(Format(**WHOLE))]
    yield format
    del FORMATS[format.name]


def test_a_new_format_is_a_declaration_and_a_writer(made: Format, tmp_path: Path) -> None:
    """Job files take it, outputs and exports write it, and messages list it: nothing else is
    to be changed."""
    output = OutputSpec(to=("made", "items.made"))
    check_outputs(output)
    assert targets(output, "shop") == [("shop-{run}.made", "made"), ("items.made", "made")]
    assert part_path("items.made", 2, True) == "items-00002.made"
    assert cli_format_of("x.MADE") == "made"
    with pytest.raises(JobError, match=r"\.warc\.gz, \.made"):
        check_outputs(OutputSpec(to=("x.other",)))
    with OutputFile(tmp_path / "x.made", "made", 0) as file:
        file.append([b"{}"])
    assert (tmp_path / "x.made").read_bytes() == b"{}\n"
    assert (kind_of("made"), batch_of("made")) == (Kept.ITEM, batch_of("jsonl"))
    assert listed_endings().endswith("or .made")


def format_literals(path: Path) -> list[str]:
    """The places in a source that compare with the name of a format, or list several."""
    places = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Compare(comparators=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                pass
            case ast.Dict(keys=parts):
                pass
            case _:
                continue
        names = [part.value for part in parts if isinstance(part, ast.Constant)]
        if FORMATS.keys() & {name for name in names if isinstance(name, str)}:
            places.append(f"{path.relative_to(REPOSITORY)}:{node.lineno}")
    return places


def test_nobody_else_has_a_list_of_formats() -> None:
    """No module compares with the name of a format: it asks the registry."""
    sources = [
        path
        for folder in ("zcrawl", "console")
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
    ]
    assert len(sources) > 300
    assert [place for path in sources for place in format_literals(path)] == []


def test_the_registry_loads_no_library() -> None:
    """A start that writes no Parquet and no archive pays for neither."""
    code = (
        "import sys, zcrawl.model.formats, zcrawl.outputs.files.sinks, zcrawl.cli.commands.export\n"
        "print({'pyarrow', 'warcio'} & set(sys.modules))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "set()"
