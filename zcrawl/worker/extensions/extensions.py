"""The extensions of a run: its spider, middlewares, parsers and executor.

Made by the pipeline when it adopts a run that names any of them, and kept until the run ends; for
all other runs this module is not even loaded. PluginError names what is not installed on this
worker.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from zcrawl import plugins
from zcrawl.errors import FetchError, PluginError, RetryClass, SpiderError
from zcrawl.fetch.ports import Response
from zcrawl.frontier.extra import is_start
from zcrawl.frontier.url import LinkResolver
from zcrawl.mesh.messages import Assignment, PageRecord
from zcrawl.model.reasons.cluster import NO_CODE
from zcrawl.model.reasons.failure import PARSER_ERROR, PARSER_TIMEOUT, QUARANTINED
from zcrawl.model.reasons.skip import START
from zcrawl.model.spec import CRAWL, HTTP, SHELL
from zcrawl.parse.extract.item_schema import Check, compile_check
from zcrawl.runtime.loop import Tell
from zcrawl.submit.code import is_file
from zcrawl.text.raised import raised_text
from zcrawl.worker.extensions.executors import Executing
from zcrawl.worker.extensions.spiders import SpiderProcess
from zcrawl.worker.extensions.threads import Aside
from zcrawl.worker.pipeline.outgoing import Sending
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.items import apply_item_schema
from zcrawl.worker.results.pages import clean
from zcrawl.worker.results.spider_requests import asked_of
from zcrawl.worker.spider_protocol import Handle, Load, Start, Yielded

if TYPE_CHECKING:
    from zcrawl.worker.extensions.shell import ShellTasks
    from zcrawl.worker.pipeline.fetching import BlobWriter

QUARANTINE_AFTER: Final = 3  # attempts whose last one ended the spider's process
CodeOf = Callable[[str], bytes | None]
Utc = Callable[[], float]
Reader = Callable[[Attempt, PageRecord, Response, Sending | None], Awaitable[Attempt]]


class RunExtras:
    def __init__(
        self,
        context: RunContext,
        code_of: CodeOf,
        closed: Sequence[str] = (),
        blobs: BlobWriter | None = None,
        tell: Tell = lambda name, detail: None,
    ) -> None:
        """`closed` are files of the worker that spiders and commands must not read; large output of
        commands is kept in `blobs`."""
        spec = self._spec = context.spec
        self._closed = list(closed)
        self._code_of = code_of
        self._process: SpiderProcess | None = None
        self._aside = Aside()
        self._middlewares = [
            (name, plugins.make_middleware(name, spec.plugins.get(name, {})))
            for name in spec.middlewares
        ]
        self._parsers = [
            (name, plugins.make_parser(name, spec.plugins.get(name, {}))) for name in spec.parsers
        ]
        self._check = compile_check(spec.schema, "schema") if spec.schema else None
        self._executing: Executing | ShellTasks | None = None
        if spec.kind == SHELL:
            from zcrawl.worker.extensions.shell import ShellTasks

            self._executing = ShellTasks(context, blobs, closed, tell)
        elif spec.kind not in (CRAWL, HTTP):
            self._executing = Executing(spec, self._aside)
        if spec.spider and not is_file(spec.spider):
            package = spec.spider.partition(":")[0].partition(".")[0]
            if importlib.util.find_spec(package) is None:
                raise PluginError(f"spider {spec.spider!r}", code=PluginError.MISSING)

    def sending(self, assignment: Assignment, context: RunContext) -> Sending | None:
        """Return the request for middlewares or a spider; None for a plain GET."""
        if not assignment.extra and not self._middlewares:
            return None
        most_s = context.spec.fetch.timeout
        return Sending(
            assignment,
            context.headers_for(assignment.url),
            context.rules,
            self._middlewares,
            most_s,
        )

    def leave(self) -> None:
        """End commands soon, because this worker leaves. Pages and plugins finish by themselves."""
        if self._executing is not None:
            self._executing.leave()

    async def close(self) -> None:
        if self._executing is not None:
            await self._executing.close()
        if self._process is not None:
            await self._process.close()

    # ------------------------------------------------------------ the spider

    def takes(self, assignment: Assignment) -> bool:
        """Return whether the request is not fetched: it starts a spider, or is an executor's
        task."""
        return is_start(assignment.url) or self._executing is not None

    async def start(self, attempt: Attempt, utc: Utc) -> Attempt:
        """Run the request that starts a spider, or a task."""
        context = attempt.run_context
        if self._executing is not None:
            await self._executing.do(attempt, context.spec.attempt_s, utc)
            return apply_item_schema(self._check, attempt, self._spec.kind)
        try:
            yielded = await self._spider().ask(Start())
        except SpiderError as error:
            return _spider_failed(attempt, error, 0)
        requests, refused = asked_of(yielded.requests, None, context, 0)
        attempt.skipped(START)
        attempt.requests, attempt.rejected = requests, refused.rejected
        return attempt

    async def _read(
        self, attempt: Attempt, page: PageRecord, response: Response, sending: Sending | None
    ) -> Attempt:
        """Let the spider's handler read the page."""
        assignment, context = attempt.assignment, attempt.run_context
        extra = None if sending is None else sending.extra
        question = Handle(
            url=page.final_url,
            requested_url=assignment.url,
            status=response.status_code,
            headers=[(k.decode("latin-1"), v.decode("latin-1")) for k, v in response.headers.raw],
            body=response.content,
            handler="" if extra is None else extra.handler,
            meta={} if extra is None else extra.meta,
            depth=assignment.depth,
            parent=assignment.parent,
            canonical=context.rules.version,
        )
        try:
            yielded: Yielded = await self._spider().ask(question)
        except SpiderError as error:
            return _spider_failed(attempt, error, response.status_code)
        depth = assignment.depth + 1
        requests, refused = asked_of(yielded.requests, page.final_url, context, depth)
        attempt.done(page, response.status_code, yielded.items, refused.rejected)
        attempt.requests, attempt.dropped = requests, refused.dropped
        return apply_item_schema(self._check, attempt, self._spec.spider)

    def _spider(self) -> SpiderProcess:
        if self._process is None:
            spec, source = self._spec, b""
            if spec.code is not None:
                source = self._code_of(spec.code.sha256) or b""
                if not source:  # the leader hears of it by REJECT, and sends it again
                    raise SpiderError("the spider's file has not arrived", code=NO_CODE)
            limits = spec.spider_limits
            load = Load(spec.spider, source, spec.spider_args, limits.memory, 0, self._closed)
            self._process = SpiderProcess(load, limits.timeout)
        return self._process

    # ------------------------------------------------------------ reading pages

    def reader(self, url: str, content_type: str) -> Reader | None:
        """Return the reader of this page instead of zcrawl: the spider, or the first fitting
        parser."""
        if self._spec.spider:
            return self._read
        for name, parser in self._parsers:
            try:
                accepts = parser.accepts(url, content_type)
            except (Exception, SystemExit) as error:
                raise _parser_failed(name, error) from error
            if accepts:
                return functools.partial(_parse, name, parser, self._check, self._aside)
        return None


