"""The child process that runs a spider's code: `python -m zcrawl.worker.extensions.spider_child`.

Started by `spiders`. One question at a time on stdin, one answer each on stdout; what the
spider prints goes to stderr. Before foreign code is loaded its memory is limited and the worker's
secrets are closed to it. It may die of that code at any moment: the worker sees it and starts
another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import importlib
import inspect
import io
import os
import resource
import sys
import types
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

import msgspec

from zcrawl.runtime.confine import close_inherited, confine
from zcrawl.runtime.parent import die_with_parent
from zcrawl.spider import FunctionSpider, Page, Request, Spider
from zcrawl.text.patterns import lazy_pattern
from zcrawl.text.raised import raised_text
from zcrawl.text.terminal import shown
from zcrawl.worker import spider_protocol as wire

_ABSOLUTE = lazy_pattern(r"\s*[A-Za-z][A-Za-z0-9+.-]*:")

MODULE = "zcrawl_spider"  # the name of a spider's file as a module


def main() -> None:
    source, target = _take_pipes()
    question = _read(source)
    assert isinstance(question, wire.Load)
    die_with_parent(question.parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _offer_to_the_kernel()
    confine(question.closed)  # `doctor` reports systems that cannot do this
    with asyncio.Runner() as runner:
        _limit_memory(question.memory)
        try:
            spider = load(question)
        except Exception as error:
            _answer(target, wire.Raised(_text(error)))
            return
        _answer(target, wire.SpiderLoaded(type(spider).start is not Spider.start))
        while (question := _read(source)) is not None:
            _answer(target, _run(runner, spider, question))


def load(message: wire.Load) -> Spider:
    """Load the spider; raise what its code raises."""
    place, _, name = message.name.rpartition(":")
    if message.source:
        module = types.ModuleType(MODULE)
        module.__file__ = place
        sys.modules[MODULE] = module
        exec(compile(message.source, place, "exec"), module.__dict__)
    else:
        module = importlib.import_module(place)
    definition = getattr(module, name, None)
    # A job can name anything that is installed; only what was written to be a spider is called.
    if inspect.isclass(definition) and issubclass(definition, Spider):
        return definition(**message.args)
    if inspect.isfunction(definition) and (message.source or hasattr(definition, "zcrawl_on")):
        return FunctionSpider(definition, vars(module))
    what = "no such name" if definition is None else "no Spider class and no @on function"
    raise LookupError(f"{place}:{name}: {what}")


def _run(
    runner: asyncio.Runner, spider: Spider, question: wire.SpiderQuestion
) -> wire.Yielded | wire.Raised:
    gathered = Gathered()
    try:
        if isinstance(question, wire.Start):
            result: Any = spider.start()
        else:
            assert isinstance(question, wire.Handle)
            page = Page(
                question.url,
                question.status,
                question.headers,
                question.body,
                requested_url=question.requested_url,
                meta=question.meta,
                depth=question.depth,
                parent=question.parent,
                handler=question.handler,
                canonical_version=question.canonical,
            )
            gathered.page = page
            result = spider.handler_for(page)(page)
        if inspect.isawaitable(result) or isinstance(result, AsyncIterator):
            runner.run(_drain(result, gathered))
        else:
            gathered.take_all(result)
        return wire.Yielded(gathered.items, gathered.requests)
    except MemoryError:
        gathered.clear()
        gc.collect()
        return wire.Raised("MemoryError: the spider needs more memory than it may have", True)
    except Exception as error:
        return wire.Raised(_text(error))


async def _drain(result: Any, gathered: Gathered) -> None:
    if isinstance(result, AsyncIterator):
        async for element in result:
            gathered.take(element)
    else:
        gathered.take_all(await result)


class Gathered:
    """What a handler has yielded so far; limited, because a generator may never end."""

    def __init__(self) -> None:
        self.page: Page | None = None  # that the handler was given
        self.items: list[bytes] = []
        self.requests: list[wire.Wanted] = []
        self._bytes = 0

    def take_all(self, result: Any) -> None:
        if result is None:
            return
        if isinstance(result, Request | dict) or not isinstance(result, Iterable):
            result = (result,)
        for element in result:
            self.take(element)

    def take(self, element: Any) -> None:
        if element is None:
            return
        if isinstance(element, Request):
            request = wanted_of(element, self.page)
            self._bytes += len(request.url) + len(request.body) + 100
            self.requests.append(request)
        else:
            data = _item(element)
            self._bytes += len(data)
            self.items.append(data)
        if (
            len(self.items) > wire.MOST_ITEMS
            or len(self.requests) > wire.MOST_REQUESTS
            or self._bytes > wire.MOST_YIELDED_BYTES
        ):
            raise ValueError(
                f"a page yields at most {wire.MOST_ITEMS} items, {wire.MOST_REQUESTS} requests "
                f"and {wire.MOST_YIELDED_BYTES} bytes"
            )

    def clear(self) -> None:
        self.items.clear()
        self.requests.clear()


def wanted_of(request: Request, page: Page | None = None) -> wire.Wanted:
    """The request in plain types; TypeError for what cannot travel. A relative URL is one of the
    page's links, so its query is in the page's encoding."""
    headers = {str(name): str(value) for name, value in request.headers.items()}
    body = request.body.encode() if isinstance(request.body, str) else bytes(request.body)
    method = request.method.upper()
    if request.json is not None:
        body = msgspec.json.encode(request.json)
        headers.setdefault("Content-Type", "application/json")
    elif request.form is not None:
        body = urlencode(dict(request.form)).encode()
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    if method == "GET" and (request.json is not None or request.form is not None):
        method = "POST"
    handler = request.handler
    name = handler if isinstance(handler, str) else getattr(handler, "__name__", "")
    if not isinstance(name, str) or (handler and not name) or name == "<lambda>":
        raise TypeError(f"a handler is a method or its name, not {handler!r}")
    url = str(request.url)
    if page is not None and not url.isascii() and not _ABSOLUTE.match(url):
        url = page.encode_query(url)
    return wire.Wanted(url, method, body, headers, name, dict(request.meta), int(request.priority))


def _item(element: Any) -> bytes:
    if dataclasses.is_dataclass(element) or isinstance(element, msgspec.Struct | dict):
        data = msgspec.json.encode(element)
        if data.startswith(b"{"):
            return data
    raise TypeError(
        f"a handler yields items (dicts, dataclasses) and requests, not {element!r:.100}"
    )


# ---------------------------------------------------------------- the edge


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the two pipes to other numbers, so that a spider cannot read or print there."""
    source, target = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    close_inherited(source, target)
    sys.stdout = sys.stderr = ShownStream(2)
    return os.fdopen(source, "rb"), os.fdopen(target, "wb")


