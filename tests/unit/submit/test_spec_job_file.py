"""Job files: what is accepted, what is refused, and what the refusal says."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.errors import JobError
from zcrawl.model.spec import JobSpec
from zcrawl.submit.keys import dotted_keys
from zcrawl.submit.read import (
    default_name,
    file_stem,
    from_json,
    overlay,
    parse_job,
    spec_from_dict,
    to_dict,
    to_json,
)
from zcrawl.submit.stored import read_stored

EXAMPLE = Path(__file__).parents[3] / "configs" / "job-example.toml"


def refusal(text: str) -> str:
    with pytest.raises(JobError) as caught:
        parse_job(text, "job.toml")
    return str(caught.value)


def test_the_example_file_is_a_valid_job_that_names_every_key() -> None:
    """configs/job-example.toml parses, and no key of the spec is missing from it."""
    text = EXAMPLE.read_text()
    spec = parse_job(text, "example")
    assert spec.name == "python-docs"
    assert spec.scope.max_depth == 5
    assert spec.politeness.hours == (), "README submits it and waits: it must not wait for a night"
    for key in dotted_keys(JobSpec):
        assert f"{key.rpartition('.')[2]} = " in text or f"[[{key}]]" in text, key


def test_a_name_alone_is_a_job_with_all_defaults() -> None:
    """Every key but the name has a default."""
    assert parse_job('name = "x"', "job.toml") == JobSpec(name="x")


def test_a_name_is_required() -> None:
    """A job file without a name is refused with the name of the missing key."""
    assert refusal("") == "job.toml: the key 'name' is missing; add name = ..."


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ('nmae = "x"', "nmae", "name"),
        ("[scope]\nmax_dept = 1", "scope.max_dept", "scope.max_depth"),
        ("[politness]\nrate = 1", "politness", "politeness"),
        ("rate = 1", "rate", "politeness.rate"),
        ("[fetch]\nconcurency = 1", "fetch.concurency", "politeness.concurrency"),
    ],
)
def test_an_unknown_key_is_named_with_its_file_and_the_nearest_known_key(
    text: str, key: str, hint: str
) -> None:
    """The message has all that is needed to mend the file."""
    assert refusal(text) == f"job.toml: unknown key {key!r}; did you mean {hint!r}?"


def test_an_unknown_key_without_a_near_one_gets_no_guess() -> None:
    """Without a similar key there is no hint, because a wrong hint would mislead."""
    assert refusal("zzzzqqq = 1") == "job.toml: unknown key 'zzzzqqq'"


def test_a_kind_that_is_a_slip_is_told() -> None:
    """Any kind that zcrawl does not know is a plugin's, unless it is a slip."""
    assert "did you mean 'crawl'?" in refusal('name = "x"\nkind = "crawls"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 5", "name: text in quotes is needed, not a whole number"),
        (
            'seeds = "https://x/"',
            'seeds: a list is needed, not text in quotes (write it in brackets: ["..."])',
        ),
        (
            '[scope]\nmax_depth = "3"',
            "scope.max_depth: a whole number is needed, not text in quotes (write it without "
            "quotes)",
        ),
        (
            "[politeness]\nrobots = 1",
            "politeness.robots: true or false is needed, not a whole number",
        ),
        (
            "[politeness]\nconcurrency = true",
            "politeness.concurrency: a whole number is needed, not true or false",
        ),
        (
            "politeness = 3",
            "politeness: a table is needed, not a whole number (write a section, [politeness], "
            "with keys below it)",
        ),
        ("seeds = [1]", "seeds, entry 1: text in quotes is needed, not a whole number"),
    ],
)
def test_a_wrong_type_is_told_with_the_key_and_both_types(text: str, message: str) -> None:
    """Numbers in quotes and the like are refused, not converted."""
    prefix = "" if text.startswith("name") else 'name = "x"\n'
    assert refusal(prefix + text) == f"job.toml: {message}"


