"""Tests that every plugin must pass; the author of a plugin runs them with pytest.

Subclass the contract of the plugin's kind in a test file and give it `make`:

    class TestMine(MiddlewareContract):
        def make(self): return Mine(key="value")

Each test states one promise of docs/plugins.md. It needs pytest and nothing of a running cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from typing import Any, ClassVar

import httpx
import msgspec

from zcrawl import plugins
from zcrawl.errors import FetchError, PluginError
from zcrawl.fetch.ports import HopLimits
from zcrawl.plugins import Drop, Outgoing, PageFacts, Parsed, Skip, Task

URL = "http://plugin.test/page"


def installed(group: str, name: str, options: dict[str, Any] | None = None) -> Any:
    """Create the plugin as a worker does, by its entry point. AssertionError: what is wrong."""
    try:
        return plugins.make(group, name, options)
    except PluginError as error:
        raise AssertionError(f"{error.code}: {error}") from error


class _Contract:
    group: ClassVar[str]

    def make(self) -> Any:
        """Return the plugin, created with the job's options."""
        raise NotImplementedError("give the contract a make() that returns your plugin")

    def test_it_is_what_its_group_asks_for(self) -> None:
        """It has the methods of its Protocol (a middleware: some of them), and each takes the
        arguments that zcrawl calls it with."""
        assert plugins.problem_of(self.group, self.make()) == ""

    def test_two_of_it_can_live_side_by_side(self) -> None:
        """Each run gets an object of its own."""
        assert self.make() is not self.make()


class MiddlewareContract(_Contract):
    group = "middlewares"
    item: ClassVar[dict[str, Any]] = {"url": URL, "title": "A page"}

    def _complete(self) -> plugins.Middleware:
        return plugins.complete(self.make())

    def _outgoing(self) -> Outgoing:
        return Outgoing(URL, "GET", {"Accept": "*/*"}, b"", {}, 1)

    def test_a_request_stays_one_that_can_be_sent(self) -> None:
        """Headers are strings without control characters, the method is a word, the body bytes."""
        request = self._outgoing()
        assert _done(self._complete().before_request, request) in (None, Skip)
        for name, value in request.headers.items():
            assert isinstance(name, str) and isinstance(value, str), (name, value)
            assert not any(ord(char) < 32 for char in name + value), (name, value)
        assert request.method.isalpha() and request.method.isupper()
        assert isinstance(request.body, bytes)

    def test_an_answer_stays_an_answer(self) -> None:
        """`after_response` gives an httpx.Response, or None for the one that it got."""
        response = httpx.Response(200, headers={"Content-Type": "text/html"}, content=b"<p>")
        result = _done(self._complete().after_response, self._outgoing(), response)
        assert result is None or result is Skip or isinstance(result, httpx.Response)

    def test_an_item_stays_a_json_object(self) -> None:
        """`before_item` gives a dict that JSON can hold, or drops it: None, or `raise Drop`."""
        facts = PageFacts(URL, URL, 200, 0, 0.0)
        result = _done(self._complete().before_item, dict(self.item), facts)
        assert result is None or result is Skip or isinstance(result, dict)
        json.dumps(result if isinstance(result, dict) else None)


