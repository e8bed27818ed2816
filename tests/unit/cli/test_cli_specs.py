"""From arguments to a submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from zcrawl.cli.specs import (
    MAX_LINE,
    check_writable,
    output_for,
    prepare,
    read_lines,
    split_sources,
)
from zcrawl.errors import BadUrl, JobError, UsageError
from zcrawl.model.spec import JobSpec, OutputSpec


def test_a_url_alone_is_a_job_named_after_its_host() -> None:
    """`zcrawl crawl URL` needs nothing else."""
    made = prepare(["https://a.example/x"], None, None, {})
    assert made.spec.name == "a.example"
    assert made.spec.seeds == ("https://a.example/x",)
    assert made.first == ["https://a.example/x"]
    assert not made.more


def test_flags_change_what_the_file_says_and_urls_replace_its_seeds(tmp_path: Path) -> None:
    """The command line wins, key by key."""
    file = tmp_path / "job.toml"
    file.write_text('name = "n"\nseeds = ["https://a/"]\n[scope]\nmax_depth = 1\nmax_pages = 5\n')
    made = prepare(["https://b/"], str(file), None, {"scope.max_depth": 9})
    assert made.spec.name == "n"
    assert (made.spec.scope.max_depth, made.spec.scope.max_pages) == (9, 5)
    assert made.first == ["https://b/"]
    assert prepare([], str(file), None, {}).first == ["https://a/"]


def test_seeds_of_a_file_stream_behind_those_of_the_spec(tmp_path: Path) -> None:
    """The spec holds what was typed; five million lines stay in their file."""
    file = tmp_path / "seeds.txt"
    file.write_text("".join(f"https://a/{n}\n" for n in range(2_500)))
    made = prepare(["https://b/"], None, str(file), {"name": "n"})
    assert made.spec.seeds == ("https://b/",)
    assert made.first[:2] == ["https://b/", "https://a/0"]
    assert made.more
    assert sum(map(len, made.rest)) + len(made.first) == 2_501


def test_a_job_from_a_seed_file_is_named_after_its_first_host(tmp_path: Path) -> None:
    """A name is found without reading the whole stream."""
    file = tmp_path / "seeds.txt"
    file.write_text("# mine\nhttps://a.example/\nhttps://b.example/\n")
    assert prepare([], None, str(file), {}).spec.name == "a.example-and-others"


def test_nothing_is_submitted_when_a_seed_is_bad(tmp_path: Path) -> None:
    """The message has the number and the text of the line."""
    file = tmp_path / "seeds.txt"
    file.write_bytes(b"https://a/\n\xff\xfe\n")
    with pytest.raises(BadUrl, match=r"line 2"):
        prepare([], None, str(file), {})


def test_no_seed_at_all_is_a_usage_error(tmp_path: Path) -> None:
    """Whether nothing was given or an empty file."""
    file = tmp_path / "seeds.txt"
    file.write_text("# nothing\n")
    for seeds in (None, str(file)):
        with pytest.raises(UsageError, match="nothing to crawl"):
            prepare([], None, seeds, {})


def test_a_job_file_that_is_no_text_is_a_named_error(tmp_path: Path) -> None:
    """The message has the line and the byte that is not UTF-8, or says that it is a folder."""
    file = tmp_path / "job.toml"
    file.write_bytes(b'# a job\r\nname = "caf\xe9"\r\n')
    with pytest.raises(JobError, match=r"line 2: byte 0xe9 is not UTF-8; save the file with"):
        prepare([], str(file), None, {})
    with pytest.raises(JobError, match="this is a folder; name a file"):
        prepare([], str(tmp_path), None, {})


def test_a_byte_order_mark_is_not_part_of_a_job_file(tmp_path: Path) -> None:
    """Some editors write one, and nobody can see it."""
    file = tmp_path / "job.toml"
    file.write_bytes(b'\xef\xbb\xbfname = "n"\r\nseeds = ["https://a/"]\r\n')
    assert prepare([], str(file), None, {}).spec.name == "n"


def test_a_seed_that_is_not_utf8_is_refused_as_such(tmp_path: Path) -> None:
    """The line holds a byte of another encoding; the address may be right otherwise."""
    file = tmp_path / "seeds.txt"
    file.write_bytes(b"https://a/\ncaf\xe9.example\n")
    with pytest.raises(BadUrl, match=r"line 2: .* has a byte that is not UTF-8"):
        prepare([], None, str(file), {})


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    """The rest of an endless line is dropped; the next line is whole."""
    file = tmp_path / "seeds.txt"
    file.write_text("x" * (3 * MAX_LINE + 5) + "\nhttps://a/\n")
    assert [len(line) for line in read_lines(str(file))] == [MAX_LINE, len("https://a/\n")]


def test_the_output_is_found_by_its_name(tmp_path: Path) -> None:
    """By default beside the data, with the run's number in its name; `-` is stdout."""
    assert output_for("-", tmp_path, JobSpec("n")) is None
    assert output_for(None, tmp_path, JobSpec("a b")) == (
        str(tmp_path / "a_b-{run}.jsonl"),
        "jsonl",
    )
    assert output_for(str(tmp_path / "x.csv"), tmp_path, JobSpec("n")) == (
        str(tmp_path / "x.csv"),
        "csv",
    )
    assert not (tmp_path / "x.csv").exists()
    own = JobSpec("n", output=OutputSpec(to=("sql", "parquet", "a/{name}.csv")))
    assert output_for(None, tmp_path, own) == ("n-{run}.parquet", "parquet")
    remote = output_for("s3://b/x.warc.gz", tmp_path, JobSpec("n"))
    assert remote == ("s3://b/x.warc.gz", "warc")


def test_an_output_that_cannot_be_written_is_told_before_the_crawl(tmp_path: Path) -> None:
    """A file that exists keeps its content while that is found out."""
    with pytest.raises(UsageError) as caught:
        output_for(str(tmp_path / "no" / "x.csv"), tmp_path, JobSpec("n"))
    assert caught.value.code == "out_unwritable"
    kept = tmp_path / "kept.csv"
    kept.write_text("kept")
    check_writable(kept)
    assert kept.read_text() == "kept"


def test_submit_takes_one_job_file_or_urls(tmp_path: Path) -> None:
    """A file is known by its suffix, or by being there."""
    file = tmp_path / "job"
    file.write_text("")
    assert split_sources(("a.toml",)) == ("a.toml", ())
    assert split_sources((str(file),)) == (str(file), ())
    assert split_sources(("https://a/x.toml", "https://b/")) == (
        None,
        ("https://a/x.toml", "https://b/"),
    )
    with pytest.raises(UsageError):
        split_sources(("a.toml", "b.toml"))


def test_seeds_of_a_list_do_not_vouch_and_the_operators_own_do(tmp_path: Path) -> None:
    """What was typed, or stands in the job file that was named, is sent as vouched for."""
    (tmp_path / "list").write_text("http://10.0.0.1/\n")
    (tmp_path / "job.toml").write_text('name = "j"\nseeds = ["http://10.0.0.2/"]\n')
    listed = prepare([], None, str(tmp_path / "list"), {})
    assert listed.args("new", None)["vouched"] == []
    typed = prepare(["http://10.0.0.3/"], None, str(tmp_path / "list"), {})
    assert typed.args("new", None)["vouched"] == ["http://10.0.0.3/"]
    own = prepare([], None, str(tmp_path / "list"), {}, lists_vouch=True)
    assert own.args("new", None)["vouched"] == own.first
    filed = prepare([], str(tmp_path / "job.toml"), None, {})
    assert filed.args("new", None)["vouched"] == ["http://10.0.0.2/"]
