"""What changed between two versions of a job's spec."""

from __future__ import annotations

from zcrawl.submit.differences import MOST_CHANGES, changes


def test_each_key_with_another_value_has_a_line() -> None:
    """Also keys that were added or removed, and keys of tables in tables."""
    before = b'{"name":"a","scope":{"max_depth":3,"hosts":["a.test"]},"tags":["x"]}'
    after = b'{"name":"a","scope":{"max_depth":4,"hosts":["a.test"]},"fail_above":0.2}'
    assert changes(before, after) == [
        "scope.max_depth: 3 → 4",
        'tags: ["x"] → not set',
        "fail_above: not set → 0.2",
    ]
    assert changes(before, before) == []


def test_a_spider_is_named_by_its_hash() -> None:
    """Its text may be long."""
    before = b'{"code":{"sha256":"aa","source":"' + b"x" * 10_000 + b'"}}'
    after = b'{"code":{"sha256":"bb","source":"' + b"y" * 10_000 + b'"}}'
    assert changes(before, after) == ['code.sha256: "aa" → "bb"']


def test_long_texts_and_many_changes_are_cut() -> None:
    """A view has to stay readable."""
    (line,) = changes(b"{}", b'{"name":"' + b"z" * 5_000 + b'"}')
    assert len(line) < 300
    many = b"{" + b",".join(b'"k%d":1' % n for n in range(MOST_CHANGES + 5)) + b"}"
    lines = changes(b"{}", many)
    assert (len(lines), lines[-1]) == (MOST_CHANGES + 1, "and 5 more")


def test_a_spec_that_cannot_be_read_has_no_keys() -> None:
    """Nothing may stop a view."""
    assert changes(b"\xff", b'{"name":"a"}') == ['name: not set → "a"']
