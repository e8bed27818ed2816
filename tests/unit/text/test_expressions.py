"""Expressions of a job: what is refused, where, and that what is taken has bounded cost."""

from __future__ import annotations

import pytest

from zcrawl.errors import BadExpression, JobError, TooManySteps
from zcrawl.frontier.scope import ScopeFilter
from zcrawl.model.spec import JobSpec, Login, Scope
from zcrawl.submit.validate import check, spec_from_dict
from zcrawl.text.expressions import MAX_LENGTH, compile_path, compile_pattern


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("a(?=b)", 1, "look-ahead"),
        ("ab(?!c)", 2, "negative look-ahead"),
        ("(?<=a)b", 0, "look-behind"),
        ("a(?<!x)b", 1, "negative look-behind"),
        (r"(a)\1", 3, "back-reference"),
        ("(?P<n>a)(?P=n)", 8, "back-reference"),
        ("(?>a)b", 0, "atomic group"),
        ("ab*+", 3, "possessive"),
        ("a{2}+", 4, "possessive"),
        ("(?(1)a|b)", 0, "conditional"),
        ("a(?#x)", 1, "comment"),
        (r"x\Z", 1, r"\z"),
        (r"x\u20ac", 1, r"\x{20ac}"),
        ("(?x)a", 0, "flags"),
        (r"[(?=](?!x)", 5, "negative look-ahead"),
        (r"\(?(?=x)", 3, "look-ahead"),
        (r"\Q(?=\E(?!x)", 7, "negative look-ahead"),
        ("ab(c", 2, "( without its )"),
        ("ab)c", 2, ") without its ("),
        ("ab[c", 2, "missing ]"),
        ("*a", 0, "repetition operator"),
        ("ab[z-a]", 3, "character class range"),
        (r"ab\y", 2, "escape"),
        ("ab\\", 2, "trailing"),
        ("((a{1000}){1000})", 10, "repetition size"),
        ("ab{5,2}", 2, "repetition size"),
        (".{900}", 1, "too large"),
        ("a" * (MAX_LENGTH + 1), MAX_LENGTH, "at most 1000"),
        ("a\ud800", 1, "Unicode"),
    ],
)
def test_what_re2_cannot_run_is_refused_with_its_place(
    text: str, position: int, reason: str
) -> None:
    """The key, the construct and the character at which it stands are in the error."""
    with pytest.raises(BadExpression) as caught:
        compile_pattern(text, "scope.exclude[1]")
    message = str(caught.value)
    assert caught.value.position == position
    assert caught.value.code == "bad_expression"
    assert "scope.exclude[1]" in message
    assert reason in message
    assert f"at character {position + 1}" in message


@pytest.mark.parametrize(
    "table",
    [
        {"scope": {"include": ["(?=x)"]}},
        {"scope": {"exclude": ["ok", "(?!x)"]}},
        {"login": {"url": "http://a.test/", "fields": {"user": "x"}, "success": "(?=x)"}},
        {"extract": {"match": "(?=x)", "fields": {"a": "p"}}},
        {"extract": {"fields": {"a": {"css": "p", "re": "(?=x)"}}}},
        {"extract": {"fields": {"a": {"fields": {"b": {"css": "p", "re": "(?=x)"}}}}}},
        {"extract": {"fields": {"a": "p"}, "follow": [{"css": "a", "re": "(?=x)"}]}},
    ],
)
def test_every_expression_of_a_job_is_judged_when_it_is_submitted(
    table: dict[str, object],
) -> None:
    """The leader refuses it by name: it does not wait for a worker to find out."""
    with pytest.raises(JobError) as caught:
        spec_from_dict({"name": "j", **table}, "submission")
    assert caught.value.code == "bad_expression"


def test_paths_are_judged_too() -> None:
    """A wrong JMESPath, a nested one and one that multiplies what it reads are refused."""
    doubling = "[@,@]" + "|[].[@,@]" * 40
    quoting = "to_string([" * 40 + "@" + "])" * 40
    for text in ("a[", "(" * 900, doubling, quoting, "a" * (MAX_LENGTH + 1)):
        with pytest.raises(JobError) as caught:
            spec_from_dict(
                {"name": "j", "extract": {"fields": {"a": {"json": text}}}}, "submission"
            )
        assert caught.value.code in ("bad_path", "job")
        with pytest.raises(JobError):
            compile_path(text, "p")
    assert compile_path("a[?b > `1`].{x: c, y: [d, e]} | [0]", "p")({"a": []}) is None


def test_a_scope_may_not_cost_too_much_altogether() -> None:
    """Many expressions together are bounded like one."""
    with pytest.raises(JobError) as caught:
        ScopeFilter(Scope(exclude=("[a-z]{900}x",) * 20), frozenset())
    assert caught.value.code == "bad_expression"
    assert ScopeFilter(Scope(exclude=(r"\.zip$",) * 20), frozenset()).cost < 1_000


def test_a_search_that_would_take_too_long_is_refused() -> None:
    """The bound counts one search in a long text, and thousands that each look to its end."""
    with pytest.raises(TooManySteps):
        compile_pattern("[a-z]{900}!", "p").first("a" * 10_000_000)
    with pytest.raises(TooManySteps):
        compile_pattern("a.*b|a", "p").all("a" * 1_000_000, 10_000)
    assert compile_pattern("a.*b|a", "p").all("aaa", 10) == ["a", "a", "a"]
    assert compile_pattern(r"x*", "p").all("axxb", 10) == ["", "xx", "", ""]
    assert compile_pattern(r"é(\d)", "p").all("é1 é2 é3", 2) == ["1", "2"]


def test_a_login_with_a_good_expression_is_fine() -> None:
    """RE2's own syntax, with names, flags in the middle and \\z."""
    success = r"(?P<who>\w+), (?i)welcome\z"
    check(JobSpec("j", login=Login("http://a.test/", {"user": "${USER}"}, success=success)))
