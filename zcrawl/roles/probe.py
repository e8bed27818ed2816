"""Fetch one page without a cluster, and report everything that happened.

Wiring only: the worker's own pipeline, on an engine that records requests and responses. Used by
`zcrawl test`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from typing import Any, Final

import httpx
import msgspec

from zcrawl.errors import BadUrl, FetchError
from zcrawl.fetch.keyring import JobRights, Keyring, names_in
from zcrawl.fetch.policy import REDIRECT_STATUSES
from zcrawl.fetch.ports import Engine, HopLimits
from zcrawl.fetch.robots import RobotsRules, robots_url
from zcrawl.fetch.wire.engine import HttpEngine
from zcrawl.frontier.extra import REDIRECT, decode, encode, is_start
from zcrawl.frontier.robots_place import MAX_REDIRECTS, place_in, robots_group
from zcrawl.frontier.scope import canonical_rules
from zcrawl.frontier.tasks import is_task_id
from zcrawl.frontier.url import (
    CANONICAL_VERSION,
    LinkResolver,
    canonicalize,
    join,
    netloc_of,
    origin_of,
)
from zcrawl.mesh.messages import Assignment, Code, Result, RunConfig
from zcrawl.model.reasons.skip import REDIRECTED
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import Outcome
from zcrawl.parse.charset import encoding_of
from zcrawl.parse.page import is_html, parse_page
from zcrawl.result.plan import vouched_hosts
from zcrawl.roles.embedded import OWNER
from zcrawl.roles.engines import make_engine
from zcrawl.runtime import clock
from zcrawl.submit.read import to_json
from zcrawl.worker.pipeline.pipeline import Pipeline, PipelineSettings
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.context import RunContext

MOST_HANDOVERS: Final = 10
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


class ExchangeRecorder:
    """An engine that records each request and response, without values of `hidden` headers."""

    def __init__(self, engine: Engine, hidden: frozenset[str]) -> None:
        self._engine, self._hidden = engine, hidden
        self.hops: list[dict[str, Any]] = []
        self.responses: dict[str, httpx.Response] = {}

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        return await self._note("GET", url, headers, limits, self._engine.get(url, headers, limits))

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> httpx.Response:
        sending = self._engine.send(method, url, headers, body, limits)
        return await self._note(method, url, headers, limits, sending)

    async def aclose(self) -> None:
        """Do nothing: the creator of the engine closes it."""

    async def _note(
        self, method: str, url: str, headers: Mapping[str, str], limits: HopLimits, sending: Any
    ) -> httpx.Response:
        began = clock.now()
        hop: dict[str, Any] = {"method": method, "url": url}
        if limits.proxy is not None:
            hop["proxy"] = limits.proxy.rpartition("@")[2]
        hop["sent"] = {
            name: "(hidden)" if name.lower() in self._hidden else value
            for name, value in headers.items()
        }
        self.hops.append(hop)
        try:
            response: httpx.Response = await sending
        except FetchError as error:
            hop |= {"error": error.reason, "detail": str(error)}
            raise
        finally:
            hop["ms"] = round((clock.now() - began) * 1000, 1)
        wire = response.extensions.get("wire_headers") or response.headers.raw
        hop |= {
            "status": response.status_code,
            "bytes": len(response.content),
            "headers": [[k.decode("latin-1"), v.decode("latin-1")] for k, v in wire],
        }
        self.responses[url] = response
        return response


async def probe(
    spec: JobSpec, url: str, block: str = "", rights: JobRights = OWNER
) -> dict[str, Any]:
    """Fetch `url` under `spec` and return a report of plain values. `block` is the extraction block
    that a link to it would name, `rights` are those of the machine's own user.

    Scope, guard and links are those of a crawl that begins with the seeds of `spec`. A URL that is
    not a seed counts as a page one step from a seed. Without seeds, it is the only seed."""
    keyring = Keyring(rights, os.environ)
    rules = canonical_rules(spec.scope, CANONICAL_VERSION)

    def is_id(seed: str) -> bool:
        return spec.takes_ids and is_task_id(seed)

    start = url if is_id(url) else canonicalize(url, rules)
    seeds = [
        seed if is_id(seed) else canonicalize(seed, rules) for seed in spec.own_seeds or (url,)
    ]
    hosts = sorted({origin_of(seed).partition("://")[2] for seed in seeds if not is_id(seed)})
    config = RunConfig(run=1, revision=1, spec=to_json(spec), seed_hosts=hosts)
    page = Assignment(1, 1, 1, 1, start, 0 if start in seeds else 1, 1, None, block=block)
    async with HttpEngine() as plain:
        engine = make_engine(spec, lambda: plain)
        recorder = ExchangeRecorder(engine, _secret_headers(spec))
        try:
            results, config, notes = await _fetch(recorder, spec, config, keyring, page)
        finally:
            await engine.aclose()
    result, context = results[-1], RunContext(config, keyring)
    report: dict[str, Any] = {
        "url": start,
        "outcome": result.outcome.name.lower(),
        "reason": result.reason,
        "detail": result.detail or "; ".join(notes),
        "status": result.status,
        "hops": recorder.hops,
        "items": [json.loads(item) for item in result.items],
        "requests": [_request(url, extra) for url, _, _, extra in result.requests],
        "sitemaps": [url for page_result in results for url, _ in page_result.sitemaps],
    }
    if not (is_start(start) or is_id(start)):
        report["guard"] = await _guard(context, start)
        report["robots"] = _robots(spec, recorder, start)
        report["scope"] = context.scope.verdict(start, page.depth) if page.depth else None
    if spec.extract:
        report["extraction"] = _extraction(result)
    last = recorder.hops[-1]["url"] if recorder.hops else start
    final = last if result.page is None else result.page.final_url
    response = recorder.responses.get(final)
    if response is not None and response.status_code not in REDIRECT_STATUSES:
        report |= _page(context, final, response, result)
    return report


def _secret_headers(spec: JobSpec) -> frozenset[str]:
    """Return the names of headers whose values are hidden: credentials and secrets of the job."""
    sets = (spec.fetch.headers, *spec.fetch.header_sets)
    return _SECRET_HEADERS | {
        n.lower() for headers in sets for n, v in headers.items() if names_in(v)
    }


def _request(url: str, extra: bytes) -> dict[str, Any]:
    request = decode(extra)
    return {"method": request.method, "url": url, "handler": request.handler, "meta": request.meta}


class ProbeOwner:
    """The owner of the pipeline for one request: it permits every hop at once, without a pace."""

    def __init__(self, recorder: ExchangeRecorder, keyring: Keyring) -> None:
        self.notes: list[str] = []  # what a worker would log
        self.ended: asyncio.Queue[Result] = asyncio.Queue()
        settings = PipelineSettings(keyring=keyring)
        self.pipeline = Pipeline(self, lambda spec: recorder, clock.now, clock.utc, settings)

    def fetch_ended(self, seq: int, attempt: Attempt) -> None:
        self.ended.put_nowait(attempt.result())

    def hop_wanted(self, seq: int, crawl_delay_s: float) -> None:
        asyncio.get_running_loop().call_soon(self.pipeline.permit, seq)

    def started_late(self, seq: int) -> None: ...

    def run_lacks(self, run: int, what: str) -> None: ...

    def note(self, name: str, detail: str, *, run: int = 0) -> None:
        self.notes.append(detail)


async def _fetch(
    recorder: ExchangeRecorder, spec: JobSpec, config: RunConfig, keyring: Keyring, page: Assignment
) -> tuple[list[Result], RunConfig, list[str]]:
    """Fetch the page and its redirects to other hosts. Return the results, the run's configuration
    as the leader would have it afterwards, and the log lines of a worker."""
    owner = ProbeOwner(recorder, keyring)
    pipeline = owner.pipeline
    if spec.code is not None:
        pipeline.adopt_code(Code(spec.code.sha256, spec.code.source.encode()))
    pipeline.adopt(config)
    results: list[Result] = []
    next_page: Assignment | None = page
    groups: tuple[str, ...] = ()
    try:
        while next_page is not None and len(results) < MOST_HANDOVERS:
            pipeline.start(next_page, None, groups)
            result = await owner.ended.get()
            if place := _place_of_robots(result):  # no other worker exists, so fetch it here
                groups = (*groups, robots_group(place))
                continue
            results.append(result)
            hosts = sorted({*config.seed_hosts, *vouched_hosts(result, spec)})
            if hosts != config.seed_hosts:
                config = msgspec.structs.replace(
                    config, revision=config.revision + 1, seed_hosts=hosts
                )
                pipeline.adopt(config)
            next_page = _behind(result, next_page)
    finally:
        await pipeline.close()
    return results, config, owner.notes


def _behind(result: Result, page: Assignment) -> Assignment | None:
    """Return the request for the target of a redirect to another host, if there is one."""
    if result.handover is not None:
        url, extra = result.handover[0], encode(REDIRECT)
    elif result.reason == REDIRECTED and result.requests:  # one that is more than a plain GET
        url, _, _, extra = result.requests[0]
    else:
        return None
    n = page.n + 1
    return msgspec.structs.replace(page, n=n, seq=n, host=n, url=url, extra=extra)


def _place_of_robots(result: Result) -> str:
    """Return the place of the robots.txt that the page waits for; empty if it does not wait."""
    if result.outcome is not Outcome.FAILED or result.robots is None:
        return ""
    return place_in(result.robots)


def _extraction(result: Result) -> dict[str, Any]:
    """Return the result of the rules without items. `matched`: whether a block reads the page."""
    extraction = result.extracted
    if extraction is None:
        return {"matched": False, "fields": {}, "rejected": [], "problems": []}
    return {
        "matched": True,
        "fields": {
            name: {"filled": n[0], "empty": n[1], "failed": n[2]}
            for name, n in extraction.fields.items()
        },
        "rejected": [json.loads(text) for text in extraction.rejected],
        "problems": [json.loads(text) for text in extraction.problems],
    }


async def _guard(context: RunContext, url: str) -> dict[str, Any]:
    guard = context.limits.guard
    refused = guard.refuse_origin(origin_of(url))
    name, _, port = netloc_of(url).rpartition(":")
    verdicts: dict[str, str] = {}
    if refused is None:
        try:
            answers = await asyncio.get_running_loop().getaddrinfo(
                name.strip("[]"), int(port), type=socket.SOCK_STREAM
            )
        except OSError as error:
            return {"allowed": True, "why": "", "addresses": {}, "dns": str(error)}
        for *_, address in answers:
            text = str(address[0])
            verdicts[text] = guard.refuse_address(name, int(port), text) or "allowed"
        if verdicts and "allowed" not in verdicts.values():
            refused = next(iter(verdicts.values()))
    return {"allowed": refused is None, "why": refused or "", "addresses": verdicts}


def _robots(spec: JobSpec, recorder: ExchangeRecorder, url: str) -> dict[str, Any]:
    if not spec.politeness.robots:
        return {"asked": False, "allowed": True}
    where = robots_url(origin_of(url))
    hops = [hop for hop in recorder.hops if hop["url"] == where]
    if not hops:
        return {"asked": False, "allowed": None}
    agent = hops[0]["sent"].get("User-Agent", spec.fetch.user_agent)
    response = recorder.responses.get(where)
    for _ in range(MAX_REDIRECTS):  # to where the rules are
        if response is None or response.status_code not in REDIRECT_STATUSES:
            break
        try:
            place = join(where, response.headers.get("location", ""))
        except BadUrl:
            break  # the hops show the error
        if place not in recorder.responses:
            break
        where, response = place, recorder.responses[place]
    status = response.status_code if response is not None else 0
    body = response.content if response is not None else b""
    rules = RobotsRules.parse(status, body, agent)
    return {
        "asked": True,
        "url": where,
        "status": status,
        "user_agent": agent,
        "allowed": rules.allows(url),
        "crawl_delay_s": rules.crawl_delay_s,
        "later": rules.retry_later,
    }


def _page(
    context: RunContext, url: str, response: httpx.Response, result: Result
) -> dict[str, Any]:
    body = response.content
    content_type = response.headers.get("content-type", "")
    html = is_html(content_type, body)
    report: dict[str, Any] = {
        "final_url": url,
        "content_type": content_type,
        "bytes": len(body),
        "charset": encoding_of(body, content_type) if html else None,
    }
    if result.outcome is not Outcome.DONE and not result.links:
        return report  # a skipped page may still have links
    links = {link: "followed" for link, _ in result.links}
    links |= {link: f"trap: {reason}" for link, _, reason in result.trapped}
    report["rejected_links"] = dict(result.rejected)
    if html:
        # The result has only the links that a crawl follows. The others are parsed again here, to
        # report why they are left out.
        parsed = parse_page(body, content_type, url, context.options, LinkResolver(context.rules))
        report["title"] = parsed.title
        report["rejected_links"] |= parsed.rejected
        for link, _ in parsed.links:
            links.setdefault(link, _left_out(context, link, result))
    goes_to = {key: block for block, keys in result.blocks for key in keys}
    keys = dict(result.links)
    report["links"] = [
        {
            "url": link,
            "scope": scope,
            **({"to": goes_to[keys[link]]} if keys.get(link) in goes_to else {}),
            **({"paging": True} if keys.get(link) in result.paging else {}),
            **_refused(context, link, scope),
        }
        for link, scope in links.items()
    ]
    return report


def _left_out(context: RunContext, link: str, result: Result) -> str:
    """Return why a crawl does not follow a link of the page."""
    verdict = context.scope.verdict(link, result.depth + 1)
    return verdict or ("not followed" if context.plan is not None else "same")


def _refused(context: RunContext, link: str, scope: str) -> dict[str, str]:
    """Return whether the address guard refuses a followed link, as far as its name shows."""
    why = context.limits.guard.refuse_origin(origin_of(link)) if scope == "followed" else None
    return {"guard": why} if why else {}