def _spider_failed(attempt: Attempt, error: SpiderError, status: int) -> Attempt:
    """End an attempt whose spider failed.

    A handler that raises will raise again. If its process ended, it is tried again, and quarantined
    after 3 attempts.
    """
    retry = RetryClass.TRANSIENT if error.fatal else RetryClass.PERMANENT
    reason, detail = error.code, str(error)
    if error.fatal and attempt.assignment.attempt >= QUARANTINE_AFTER:
        reason, detail = QUARANTINED, f"{error.code}: {error}"
        retry = RetryClass.PERMANENT
    return attempt.failed(reason, retry, status=status, detail=detail)


async def _parse(
    name: str,
    parser: plugins.Parser,
    check: Check | None,
    aside: Aside,
    attempt: Attempt,
    page: PageRecord,
    response: Response,
    sending: Sending | None,
) -> Attempt:
    """Let a parser plugin read the page in a thread, with a time limit."""
    assignment, context = attempt.assignment, attempt.run_context
    url, most_s = page.final_url, context.spec.fetch.timeout
    try:
        async with asyncio.timeout(most_s):
            parsed = await aside.call(
                lambda: parser.parse(url, page.content_type, response.content)
            )
        items = [_object(item) for item in parsed.items]
        resolver = LinkResolver(context.rules)
        links = dict(filter(None, (resolver.resolve(url, href) for href in parsed.links)))
        title = None if parsed.title is None else clean(str(parsed.title))
    except TimeoutError as error:
        text = f"parser {name}: no end after {most_s:g} s"
        raise FetchError(text, code=PARSER_TIMEOUT, retry=RetryClass.PERMANENT) from error
    except FetchError:
        raise  # too many that do not end
    except Exception as error:
        raise _parser_failed(name, error) from error
    depth = assignment.depth + 1
    kept = context.links.sort(list(links.items()), depth, assignment.url, page.fetched_at)
    page = msgspec.structs.replace(page, title=title)
    attempt.done(page, response.status_code, items, dict(resolver.rejected)).add_links(kept)
    return apply_item_schema(check, attempt, name)


def _object(item: Any) -> bytes:
    data = msgspec.json.encode(item)
    if not data.startswith(b"{"):
        raise TypeError(f"an item must be a JSON object, not {type(item).__name__}")
    return data


def _parser_failed(name: str, error: BaseException) -> FetchError:
    text = f"parser {name}: {raised_text(error)}"
    return FetchError(text, code=PARSER_ERROR, retry=RetryClass.PERMANENT)
