"""What a run has besides plain fetching: its spider, its middlewares, its parsers, its executor.

Made by the pipeline when it adopts a run that names any of them, and kept until the run ends; for
all other runs this module is not even loaded. PluginError says what this worker lacks.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from zcrawl import plugins
from zcrawl.errors import FetchError, PluginError, RetryClass, SpiderError
from zcrawl.fetch.ports import Response
from zcrawl.frontier.extra import START_URL
from zcrawl.frontier.url import LinkResolver
from zcrawl.mesh.messages import Assignment, Page, Result
from zcrawl.model.reasons.cluster import NO_CODE
from zcrawl.model.reasons.failure import PARSER_ERROR, PARSER_TIMEOUT, QUARANTINED
from zcrawl.model.reasons.skip import START
from zcrawl.model.spec import CRAWL, JobSpec
from zcrawl.parse.extract.item_schema import Check, compile_check
from zcrawl.submit.code import is_file
from zcrawl.text.raised import raised_text
from zcrawl.worker.extensions.executors import Executing
from zcrawl.worker.extensions.spiders import SpiderProcess
from zcrawl.worker.extensions.threads import Aside
from zcrawl.worker.pipeline.outgoing import Sending
from zcrawl.worker.results import outcome
from zcrawl.worker.results.items import held_to
from zcrawl.worker.results.outcome import RunContext
from zcrawl.worker.results.spider_requests import asked_of
from zcrawl.worker.spider_protocol import Handle, Load, Start, Yielded

QUARANTINE_AFTER: Final = 3  # attempts whose last one ended the spider's process
CodeOf = Callable[[str], bytes | None]
Utc = Callable[[], float]
Reader = Callable[
    [Assignment, RunContext, Page, Response, float, Sending | None], Awaitable[Result]
]


class RunExtras:
    def __init__(self, spec: JobSpec, code_of: CodeOf, closed: Sequence[str] = ()) -> None:
        """`closed` are files of the worker that a spider must not read."""
        self._spec = spec
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
        self._executing = Executing(spec, self._aside) if spec.kind != CRAWL else None
        if spec.spider and not is_file(spec.spider):
            package = spec.spider.partition(":")[0].partition(".")[0]
            if importlib.util.find_spec(package) is None:
                raise PluginError(f"spider {spec.spider!r}", code=PluginError.MISSING)

    def sending(self, one: Assignment, context: RunContext) -> Sending | None:
        """None: a plain GET."""
        if not one.extra and not self._middlewares:
            return None
        most_s = context.spec.fetch.timeout
        return Sending(one, context.headers_for(one.url), context.rules, self._middlewares, most_s)

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()

    # ------------------------------------------------------------ the spider

    def takes(self, one: Assignment) -> bool:
        """Whether the request is not to be fetched: it begins a spider, or is an executor's."""
        return one.url == START_URL or self._executing is not None

    async def start(self, one: Assignment, context: RunContext, utc: Utc) -> Result:
        """The request that stands for the beginning of a spider, or for a task."""
        if self._executing is not None:
            done = await self._executing.do(one, context.limits.total_s, utc)
            return held_to(self._check, done, one.url, self._spec.kind)
        try:
            found = await self._spider().ask(Start())
        except SpiderError as error:
            return self._failed(one, error, 0, 0.0)
        asked, refused = asked_of(found.requests, None, context, 0)
        result = outcome.skipped(one, START)
        return msgspec.structs.replace(result, requests=asked, rejected=refused.rejected)

    async def _read(
        self,
        one: Assignment,
        context: RunContext,
        page: Page,
        response: Response,
        crawl_delay_s: float,
        sending: Sending | None,
    ) -> Result:
        """The page as the spider's handler reads it."""
        extra = None if sending is None else sending.extra
        question = Handle(
            url=page.final_url,
            requested_url=one.url,
            status=response.status_code,
            headers=[(k.decode("latin-1"), v.decode("latin-1")) for k, v in response.headers.raw],
            body=response.content,
            handler="" if extra is None else extra.handler,
            meta={} if extra is None else extra.meta,
            depth=one.depth,
            parent=one.parent,
            canonical=context.rules.version,
        )
        try:
            found: Yielded = await self._spider().ask(question)
        except SpiderError as error:
            return self._failed(one, error, response.status_code, crawl_delay_s)
        asked, refused = asked_of(found.requests, page.final_url, context, one.depth + 1)
        result = outcome.done(one, page, response.status_code, [], crawl_delay_s, refused.rejected)
        result = msgspec.structs.replace(
            result, items=found.items, requests=asked, dropped=refused.dropped
        )
        return held_to(self._check, result, one.url, self._spec.spider)

    def _failed(
        self, one: Assignment, error: SpiderError, status: int, crawl_delay_s: float
    ) -> Result:
        """A handler that raises will raise again. One that ended its process may have been
        unlucky: it is tried again, and after 3 attempts quarantined."""
        retry = RetryClass.TRANSIENT if error.fatal else RetryClass.PERMANENT
        reason, detail = error.code, str(error)
        if error.fatal and one.attempt >= QUARANTINE_AFTER:
            reason, detail = QUARANTINED, f"{error.code}: {error}"
            retry = RetryClass.PERMANENT
        return outcome.failed(
            one, reason, retry, status=status, crawl_delay_s=crawl_delay_s, detail=detail
        )

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
        """Who reads this page instead of zcrawl: the spider, or the first parser that wants it."""
        if self._spec.spider:
            return self._read
        for name, one in self._parsers:
            try:
                accepts = one.accepts(url, content_type)
            except (Exception, SystemExit) as error:
                raise _parser_failed(name, error) from error
            if accepts:
                return functools.partial(_parse, name, one, self._check, self._aside)
        return None


async def _parse(
    name: str,
    parser: plugins.Parser,
    check: Check | None,
    aside: Aside,
    one: Assignment,
    context: RunContext,
    page: Page,
    response: Response,
    crawl_delay_s: float,
    sending: Sending | None,
) -> Result:
    """The page as a plugin reads it, in a thread: it may take its time, but not for ever."""
    url, most_s = page.final_url, context.spec.fetch.timeout
    try:
        async with asyncio.timeout(most_s):
            found = await aside.call(lambda: parser.parse(url, page.content_type, response.content))
        items = [_object(item) for item in found.items]
        resolver = LinkResolver(context.rules)
        links = dict(filter(None, (resolver.resolve(url, href) for href in found.links)))
        title = None if found.title is None else outcome.clean(str(found.title))
    except TimeoutError as error:
        text = f"parser {name}: no end after {most_s:g} s"
        raise FetchError(text, code=PARSER_TIMEOUT, retry=RetryClass.PERMANENT) from error
    except FetchError:
        raise  # too many that do not end
    except Exception as error:
        raise _parser_failed(name, error) from error
    kept = context.links.sort(list(links.items()), one.depth + 1, one.url, page.fetched_at)
    page = msgspec.structs.replace(page, title=title)
    result = outcome.done(
        one, page, response.status_code, kept.followed, crawl_delay_s, dict(resolver.rejected)
    )
    result = outcome.with_links(msgspec.structs.replace(result, items=items), kept)
    return held_to(check, result, one.url, name)


def _object(item: Any) -> bytes:
    data = msgspec.json.encode(item)
    if not data.startswith(b"{"):
        raise TypeError(f"an item must be a JSON object, not {type(item).__name__}")
    return data


def _parser_failed(name: str, error: BaseException) -> FetchError:
    text = f"parser {name}: {raised_text(error)}"
    return FetchError(text, code=PARSER_ERROR, retry=RetryClass.PERMANENT)
