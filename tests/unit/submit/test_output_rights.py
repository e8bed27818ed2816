"""Which files and objects a job's outputs may be: names, prefixes, and who asks."""

from __future__ import annotations

from typing import Any

import pytest

from zcrawl.errors import RefusedError
from zcrawl.model.spec import JobSpec, OutputSpec
from zcrawl.submit.output_rights import OUTPUTS, Located, OutputRights
from zcrawl.submit.prefixes import OutputName, place_of, prefix_above, prefix_of

ALLOW = ("s3://crawls/mine/", "s3://whole", "/srv/crawls")
CLUSTER = OutputRights(ALLOW)
OWNER = OutputRights(owner=True)
PLAIN = JobSpec("x")


def code(rights: OutputRights, given: Any, *to: str) -> str:
    """The code of the refusal; empty if there is none."""
    try:
        rights.settle(JobSpec("x", output=OutputSpec(to=to or ("sql",))), given)
    except RefusedError as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    "path",
    [
        "x.jsonl",
        "a/b/x.jsonl",
        "./x.jsonl",
        "a//b/x.jsonl",
        "..x/x..jsonl",
        "s3://crawls/mine/x.jsonl",
        "s3://crawls/mine/a/{name}-{run}-{part}.jsonl",
        "s3://whole/x.jsonl",
        "/srv/crawls/x.jsonl",
        "/srv//crawls/./a/x.jsonl",
    ],
)
def test_a_cluster_writes_inside_its_outputs_and_its_prefixes(path: str) -> None:
    """Whether the request names the path or the job does."""
    assert CLUSTER.settle(PLAIN, [path, "jsonl"]) == (path, "jsonl")
    assert code(CLUSTER, None, path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/x.jsonl",
        "/etc/x.jsonl",
        "/srv/crawls-evil/x.jsonl",
        "/srv/crawls.jsonl",
        "/srv/crawls/../x.jsonl",
        "/srv/x/../crawls/x.jsonl",
        "../x.jsonl",
        "a/../x.jsonl",
        "a/../../x.jsonl",
        "~/x.jsonl",
        "~root/x.jsonl",
        "a\0.jsonl",
        "a\n.jsonl",
        "x" * 2_000 + ".jsonl",
        "s3://crawls/x.jsonl",
        "s3://crawls/mine-evil/x.jsonl",
        "s3://crawls/mine.jsonl",
        "s3://crawls/minex.jsonl",
        "s3://crawls/mine/../x.jsonl",
        "s3://crawls/mine/./x.jsonl",
        "s3://crawls/mine//x.jsonl",
        "s3://crawls//mine/x.jsonl",
        "s3://crawls/mine/%2e%2e/x.jsonl",
        "s3://crawls/mine/%2E./x.jsonl",
        "s3://crawls/mine\\..\\x.jsonl",
        "s3://crawls/mine/x?y.jsonl",
        "s3://crawls/mine/#x.jsonl",
        "s3://crawls@evil/mine/x.jsonl",
        "s3://crawls:9/mine/x.jsonl",
        "s3://evil/mine/x.jsonl",
        "s3:///mine/x.jsonl",
        "s3://CRAWLS/mine/x.jsonl",
        "S3://crawls/mine/x.jsonl",
        "https://crawls/mine/x.jsonl",
        "file:///srv/crawls/x.jsonl",
    ],
)
def test_a_cluster_writes_nowhere_else(path: str) -> None:
    """Prefixes are compared by segments, and a name that could mean two things means none."""
    assert code(CLUSTER, [path, "jsonl"]) == "path_not_allowed"
    assert code(OutputRights(), [path, "jsonl"]) == "path_not_allowed"
    with pytest.raises(RefusedError):
        CLUSTER.locate(path)
    if path:
        assert code(CLUSTER, None, path) == "path_not_allowed"


@pytest.mark.parametrize("path", ["s3://crawls/mine/x.jsonl", "/srv/crawls/x.jsonl"])
def test_without_prefixes_a_cluster_writes_inside_its_outputs_only(path: str) -> None:
    """What is not named is not allowed."""
    assert code(OutputRights(), [path, "jsonl"]) == "path_not_allowed"
    assert code(OutputRights(), ["x.jsonl", "jsonl"]) == ""


