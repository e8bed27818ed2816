"""Where items go: entries of output.to, names of parts, columns of a job."""

from __future__ import annotations

import pytest

from zcrawl.errors import JobError
from zcrawl.model.spec import Browser, JobSpec, OutputSpec
from zcrawl.outputs.columns import Layout, ListOf, ObjectOf, columns_of, layout_of
from zcrawl.submit.outputs import key_of, part_path, targets, wants_capture
from zcrawl.submit.read import parse_job


def test_entries_are_formats_or_names_whose_ending_tells_the_format() -> None:
    """`sql` is not a file; a format without a name gets the default name."""
    output = OutputSpec(to=("sql", "parquet", "a/{name}.ndjson", "s3://b/x-{run}.warc.gz"))
    assert targets(output, "job") == [
        ("job-{run}.parquet", "parquet"),
        ("a/job.ndjson", "jsonl"),
        ("s3://b/x-{run}.warc.gz", "warc"),
    ]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("x.json", "write 'x.jsonl'"),
        ("a/../../x.jsonl", "leads out"),
        ("~/x.jsonl", "leads out"),
        ("gs://b/x.jsonl", "the only remote place is s3://"),
        ("x-{date}.jsonl", "{date}"),
        ("x\\n.jsonl", "control"),
    ],
)
def test_an_entry_that_makes_no_sense_or_leaves_the_data_folder_is_refused(
    entry: str, words: str
) -> None:
    """A job cannot write to every place that the leader can write to."""
    with pytest.raises(JobError, match=words):
        parse_job(f'name = "x"\n[output]\nto = ["{entry}"]', "f")


def test_an_entry_twice_and_negative_rotation_are_refused() -> None:
    """Two writers of one file would damage it."""
    for text in ('to = ["jsonl", "jsonl"]', "rotate_bytes = -1", "rotate_seconds = -0.5"):
        key = text.partition(" ")[0]
        with pytest.raises(JobError, match=rf"^f: output\.{key}"):
            parse_job(f'name = "x"\n[output]\n{text}', "f")


def test_a_part_has_a_name_that_follows_from_its_number() -> None:
    """One file where nothing rotates, unless its run is reopened after its end."""
    assert part_path("a/x.jsonl", 0, False) == "a/x.jsonl"
    assert part_path("a/x.parquet", 1, False) == "a/x-00001.parquet"
    assert part_path("a.b/x.warc.gz", 3, True) == "a.b/x-00003.warc.gz"
    assert part_path("x-{part}.csv", 12, False) == "x-00012.csv"
    assert key_of("s3://bucket/a/b.jsonl") == ("s3://bucket", "a/b.jsonl")


def test_an_archive_among_the_outputs_makes_workers_keep_exchanges() -> None:
    """As does the key for it."""
    assert wants_capture(JobSpec("x", output=OutputSpec(to=("warc",))))
    assert wants_capture(JobSpec("x", output=OutputSpec(to=("a.warc.gz",))))
    assert wants_capture(JobSpec("x", output=OutputSpec(capture=True)))
    assert not wants_capture(JobSpec("x", output=OutputSpec(to=("jsonl",))))


def test_columns_come_from_the_job_and_not_from_the_first_items() -> None:
    """Types, nesting, defaults of another type, and blocks that disagree."""
    text = """
name = "x"
[[extract]]
structured = ["opengraph"]
[extract.fields]
a = "p"
n = { css = "p", type = "int", default = 0 }
odd = { css = "p", type = "int", default = "none" }
l = { css = "p", type = "float", list = true }
o = { css = "p", fields = { b = { css = "i", type = "bool" } } }
j = { json = "x" }
[[extract]]
fields = { a = { css = "p", type = "int" }, z = "z" }
[[extract]]
follow = ["a"]
"""
    assert columns_of(parse_job(text, "f")) == {
        "url": "string",
        "a": "json",
        "n": "int",
        "odd": "json",
        "l": ListOf("float"),
        "o": ObjectOf((("b", "bool"),)),
        "j": "json",
        "opengraph": "json",
        "z": "string",
    }
    default = layout_of(JobSpec("x"))
    assert default.columns is not None
    assert default.rest == ""
    assert list(default.columns)[:3] == ["url", "final_url", "status"]
    assert default.columns["status"] == "int"
    assert "screenshot" not in default.columns
    shot = layout_of(JobSpec("x", browser=Browser(screenshot="view")))
    assert shot.columns == {**default.columns, "screenshot": "string"}


def test_columns_of_items_made_by_code_come_from_their_schema_or_from_them() -> None:
    """And there is a column for what they have besides."""
    assert layout_of(JobSpec("x", spider="a:B")) == Layout(None, "_more")
    assert layout_of(JobSpec("x", kind="count")) == Layout(None, "_more")
    stamped = layout_of(JobSpec("x", middlewares=("stamp",)))
    assert stamped.rest == "_more"
    assert stamped.columns is not None
    assert "url" in stamped.columns
    schema = {
        "properties": {
            "n": {"type": "integer"},
            "f": {"type": ["number", "null"]},
            "t": {"type": "array", "items": {"type": "string"}},
            "e": {"enum": ["a"]},
            "o": {"type": "object"},
        }
    }
    assert layout_of(JobSpec("x", spider="a:B", schema=schema)).columns == {
        "n": "int",
        "f": "float",
        "t": ListOf("string"),
        "e": "json",
        "o": "json",
    }
