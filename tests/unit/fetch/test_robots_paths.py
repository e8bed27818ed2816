"""Rules of a robots.txt by the thousand."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zcrawl.fetch.robots import PathRules, RobotsRules, normal_path

SITE = "https://h.test"


def rules_of(lines: list[str]) -> RobotsRules:
    return RobotsRules.parse(200, ("User-agent: *\n" + "\n".join(lines)).encode(), "zcrawl")


def simply(rules: list[tuple[bool, str]], path: str) -> bool:
    """The verdict as the RFC words it: try each rule, take the longest."""
    best, verdict = -1, True
    for allowed, rule in rules:
        pattern = re.escape(rule).replace(r"\*", ".*")
        pattern = pattern.removesuffix(r"\$") + r"\Z" if rule.endswith("$") else pattern
        if re.match(pattern, path) and (len(rule), allowed) > (
            best,
            verdict if best >= 0 else False,
        ):
            best, verdict = len(rule), allowed
    return verdict


PIECES = st.lists(st.sampled_from("ab/*"), min_size=1, max_size=6).map("".join)
RULES = st.tuples(st.booleans(), st.builds("/{}{}".format, PIECES, st.sampled_from(["", "$"])))
PATHS = st.lists(st.sampled_from("ab/"), max_size=9).map(lambda chars: "/" + "".join(chars))


@settings(deadline=None, max_examples=200)
@given(st.lists(RULES, max_size=30), PATHS, st.booleans())
def test_the_index_changes_no_verdict(rules: list[tuple[bool, str]], path: str, many: bool) -> None:
    """Few rules are tried one by one, many are found by their parts: the answer is the same."""
    filler = [(False, f"/*{number:03}*x") for number in range(150)] if many else []
    assert PathRules(rules + filler).allow(path) is simply(rules, path)


@pytest.mark.parametrize(
    "line",
    [
        "Disallow: /*x{}y*z",
        "Disallow: /*/product-{}.html",
        "Disallow: /catalog*id={}&",
        "Allow: /p{}/",
    ],
)
def test_a_file_of_the_largest_size_costs_little_for_each_url(line: str) -> None:
    """25,000 rules took 60 to 143 ms for each URL."""
    rules = rules_of(["Disallow: /never", *(line.format(number) for number in range(15_000))])
    urls = [f"{SITE}/shop/product-{number}x.html?id=99{number}" for number in range(100)]
    began = time.process_time()
    assert all(rules.allows(url) for url in urls)
    assert time.process_time() - began < 0.5  # 5 ms each; about 0.04 are needed
    url = SITE + line.partition(" ")[2].format(14_999).replace("*", "-") + "1z"
    assert rules.allows(url) is line.startswith("Allow")


def test_a_file_that_was_written_to_do_harm_forbids() -> None:
    """Thousands of rules that almost match: after 2,000 of them the answer is no."""
    letters = "abcdefghijklmnop"
    wrong_order = [
        f"Disallow: /*{c}*{b}*{a}" for a in letters for b in letters for c in letters if a < b < c
    ]
    many = [f"{rule}*{end}" for rule in wrong_order for end in "abcde"]
    url = f"{SITE}/{letters * 2}"
    began = time.process_time()
    verdicts = [rules_of(rules).allows(url) for rules in (wrong_order[:1_900], many)]
    assert time.process_time() - began < 3.0  # parsing included
    assert verdicts[1] is False


def test_an_endless_path_takes_no_time() -> None:
    """8,000 characters against patterns that fit almost everywhere."""
    rules = rules_of([f"Disallow: /*a*a*a{'*a' * (n % 50)}*z{n}" for n in range(5_000)])
    began = time.process_time()
    assert rules.allows(f"{SITE}/{'a' * 8_000}")
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("path", "other", "same"),
    [
        ("/a%2fb", "/a%2Fb", True),
        ("/%7Ejoe", "/~joe", True),
        ("/a?b", "/a%3Fb", True),
        ("/caf\u00e9", "/caf%C3%A9", True),
        ("/a*", "/a%2A", True),
        ("/a%2Fb", "/a/b", False),
        ("/a%25b", "/a%b", False),
        ("/%E4", "/%E5", False),
        ("/a", "/A", False),
    ],
)
def test_paths_are_compared_by_what_their_escapes_stand_for(
    path: str, other: str, same: bool
) -> None:
    """All escapes but those of `/` and `%`; bytes that are no UTF-8 stay apart."""
    assert (normal_path(path) == normal_path(other)) is same
