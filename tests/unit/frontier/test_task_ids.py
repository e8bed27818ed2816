"""Seeds of jobs that are not crawls: URLs have a host, other texts are ids of tasks."""

from __future__ import annotations

import pytest

from zcrawl.errors import BadUrl, JobError
from zcrawl.frontier.tasks import check_task_id, is_task_id, task_key
from zcrawl.frontier.url import CANONICAL_VERSION, CanonicalRules
from zcrawl.master.desk import seeds
from zcrawl.submit.seeds import SeedLines, check_task
from zcrawl.submit.validate import spec_from_dict

RULES = CanonicalRules(version=CANONICAL_VERSION)


@pytest.mark.parametrize("text", ["7", "customers/2026-11", "größe", "ftp://x", "a b", "x" * 2_000])
def test_any_text_may_be_the_id_of_a_task(text: str) -> None:
    """It is kept as it is, and has no host."""
    assert is_task_id(text)
    assert check_task_id(text) == check_task(text) == text
    (seed,) = seeds.read([text], RULES, takes_ids=True)
    assert (seed.url, seed.origin, seed.key) == (text, "", task_key(text))
    assert seeds.netlocs((seed,)) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("x" * 2_001, "2001 characters; at most 2000"),
        ("a\nb", "control characters"),
        ("a\x00", "control characters"),
        ("a\x85", "control characters"),
        ("a\udc80", "not UTF-8"),
    ],
)
def test_a_text_that_cannot_be_an_id_is_refused_with_the_reason(text: str, words: str) -> None:
    """Control characters would change lists and logs; half characters cannot be stored."""
    with pytest.raises(BadUrl, match=words):
        check_task(text)
    with pytest.raises((BadUrl, JobError), match=words):
        spec_from_dict({"name": "t", "kind": "mine", "seeds": [text]}, "job.toml")


def test_a_url_keeps_its_host_and_an_invalid_one_is_refused() -> None:
    """What begins with http:// is meant as a URL."""
    (seed,) = seeds.read(["HTTP://A.test"], RULES, takes_ids=True)
    assert (seed.url, seed.origin) == ("http://a.test/", "http://a.test")
    with pytest.raises(BadUrl):
        check_task("http://")


def test_ids_differ_from_each_other_and_from_urls() -> None:
    """Two seeds with the same id are one task."""
    read = seeds.read(["a", "b", "a", "http://a.test/"], RULES, takes_ids=True)
    assert [seed.url for seed in read] == ["a", "b", "http://a.test/"]
    assert len({seed.key for seed in read}) == 3


def test_a_crawl_takes_urls_only() -> None:
    """A word is not a page."""
    with pytest.raises(BadUrl):
        seeds.read(["a"], RULES)
    with pytest.raises(JobError, match="seeds, entry 1"):
        spec_from_dict({"name": "t", "seeds": ["7"]}, "job.toml")


def test_ids_come_from_a_file() -> None:
    """Lines of a seed file, checked like ids."""
    lines = SeedLines(["one", "", "# two", "three"], "ids.txt", check=check_task)
    assert list(lines.chunks()) == [["one", "three"]]