@pytest.mark.parametrize(
    "text",
    [
        'name = ""',
        'name = "   "',
        'name = "12"',
        'name = "a\\nb"',
        f'name = "{"x" * 201}"',
        '[scope]\nhosts = ["https://x/"]',
        "[scope]\ninclude = ['(']",
        "[scope]\nexclude = ['[']",
        "[scope]\nmax_depth = -1",
        "[scope]\nmax_pages = 0",
        "[scope]\nmax_pages = 99999999999",
        "[politeness]\nrate = -1",
        "[politeness]\nrate = nan",
        "[politeness]\nrate = inf",
        "[politeness]\nburst = 0",
        "[politeness]\nconcurrency = 0",
        "[fetch]\ntimeout = 0",
        "[fetch]\nconnect_timeout = -1",
        "[fetch]\nread_timeout = inf",
        "[fetch]\nmax_bytes = 0",
        "[fetch]\nmax_redirects = -1",
        "[fetch]\nretries = -1",
        "[fetch]\nretries = 101",
        '[fetch]\nuser_agent = ""',
        '[fetch]\nheaders = { "a b" = "c" }',
        '[fetch]\nheaders = { a = "c\\r\\nEvil: 1" }',
        '[fetch]\nheaders = { Content-Length = "5" }',
        '[fetch]\nheader_sets = [{ transfer-encoding = "chunked" }]',
        'seeds = ["ftp://x/"]',
        'seeds = ["nonsense"]',
    ],
)
def test_values_that_make_no_sense_are_refused(text: str) -> None:
    """Each has the right type and still cannot be run; the message begins with source and key."""
    prefix = "" if text.startswith("name") else 'name = "x"\n'
    key = text.partition(" =")[0].removeprefix("[").replace("]\n", ".")
    assert refusal(prefix + text).startswith(f"job.toml: {key}")


def test_text_that_is_no_toml_is_a_named_error_with_its_place() -> None:
    """tomllib's line and column reach the user."""
    assert "line 1" in refusal("name = x")
    assert "nested too deeply" in refusal("x = " + "[" * 100_000)


def test_a_bare_host_among_the_seeds_gets_its_remedy() -> None:
    """The most frequent mistake says what to write instead."""
    assert "Try https://example.com" in refusal('name = "x"\nseeds = ["example.com"]')


def test_the_stored_form_gives_the_same_spec_back() -> None:
    """JSON and dict round trips change nothing."""
    spec = parse_job(EXAMPLE.read_text(), "example")
    assert from_json(to_json(spec)) == spec
    assert spec_from_dict(to_dict(spec), "submission") == spec


def test_a_damaged_stored_form_is_a_named_error() -> None:
    """A row that was written by something else does not crash its reader."""
    for data in (b"", b"{", b"[]", b'{"name": 1}', b"\xff"):
        with pytest.raises(JobError):
            from_json(data)


def test_flags_are_laid_over_a_file() -> None:
    """Dotted keys replace values in their section and leave the others."""
    table = {"name": "x", "scope": {"max_depth": 1, "max_pages": 2}}
    assert overlay(table, {"name": "y", "scope.max_depth": 9, "fetch.retries": 0}) == {
        "name": "y",
        "scope": {"max_depth": 9, "max_pages": 2},
        "fetch": {"retries": 0},
    }
    assert table["scope"] == {"max_depth": 1, "max_pages": 2}
    with pytest.raises(JobError):
        overlay({"scope": 1}, {"scope.max_depth": 9})


def test_a_job_without_a_name_is_called_after_its_seeds_host() -> None:
    """The name is one that files and shells take without quoting."""
    assert default_name(["https://docs.python.org/3/"]) == "docs.python.org"
    assert default_name(["http://127.0.0.1:8000/"]) == "127.0.0.1-8000"
    assert default_name(["https://a.example/", "https://b.example/"]) == "a.example-and-others"
    assert default_name(["https://a.example/1", "http://a.example/2"]) == "a.example"
    assert spec_from_dict({"name": default_name(["http://[::1]:80/"])}, "x").name
    with pytest.raises(JobError):
        default_name([])


def test_any_name_becomes_a_part_of_a_file_name() -> None:
    """No slash, no leading dot, no empty name, no name too long for a file system."""
    assert file_stem("docs.python.org") == "docs.python.org"
    assert file_stem("../../etc/passwd") == "etc_passwd"
    assert file_stem("...") == "job"
    assert len(file_stem("ü" * 200).encode()) <= 100


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
job_keys = st.sampled_from([*dotted_keys(JobSpec), "scope", "fetch", "extract"])


@given(st.dictionaries(job_keys | st.text(max_size=8), values, max_size=5))
def test_whatever_a_client_sends_is_a_spec_or_a_job_error(changes: dict[str, Any]) -> None:
    """G7: no input makes the validation raise anything else."""
    try:
        spec = spec_from_dict(overlay({"name": "x"}, changes), "fuzz")
    except JobError:
        return
    assert from_json(to_json(spec)) == spec


