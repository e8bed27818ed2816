"""Expectations of an HTTP task, its item, and the next request of a redirect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zcrawl.errors import RetryClass
from zcrawl.model.spec import HttpExpect
from zcrawl.text.redact import Redactor
from zcrawl.worker.results.http_answers import (
    Expectations,
    Unmet,
    failure_of,
    is_same,
    item_of,
    onward,
)

BODY = b'{"status": "ok", "n": 3, "ready": true, "items": [{"id": 1}], "none": null}'
HEADERS = [("Content-Type", "application/json; charset=utf-8"), ("X-A", "1"), ("X-A", "2")]


def unmet(
    expect: dict[str, Any], status: int = 200, body: bytes = BODY, ms: float = 10.0
) -> list[Unmet]:
    return Expectations(HttpExpect(**expect)).unmet(status, HEADERS, body, ms)


@pytest.mark.parametrize(
    "expect",
    [
        {},
        {"status": 200},
        {"status": "200"},
        {"status": ("404", "2xx")},
        {"headers": {"content-type": "application/json*"}},
        {"headers": {"x-a": "2", "CONTENT-TYPE": "*"}},
        {"json": {"status": "ok", "n": 3, "ready": True, "none": None}},
        {"json": {"n > `2`": True, "length(items)": 1, "items[0]": {"id": 1}, "items[].id": [1]}},
        {"latency_ms": 10.0},
    ],
)
def test_an_expectation_is_met(expect: dict[str, Any]) -> None:
    """Any status of 2xx if nothing else is said."""
    assert unmet(expect) == []


@pytest.mark.parametrize(
    ("answer", "expect", "what", "words"),
    [
        ({"status": 404}, {}, "status 404", "the status is 404, expected 2xx"),
        ({}, {"status": (201, 204)}, "status 200", "expected 201, 204"),
        ({}, {"headers": {"x-b": "*"}}, "header x-b", "x-b is missing, expected *"),
        ({}, {"headers": {"X-A": "3"}}, "header x-a", "is 1, 2, expected 3"),
        ({}, {"json": {"status": "up"}}, "json status", 'status is "ok", expected "up"'),
        ({}, {"json": {"n": True}}, "json n", "n is 3, expected true"),
        ({}, {"json": {"ready": 1}}, "json ready", "ready is true, expected 1"),
        ({}, {"json": {"missing": True}}, "json missing", "missing is null, expected true"),
        ({}, {"json": {"abs(status)": 1}}, "json abs(status)", "abs"),
        ({"body": b"<html>"}, {"json": {"a": 1}}, "json", "the body is not JSON: <html>"),
        ({"body": b"[" * 100_000}, {"json": {"a": 1}}, "json", "the body is not JSON"),
        ({"ms": 501.0}, {"latency_ms": 500.0}, "latency", "it took 501 ms, expected at most 500"),
    ],
)
def test_an_expectation_that_is_not_met_is_named(
    answer: dict[str, Any], expect: dict[str, Any], what: str, words: str
) -> None:
    """Short in the reason, with both values in the detail."""
    (problem,) = unmet(expect, **answer)
    assert problem.what == what
    assert words in problem.detail


def test_all_that_is_not_met_is_told_and_the_first_gives_the_name() -> None:
    """In the order status, headers, json, latency."""
    problems = unmet(
        {"headers": {"x-b": "*"}, "json": {"a": 1}, "latency_ms": 20.0}, 503, b"down", 50.0
    )
    assert [problem.what for problem in problems] == ["status 503", "header x-b", "json", "latency"]
    failure = failure_of(problems, 503, 7.0)
    assert failure.code == "unmet: status 503"
    assert (failure.retry, failure.retry_after_s) == (RetryClass.THROTTLED, 7.0)
    assert str(failure).count(";") == 3
    assert failure_of(problems[1:], 200, None).retry is RetryClass.TRANSIENT


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (True, 1, False),
        (0, False, False),
        (1, 1.0, True),
        ([1, {"a": True}], (1, {"a": True}), True),
        ([1, {"a": True}], [1, {"a": 1}], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("1", 1, False),
        (None, False, False),
    ],
)
def test_values_are_compared_as_json_does(left: Any, right: Any, same: bool) -> None:
    """In Python True equals 1."""
    assert is_same(left, right) is same


@pytest.mark.parametrize(
    ("method", "status", "result"),
    [
        ("POST", 301, ("GET", False)),
        ("POST", 302, ("GET", False)),
        ("PUT", 301, ("PUT", True)),
        ("DELETE", 302, ("DELETE", True)),
        ("GET", 302, ("GET", True)),
        ("HEAD", 301, ("HEAD", True)),
        ("POST", 303, ("GET", False)),
        ("PUT", 303, ("GET", False)),
        ("HEAD", 303, ("HEAD", False)),
        ("POST", 307, ("POST", True)),
        ("PATCH", 308, ("PATCH", True)),
    ],
)
def test_a_redirect_changes_the_method_only_as_rfc_9110_says(
    method: str, status: int, result: tuple[str, bool]
) -> None:
    """Section 15.4: 303 means GET, 301 and 302 only of a POST, 307 and 308 change nothing."""
    assert onward(method, status) == result


def test_a_redirect_that_is_expected_is_the_answer() -> None:
    """A check of a redirect does not follow it."""
    assert Expectations(HttpExpect(status=301)).has_status(301)
    assert Expectations(HttpExpect(status="3xx")).has_status(308)
    assert not Expectations(HttpExpect()).has_status(301)


def made(body: bytes, content_type: str = "", **more: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "requested_url": "u",
        "url": "u",
        "final_url": "u2",
        "method": "GET",
        "status": 200,
        "headers": [("Content-Type", content_type)] if content_type else [],
        "body": body,
        "elapsed_ms": 1.23,
        "attempt": 1,
        "unmet": [],
        "redactor": Redactor({"PW": "hunter2"}),
        **more,
    }
    item: dict[str, Any] = json.loads(item_of(**facts))
    return item


def test_a_body_is_text_or_base64_or_a_blob() -> None:
    """Text in the charset that the answer names; bytes that are not text stay bytes."""
    assert made(b"h\xc3\xa9")["body"] == "hé"
    assert made(b"h\xe9", "text/plain; charset=iso-8859-1")["body"] == "hé"
    assert made(b"h\xe9")["body_base64"] == "aOk="
    assert made(b"x", "text/plain; charset=punycode")["body"] == "x"
    large = made(b"", blob="abc")
    assert large["body_blob"] == "abc"
    assert not {"body", "body_base64", "requested_url", "body_error"} & large.keys()
    assert made(b"", blob_error="disk_full: x")["body_error"] == "disk_full: x"


def test_secrets_that_come_back_are_removed_from_an_item() -> None:
    """A server may repeat the headers of the request, in its own headers and in its body."""
    item = made(
        b'{"you sent": "Bearer hunter2"}',
        headers=[("X-Echo", "hunter2"), ("X-Echo", "b")],
        unmet=[Unmet("json", "a is hunter2")],
    )
    assert "hunter2" not in json.dumps(item)
    assert item["headers"]["x-echo"] == "${PW}, b"
    assert (item["met"], item["unmet"]) == (False, ["a is ${PW}"])
    assert "hunter2" not in json.dumps(made(b"\xffhunter2"))
