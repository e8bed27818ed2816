"""The [extract] part of a job file: its short forms, and errors that name the key."""

from __future__ import annotations

import pytest

from zcrawl.errors import JobError
from zcrawl.model.extraction import Follow, ItemRule, Match
from zcrawl.submit.read import from_json, parse_job, to_json

LONG = "x" * 1001


def job(text: str) -> str:
    return 'name = "x"\n' + text


def test_short_forms_mean_the_long_ones() -> None:
    """One table is a list of one; a string is a selector, a pattern, a rule."""
    text = '[extract]\nmatch = "/b/"\nitem = "li"\nfollow = "a.next"\nfields = { t = "h1" }'
    (block,) = parse_job(job(text), "f").extract
    assert block.match == Match(url="/b/")
    assert block.item == ItemRule(css="li")
    assert block.follow == (Follow(css="a.next"),)
    assert block.fields["t"].css == "h1"


def test_a_spec_with_extraction_survives_storage() -> None:
    """The stored form is read back as the same spec."""
    text = "[[extract]]\nname='a'\nfollow=[]\n[[extract]]\nfields={a={css='b',fields={c='d'}}}"
    spec = parse_job(job(text), "f")
    assert from_json(to_json(spec)) == spec
    assert spec.extract[0].follow == ()
    assert spec.extract[1].follow is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[extract]\nfeilds = {}", ["f.toml", "'extract.feilds'", "'extract.fields'"]),
        (
            "[extract.fields]\np = { css = 'a', typ = 'int' }",
            ["'extract.fields.p.typ'", ".p.type'"],
        ),
        ("[[extract]]\n[[extract]]\nitm = 'a'", ["'extract[2].itm'", "'extract[2].item'"]),
        ("[extract]\nfollow = [{ too = 'a' }]", ["'extract.follow[1].too'", "follow[1].to'"]),
        (
            "[extract.fields]\na = { fields = { b = { cs = 'x' } } }",
            ["extract.fields.a.fields.b.cs"],
        ),
        ("[extract]\nmatch = { uri = 'a' }", ["extract.match.uri"]),
        (
            "[extract.fields]\na = { css = 'p', type = 'integer' }",
            ["extract.fields.a.type: 'integer'", "did you mean 'int'?"],
        ),
        ("[extract.fields]\na = { page = 'titel' }", ["fields.a.page", "did you mean 'title'?"]),
        ("[extract]\nstructured = ['json-ld']", ["extract.structured", "'jsonld'"]),
        ("[extract.fields]\na = 5", ["extract.fields.a is a whole number; write a CSS selector"]),
        ("extract = 3", ["'extract' is a section"]),
        ("extract = [3]", ["'extract' is a section"]),
        ("[extract.fields]\na = { css = 'b', type = 'money' }", ["extract", "money"]),
        ("[extract.fields]\na = 3", ["extract"]),
        ("[extract.fields]\na = {}", ["extract.fields.a does not say where its value is"]),
        ("[extract.fields]\na = { css = 'b', json = 'c' }", ["css and json"]),
        ("[extract.fields]\na = { json = 'b', attr = 'c' }", ["attr works with css only"]),
        ("[extract.fields]\na = { css = 'b', type = 'int', fields = { c = 'd' } }", ["object"]),
        ("[extract.fields]\na = { css = 'b', format = '%d' }", ["type = 'date'"]),
        ("[extract.fields]\na = { main = true, type = 'int' }", ["main content"]),
        (f"[extract.fields]\na = '{LONG}'", ["1001 characters"]),
        (
            "[extract]\nfollow = [{ css = 'a', to = 'bok' }]\nname = 'book'",
            ["no block named 'bok'", "'book'"],
        ),
        ("[[extract]]\nname = 'a'\n[[extract]]\nname = 'a'", ["two blocks are named 'a'"]),
        ("[extract]\nitem = { css = 'a', json = 'b' }", ["css and json"]),
    ],
)
def test_what_is_wrong_is_told_with_file_key_and_nearest_key(text: str, words: list[str]) -> None:
    """The user sees where to look and what was probably meant."""
    with pytest.raises(JobError) as caught:
        parse_job(job(text), "f.toml")
    for word in ["f.toml", *words]:
        assert word in str(caught.value), str(caught.value)


def test_fields_nest_only_so_deep_and_blocks_are_so_many() -> None:
    """A job file from anybody must not exhaust its reader."""
    deep = "{ css = 'a', fields = { b = " * 9 + "'x'" + " } }" * 9
    with pytest.raises(JobError, match="deep"):
        parse_job(job(f"[extract.fields]\na = {deep}"), "f")
    with pytest.raises(JobError, match="at most 100"):
        parse_job(job("[[extract]]\n" * 101), "f")
    many = "\n".join(f"f{n} = 'a'" for n in range(501))
    with pytest.raises(JobError, match="at most 500"):
        parse_job(job("[extract.fields]\n" + many), "f")