MANY = 1_500_000
LONG = "a" * 1_500_000
REFUSED_JOBS: dict[str, dict[str, object]] = {
    "include": {"scope": {"include": [f"a{number}" for number in range(90_000)]}},
    "exclude": {"scope": {"exclude": ["a"] * 90_000}},
    "hosts": {"scope": {"hosts": ["a.test"] * MANY}},
    "seeds": {"seeds": ["http://a.test/"] * MANY},
    "as many seeds as once were allowed": {"seeds": ["http://a.test/"] * 100_000},
    "sitemaps": {"sitemaps": {"urls": ["http://a.test/"] * MANY}},
    "private hosts": {"fetch": {"private_hosts": ["a:1=10.0.0.0/8"] * 100_000}},
    "header sets": {"fetch": {"header_sets": [{f"h{n}": "v" for n in range(1_000)}] * 800}},
    "blocks": {"extract": [{"fields": {f"f{n}": "a b c" for n in range(500)}} for _ in range(100)]},
    "inner fields": {
        "extract": {"fields": {"o": {"fields": {f"f{n}": {"css": "a"} for n in range(90_000)}}}}
    },
    "follow": {"extract": {"follow": [{"css": "a", "re": "x"}] * 90_000}},
    "paths": {"extract": {"fields": {f"f{n}": {"json": "a.b.c || " * 90} for n in range(500)}}},
    "a long key": {LONG * 7: 1},
    "a long name of a header": {"fetch": {"headers": {LONG * 7: "v"}}},
    "a long value of a header": {"fetch": {"headers": {"h": "://" + ":" * 1_500_000}}},
    "a long spider": {"spider": "a." * 5_000_000 + ":Name"},
}
COSTLY_JOBS: dict[str, dict[str, object]] = {
    "hosts": {"scope": {"hosts": [f"ä{n}.test" for n in range(9_900)]}},
    "private hosts": {"fetch": {"private_hosts": [f"a{n}:1=10.0.0.0/8" for n in range(9_900)]}},
    "header sets": {"fetch": {"header_sets": [{f"h{n}": "v" for n in range(98)}] * 100}},
    "fields": {"extract": [{"fields": {f"f{n}": "a" for n in range(20)}} for _ in range(100)]},
    "seeds": {"seeds": [f"http://a.test/{n}/" + "ä" * 480 for n in range(1_000)]},
    "a name of a header": {"fetch": {"headers": {"x" * 490_000: "v"}}},
    "a value of a header": {"fetch": {"headers": {"h": "://" + ":" * 490_000}}},
}
STEP_S = 0.35  # 0.1 s and time for a slow machine


def check_s(table: dict[str, object]) -> float:
    began = time.process_time()
    with contextlib.suppress(JobError):
        spec_from_dict({"name": "j", **table}, "job")
    return time.process_time() - began


@pytest.mark.parametrize("table", REFUSED_JOBS.values(), ids=REFUSED_JOBS)
def test_a_job_that_is_too_large_is_refused_at_once(table: dict[str, object]) -> None:
    """The leader checks a job in its event loop: 16 MB of expressions took it a minute."""
    with pytest.raises(JobError):
        spec_from_dict({"name": "j", **table}, "job")
    assert min(check_s(table) for _ in range(3)) < STEP_S


@pytest.mark.parametrize("table", COSTLY_JOBS.values(), ids=COSTLY_JOBS)
def test_the_largest_jobs_are_checked_in_one_short_step(table: dict[str, object]) -> None:
    """So a submission never keeps the leader from its beats. Values of a header that are written
    to be slow took minutes."""
    spec = spec_from_dict({"name": "j", **table}, "job")
    assert min(check_s(table) for _ in range(3)) < STEP_S
    stored = to_json(spec)
    began = time.process_time()
    read_stored(stored)
    assert time.process_time() - began < 2 * STEP_S


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"seeds": ["http://a/"] * 1_001}, "seeds has 1001 entries; a job has at most 1000"),
        ({"sitemaps": {"urls": ["http://a/"] * 1_001}}, "sitemaps.urls has 1001 entries"),
        ({"scope": {"hosts": ["a"] * 10_001}}, "more than 10000 entries in its lists and tables"),
        ({"fetch": {"user_agent": "a" * 500_001}}, "more than 500000 characters"),
    ],
    ids=["seeds", "sitemaps", "entries", "characters"],
)
def test_the_refusal_of_a_large_job_names_the_limit(table: dict[str, object], words: str) -> None:
    """With a code, so that a program can split the job."""
    with pytest.raises(JobError, match=words) as refusal:
        spec_from_dict({"name": "j", **table}, "job")
    assert refusal.value.code == "job_too_large"