class ShownStream(io.TextIOWrapper):
    """The output of a spider's print, without control characters.

    Printed text often comes from a page, and stderr may be a terminal (`zcrawl test`).
    """

    def __init__(self, descriptor: int) -> None:
        raw = io.FileIO(descriptor, "w", closefd=False)
        super().__init__(raw, encoding="utf-8", write_through=True)

    def write(self, text: str, /) -> int:
        super().write(shown(text, keep="\n\t"))
        return len(text)


def _read(source: BinaryIO) -> wire.SpiderQuestion | None:
    """Read the next question; None when the worker closed its end."""
    head = source.read(wire.LENGTH.size)
    if len(head) < wire.LENGTH.size:
        return None
    (length,) = wire.LENGTH.unpack(head)
    question: wire.SpiderQuestion = wire.decode_question(source.read(length))
    return question


def _answer(target: BinaryIO, answer: wire.SpiderAnswer) -> None:
    try:
        data = wire.frame(answer)
    except (TypeError, ValueError, OverflowError) as error:  # meta that no wire can carry
        data = wire.frame(wire.Raised(_text(error)))
    target.write(data)
    target.flush()


def _offer_to_the_kernel() -> None:
    """Let the kernel kill this process first when memory runs out, not its worker."""
    with contextlib.suppress(OSError):  # no Linux, or no /proc
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit_memory(most: int) -> None:
    with contextlib.suppress(ValueError, OSError):  # above the hard limit: that one holds
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _text(error: BaseException) -> str:
    """Return the exception and the line of the spider that raised it."""
    return raised_text(error)[: wire.MOST_TEXT].encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main()