def test_the_machines_own_user_may_type_any_path_and_the_job_file_may_not() -> None:
    """A job file may come from somebody else; what is typed does not. S3 needs credentials that
    the user gave."""
    for path in ("/anywhere/x.jsonl", "../x.jsonl", "a\0.jsonl", "s3://b/../x.jsonl"):
        assert OWNER.settle(PLAIN, [path, "jsonl"]) == (path, "jsonl")
        assert OWNER.locate(path) is None
    assert code(OWNER, None, "/anywhere/x.jsonl") == "path_not_allowed"
    spec = JobSpec("j", output=OutputSpec(to=("/anywhere/x.jsonl",)))
    with pytest.raises(RefusedError, match="name this file with --out instead of in the job"):
        OWNER.settle(spec, None)
    assert code(OWNER, None, "s3://any/x.jsonl") == ""
    assert code(OutputRights(("/srv/crawls/",), owner=True), None, "/srv/crawls/x.jsonl") == ""


@pytest.mark.parametrize(
    "given",
    [
        "x.jsonl",
        ["x.jsonl"],
        ["x.jsonl", "csv"],
        ["x.jsonl", 1],
        [["x.jsonl"], "jsonl"],
        ["x", "jsonl"],
        ["x.jsonl", "plugin"],
        ["plugin:", "plugin"],
        ["plugin:../x", "plugin"],
        ["plugin:x", "jsonl"],
        {"path": "x.jsonl"},
        ["x.jsonl", "jsonl", "more"],
    ],
)
def test_an_output_that_is_no_path_with_its_format_is_a_bad_request(given: Any) -> None:
    """Also of the machine's own user: a writer would fail at it for ever."""
    assert code(CLUSTER, given) == code(OWNER, given) == "bad_request"


def test_a_plugins_store_is_the_operators_and_needs_no_path() -> None:
    """It is installed on the masters, under a name."""
    assert CLUSTER.settle(PLAIN, ["plugin:store", "plugin"]) == ("plugin:store", "plugin")
    assert code(CLUSTER, None, "plugin:store") == ""


def test_where_an_output_lies_is_told_with_the_folder_that_it_must_not_leave() -> None:
    """The place has the allowed folder, so that the file is opened from there."""
    assert CLUSTER.locate("a/x.jsonl") == Located(OUTPUTS, ("a", "x.jsonl"))
    assert CLUSTER.locate("/srv/crawls/a/x.csv") == Located("/srv/crawls", ("a", "x.csv"))


@pytest.mark.parametrize("name", ["..", "a/b", "../../etc/x", "/etc/x", "{run}", "a\\b"])
def test_a_jobs_name_leads_nowhere(name: str) -> None:
    """It becomes a part of a file's name, without separators and without dots at its ends."""
    spec = JobSpec(name, output=OutputSpec(to=("jsonl", "deep/{name}.csv")))
    assert CLUSTER.settle(spec, None) is None


@pytest.mark.parametrize(
    "text", ["", "relative/", "/", "//", "~/x", "/a/../b", "s3://", "http://x/"]
)
def test_a_prefix_that_is_none_is_refused(text: str) -> None:
    """A rule that cannot be read must not be taken for another."""
    with pytest.raises(ValueError, match=r"\w"):
        prefix_of(text)


def test_a_place_lies_below_a_prefix_and_no_prefix_below_itself() -> None:
    """Segment by segment, in the same root."""
    bucket = prefix_of("s3://bucket")
    assert bucket == OutputName("s3://bucket", ())
    assert prefix_above(place_of("s3://bucket/x"), [bucket]) == bucket
    assert prefix_above(place_of("s3://bucket"), [bucket]) is None
    assert prefix_above(place_of("b/x"), [prefix_of("/b")]) is None
    assert str(place_of("/a//b/")) == "/a/b"
    assert str(place_of("s3://bucket/c/")) == "s3://bucket/c"
