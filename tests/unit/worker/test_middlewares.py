"""Middlewares: any object with some of the points, and every item that one drops is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import assignment
from zcrawl import plugins
from zcrawl.errors import FetchError, PluginError
from zcrawl.fetch.ports import HopLimits
from zcrawl.frontier.url import DEFAULT
from zcrawl.mesh.messages import ExtractionReport, PageRecord
from zcrawl.plugins import Drop, Middleware
from zcrawl.result.plan import tallies_of
from zcrawl.worker.pipeline.outgoing import Sending
from zcrawl.worker.results.attempt import Attempt

CODE = """
class OnlyItems:
    def before_item(self, item, page): return {**item, "seen": page.url}
class OnlyRequests:
    async def before_request(self, request): request.headers["x"] = "y"
class Nothing:
    def before_items(self, items): return items
class TooFew:
    def before_item(self, item): return item
class TooMany:
    def after_response(self, request, response, page): return None
class NoMethod:
    before_request = "x"
class Keywords:
    def before_item(self, *args, **rest): return None
class HalfAParser:
    def accepts(self, url, content_type): return True
class WrongParser(HalfAParser):
    def parse(self, url, body): return None
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with entry points, as pip leaves it in a folder of the path."""
    (tmp_path / "plain_plugins.py").write_text(CODE)
    info = tmp_path / "plain_plugins-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-plugins\nVersion: 1\n")
    names = [
        line.split()[1].partition("(")[0].rstrip(":")
        for line in CODE.split("\n")
        if "class" in line
    ]
    lines = "\n".join(f"{name} = plain_plugins:{name}" for name in names)
    (info / "entry_points.txt").write_text(
        f"[zcrawl.middlewares]\n{lines}\n[zcrawl.parsers]\n{lines}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
def test_an_object_with_one_point_and_no_base_class_is_a_middleware() -> None:
    """As docs/plugins.md says: each point is optional, and none asks for a base class."""
    made = plugins.make_middleware("OnlyItems", {})
    facts = plugins.PageFacts("http://a.test/", "http://a.test/", 200, 0, 0.0)
    assert made.before_item({"a": 1}, facts) == {"a": 1, "seen": "http://a.test/"}
    request = plugins.Outgoing("http://a.test/", "GET", {}, b"", {}, 1)
    assert made.before_request(request) is None
    assert plugins.make_middleware("OnlyRequests", {}).before_item({"a": 1}, facts) == {"a": 1}
    assert plugins.make_middleware("Keywords", {}).before_item({"a": 1}, facts) is None


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("group", "name", "text"),
    [
        (
            "middlewares",
            "Nothing",
            "none of the methods before_request, after_response, before_item",
        ),
        ("middlewares", "TooFew", "before_item takes (item), but is called as (item, page)"),
        ("middlewares", "TooMany", "after_response takes (request, response, page), but is called"),
        ("middlewares", "NoMethod", "before_request is not a method but a str"),
        ("parsers", "HalfAParser", "it has no method parse"),
        ("parsers", "WrongParser", "parse takes (url, body), but is called as (url, content_type"),
    ],
)
def test_a_plugin_that_cannot_be_called_is_refused_with_the_methods_name(
    group: str, name: str, text: str
) -> None:
    """When it is made, not in the middle of a crawl. Of every group."""
    with pytest.raises(PluginError) as caught:
        plugins.make(group, name)
    assert caught.value.code == PluginError.BROKEN
    assert text in str(caught.value)


class Picky(Middleware):
    async def before_item(self, item: dict[str, Any], page: Any) -> dict[str, Any] | None:
        if item["n"] == 1:
            return None
        if item["n"] in (2, 3):
            raise Drop("too old")
        return item

    def before_request(self, request: Any) -> None:
        raise Drop("not here")


def attempt_of(count: int, extracted: ExtractionReport | None = None) -> Attempt:
    page = PageRecord("http://a.test/", None, "", 1, 0.0, 1.0)
    items = [msgspec.json.encode({"n": n}) for n in range(count)]
    attempt = Attempt(assignment(1, 1)).done(page, 200, items)
    attempt.extracted = extracted
    return attempt


async def test_items_that_a_middleware_drops_are_counted_by_its_name_and_reason() -> None:
    """In the result's own tallies, which are committed with the page; those of a schema stay."""
    sending = Sending(assignment(1, 1), {}, DEFAULT, [("first", Middleware()), ("picky", Picky())])
    before = ExtractionReport(reasons={"schema: price": 4})
    result = attempt_of(5, before)
    await sending.change_items(result)
    assert [msgspec.json.decode(item)["n"] for item in result.items] == [0, 4]
    assert tallies_of(result.extracted) == (
        ("rejected", "schema: price", 4),
        ("rejected", "dropped by middleware picky", 1),
        ("rejected", "dropped by middleware picky: too old", 2),
    )
    assert result.extracted is not None
    assert result.extracted.rejected == []


async def test_a_result_whose_items_are_all_kept_stays_as_it_is() -> None:
    """Nobody's tallies are touched."""
    sending = Sending(assignment(1, 1), {}, DEFAULT, [("first", Middleware())])
    attempt = attempt_of(2)
    await sending.change_items(attempt)
    assert attempt == attempt_of(2)


async def test_drop_at_another_point_fails_the_page_by_name() -> None:
    """There is no item to drop before an answer came."""
    sending = Sending(assignment(1, 1), {}, DEFAULT, [("picky", Picky())])
    engine: Any = None
    with pytest.raises(FetchError, match=r"Drop.*before_item") as caught:
        await sending.send(engine, "http://a.test/", HopLimits(), {})
    assert caught.value.code == "middleware_error"
