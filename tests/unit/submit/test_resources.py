"""A job's list `resources`: what it may be, and which seeds it makes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.errors import JobError
from zcrawl.frontier.scope import canonical_rules
from zcrawl.frontier.url import CANONICAL_VERSION
from zcrawl.master.desk import seeds as seed_lists
from zcrawl.model.spec import JobSpec
from zcrawl.standalone.listed import listed_resources
from zcrawl.submit.read import to_json
from zcrawl.submit.resources import check_beside
from zcrawl.submit.validate import spec_from_dict

FEEDS = "https://feeds.example.com/${resource}.xml"
SHELL = {"command": "/bin/echo", "args": ["${seed}"]}


def job(**table: Any) -> JobSpec:
    return spec_from_dict({"name": "feeds", "resources": ["feed-1", "feed-2"], **table}, "job.toml")


def test_an_id_is_the_seed_of_a_task() -> None:
    """Of a shell job and of a plugin's job: `${seed}` is the id."""
    assert job(kind="shell", shell=SHELL).own_seeds == ("feed-1", "feed-2")
    assert job(kind="stamp", resources=["a b", "https://x.test/"]).own_seeds == (
        "a b",
        "https://x.test/",
    )


def test_an_id_is_filled_into_the_seeds() -> None:
    """Of a crawl, of a task, and into the URL of a call."""
    filled = ("https://feeds.example.com/feed-1.xml", "https://feeds.example.com/feed-2.xml")
    assert job(seeds=[FEEDS]).own_seeds == filled
    assert job(kind="http", http={"url": FEEDS}).own_seeds == filled
    assert job(kind="http", seeds=[FEEDS]).own_seeds == filled
    two = job(kind="shell", shell=SHELL, seeds=["a/${resource}", "b/${resource}"])
    assert two.own_seeds == ("a/feed-1", "b/feed-1", "a/feed-2", "b/feed-2")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "needs seeds with ${resource}"),
        ({"kind": "http"}, "needs seeds with ${resource}"),
        ({"seeds": [FEEDS, "https://a.test/"]}, "seeds, entry 2: ${resource} is missing"),
        ({"seeds": [FEEDS], "resources": []}, "the job has no resources"),
        ({"seeds": [FEEDS], "resources": ["a", "b", "a"]}, "has 'a' twice"),
        ({"seeds": [FEEDS], "resources": ["a", " "]}, "entry 2: its id is empty"),
        ({"seeds": [FEEDS], "resources": ["a\nb"]}, "control characters"),
        ({"seeds": [FEEDS], "resources": ["${X}"]}, "cannot contain ${…}"),
        ({"seeds": [FEEDS], "seeds_from": {"job": "lists"}}, "resources and seeds_from"),
        ({"seeds": [FEEDS], "sitemaps": {"urls": ["https://a.test/"]}}, "resources and sitemaps"),
    ],
)
def test_a_bad_list_is_refused_by_name(table: dict[str, Any], words: str) -> None:
    """With the entry that is wrong."""
    with pytest.raises(JobError) as refused:
        job(**table)
    assert words in str(refused.value)
    assert refused.value.code == "bad_resources"


def test_the_seeds_of_all_ids_are_bounded() -> None:
    """Before anything is filled in: entries, entries times seeds, and characters."""
    ids = [f"feed-{n}" for n in range(1_001)]
    for table in (
        {"resources": ids},
        {"resources": ids[:600], "seeds": [FEEDS, f"{FEEDS}?again"]},
        {"resources": [f"{n}{'x' * 900}" for n in range(300)]},
    ):
        with pytest.raises(JobError) as refused:
            job(**{"seeds": [FEEDS], **table})
        assert refused.value.code == "job_too_large"
    assert len(job(seeds=[FEEDS], resources=ids[:1_000]).own_seeds) == 1_000


def test_a_filled_seed_is_checked_like_any_seed() -> None:
    """The message has the entry."""
    with pytest.raises(JobError, match="resources, entry 2: "):
        job(seeds=["${resource}"], resources=["https://a.test/", "a.test"])


def test_seeds_beside_the_list_are_refused() -> None:
    """They would belong to no id, so every node would fetch them."""
    spec = job(seeds=[FEEDS])
    check_beside(spec, spec.own_seeds)
    with pytest.raises(JobError, match="of none of the job's resources"):
        check_beside(spec, ["https://other.test/"])
    check_beside(job(seeds=["https://a.test/"], resources=[]), ["https://other.test/"])


@given(
    st.lists(
        st.text(
            st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")),
            min_size=1,
            max_size=30,
        ),
        min_size=1,
        max_size=8,
        unique=True,
    ),
    st.sampled_from([(), ("x/${resource}",), ("https://a.test/?q=${resource}", "${resource}")]),
)
def test_each_admitted_row_has_an_id_of_the_list(ids: list[str], seeds: tuple[str, ...]) -> None:
    """So that no seed is done by all nodes, whatever the ids are."""
    try:
        spec = job(kind="stamp", resources=ids, seeds=list(seeds))
    except JobError:
        return  # an id that is no seed
    listed = listed_resources(to_json(spec), CANONICAL_VERSION)
    assert listed is not None
    rules = canonical_rules(spec.scope, CANONICAL_VERSION)
    rows = seed_lists.read(list(spec.own_seeds), rules, takes_ids=True)
    assert {row.url for row in rows} == set(listed)
    assert set(listed.values()) <= set(ids)