class ParserContract(_Contract):
    group = "parsers"
    accepted: ClassVar[tuple[str, str, bytes]]  # URL, content type and body of one of its pages

    def test_it_accepts_its_own_page(self) -> None:
        """`accepts` says yes to the page that the author gives, with a plain bool."""
        url, kind, _ = self.accepted
        assert self.make().accepts(url, kind) is True

    def test_it_leaves_others_alone(self) -> None:
        """It does not take every page of every type."""
        assert self.make().accepts(URL, "application/x-zcrawl-nobody") is False

    def test_it_reads_its_own_page(self) -> None:
        """Items are JSON objects, links are strings."""
        parsed = self.make().parse(*self.accepted)
        assert isinstance(parsed, Parsed)
        for item in parsed.items:
            assert isinstance(json.loads(json.dumps(dict(item))), dict)
        assert all(isinstance(link, str) for link in parsed.links)

    def test_garbage_gives_a_page_or_an_exception_and_ends(self) -> None:
        """A body of its type that is broken ends by itself, and does not exit the process."""
        url, kind, body = self.accepted
        for bad in (b"", b"\xff\xfe\x00" * 100, body[: len(body) // 2]):
            with contextlib.suppress(Exception):  # costs the page only, as parser_error
                self.make().parse(url, kind, bad)


class FetcherContract(_Contract):
    group = "fetchers"
    good_url: ClassVar[str]

    def test_it_answers_with_a_response_that_is_read(self) -> None:
        """`get` gives an httpx.Response with its body, and follows no redirects by itself."""

        async def ask() -> httpx.Response:
            engine = self.make()
            try:
                response: httpx.Response = await engine.get(self.good_url, {}, HopLimits())
                return response
            finally:
                await engine.aclose()

        response = asyncio.run(ask())
        assert isinstance(response, httpx.Response) and isinstance(response.content, bytes)
        assert not response.history

    def test_closing_one_leaves_another_alive(self) -> None:
        """Each run has one of its own, and ends when it ends."""

        async def ask() -> httpx.Response:
            ending, going_on = self.make(), self.make()
            await ending.aclose()
            try:
                response: httpx.Response = await going_on.get(self.good_url, {}, HopLimits())
                return response
            finally:
                await going_on.aclose()

        assert isinstance(asyncio.run(ask()), httpx.Response)

    def test_it_fails_with_fetch_errors_only(self) -> None:
        """Whatever a server or the network does is a FetchError with a code."""

        async def ask() -> None:
            engine = self.make()
            try:
                await engine.get("http://127.0.0.1:9/nobody-listens", {}, HopLimits(total_s=2.0))
            except FetchError as error:
                assert error.code
            else:
                raise AssertionError("it returned a response for a port on which nothing listens")
            finally:
                await engine.aclose()

        asyncio.run(ask())


class StoreContract(_Contract):
    group = "stores"

    def read(self, store: Any) -> list[bytes]:
        """Return all items that the store holds, for comparison."""
        raise NotImplementedError("give the contract a read(store)")

    def test_the_same_name_twice_is_once(self) -> None:
        """After a crash `put` is called again with the same name, maybe with further items."""
        store = self.make()
        store.put("run-1-after-0", [b'{"n": 1}'])
        store.put("run-1-after-0", [b'{"n": 1}', b'{"n": 2}'])
        store.put("run-1-after-2", [b'{"n": 3}'])
        store.put("run-1-after-2", [b'{"n": 3}'])
        assert sorted(self.read(store)) == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']
        store.close()

    def test_a_run_without_items_is_a_put_of_none(self) -> None:
        """The store is then empty, and a later `put` under the same name is stored."""
        store = self.make()
        store.put("run-1-after-0", [])
        assert list(self.read(store)) == []
        store.put("run-1-after-0", [b'{"n": 1}'])
        assert list(self.read(store)) == [b'{"n": 1}']
        store.close()


class ExecutorContract(_Contract):
    group = "executors"
    task: ClassVar[Task] = Task({"name": "contract", "kind": "mine"}, 1, None, 1)

    def test_it_answers_with_a_json_object_or_nothing(self) -> None:
        """`execute` takes a task and gives what is to be kept of it; it may skip it."""
        self._check(self.make(), self.task)

    def test_a_task_may_come_again(self) -> None:
        """If a worker dies after the work and before its report, another one gets the task."""
        first, again = self.make(), self.make()
        self._check(first, self.task)
        self._check(again, msgspec.structs.replace(self.task, attempt=2))

    def _check(self, made: Any, task: Task) -> None:
        result = _done(made.execute, task)
        if result is not None and result is not Skip:
            assert isinstance(json.loads(json.dumps(dict(result))), dict)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _done(call: Any, *arguments: Any) -> Any:
    """Call a method of a plugin, plain or async; return Skip if it skips, None if it drops."""
    try:
        return asyncio.run(_awaited(call(*arguments)))
    except Skip as skip:
        assert skip.reason
        return Skip
    except Drop as drop:
        assert drop.reason and call.__name__ == "before_item"
        return None
