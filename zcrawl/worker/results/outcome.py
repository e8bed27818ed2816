"""From what a fetch came to, to the Result that is reported. Pure; called by `pipeline.pipeline`.

A Result made here lacks its lease and its number, which the worker machine adds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.errors import AddressMoved, FetchError, JobError, PluginError, RetryClass
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.keyring import HeaderSecrets, Keyring, not_released
from zcrawl.fetch.policy import parse_retry_after
from zcrawl.fetch.ports import HopLimits, TlsFiles
from zcrawl.frontier.extra import decode
from zcrawl.frontier.scope import ScopeFilter, canonical_rules
from zcrawl.frontier.traps import ShapeWatch, TrapFilter
from zcrawl.frontier.url import origin_of
from zcrawl.mesh.messages import Assignment, Extracted, Link, Page, Result, RunConfig
from zcrawl.model.reasons.skip import (
    CANONICAL,
    NOINDEX,
    REDIRECT_OUT_OF_SCOPE,
    REDIRECTED,
    ROBOTS_UNAVAILABLE,
)
from zcrawl.model.reasons.usage import BAD_SPEC
from zcrawl.model.spec import OFF, JobSpec
from zcrawl.model.states import SITEMAP_PRIO, Outcome
from zcrawl.parse.directives import agent_token, forbids_index
from zcrawl.parse.page import PageOptions, ParsedPage
from zcrawl.submit.outputs import wants_capture
from zcrawl.worker.results.items import iso
from zcrawl.worker.results.link_filter import LinkFilter, SortedLinks, year_of

if TYPE_CHECKING:
    from zcrawl.parse.extract.plan import Extracted as Found
    from zcrawl.parse.extract.plan import Plan
    from zcrawl.parse.page_protocol import PageSetup

MAX_DETAIL: Final = 500  # characters
MAX_CONTENT_TYPE: Final = 200
MOST_SITEMAPS: Final = 50_000  # that sitemaps name, for each worker and run
_MAX_REMEMBERED: Final = 50_000  # hosts and pages that a run remembers something of
_LONGEST_LOOP: Final = 20  # of pages that name each other as canonical


Tell = Callable[[str, str], None]  # writes a line to the log


class RunContext:
    """A run's configuration, compiled once per revision. Raises JobError for one that is wrong,
    or that asks for files of this worker which it may not have."""

    def __init__(
        self,
        config: RunConfig,
        keyring: Keyring | None = None,
        former: RunContext | None = None,
    ) -> None:
        """`former`: that of the revision before."""
        try:
            self.spec = msgspec.json.decode(config.spec, type=JobSpec)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise JobError(f"run {config.run}: {error}", code=BAD_SPEC) from None
        spec = self.spec
        self.scope = ScopeFilter(spec.scope, frozenset(config.seed_hosts))
        self.rules = canonical_rules(spec.scope, config.canonical)
        if not self.rules.are_known:
            raise PluginError(
                f"version {config.canonical} of the canonical form: this worker is older or newer",
                code=PluginError.MISSING,
            )
        self.plan = _plan(spec)
        self.captures = wants_capture(spec)
        self.remembers = spec.recrawl.incremental
        self.compares = spec.duplicates.near != OFF
        polite = spec.politeness
        shapes: ShapeWatch | None = None if former is None else former.traps.shapes
        self.traps: TrapFilter = TrapFilter(spec.traps, shapes)
        self.links = LinkFilter(self.scope, self.traps, spec.scope.max_depth)
        self.token = agent_token(spec.fetch.user_agent)
        self.obeys_nofollow = polite.robots if polite.nofollow is None else polite.nofollow
        self.obeys_noindex = polite.robots if polite.noindex is None else polite.noindex
        self.options = PageOptions(
            not self.obeys_nofollow, self.plan, self.token, fingerprint=self.compares
        )
        self._extracts = config.spec if self.plan is not None else b""
        self.told_sitemaps: set[str] = set()  # origins whose sitemaps were reported
        self.sitemaps_left = MOST_SITEMAPS  # that others of them may still name
        keyring = keyring or Keyring()
        self.secrets = keyring.for_run(spec)
        base = {"User-Agent": spec.fetch.user_agent, "Accept": "*/*"}
        self._headers = HeaderSecrets({**base, **spec.fetch.headers}, self.secrets)
        self.headers_for = self._headers.for_url  # what is sent to a URL
        self._told_hosts: set[str] = set()  # that secrets were kept from
        self.limits = HopLimits(
            total_s=spec.fetch.timeout,
            connect_s=min(spec.fetch.connect_timeout, spec.fetch.timeout),
            read_s=min(spec.fetch.read_timeout, spec.fetch.timeout),
            max_bytes=spec.fetch.max_bytes,
            verify_tls=spec.fetch.verify_tls,
            guard=Guard(spec.fetch.allow_private, spec.fetch.private_hosts),
            tls=keyring.check_tls(
                TlsFiles(spec.fetch.ca_file, spec.fetch.client_cert, spec.fetch.client_key)
            ),
            http2=spec.fetch.http2,
            browser=spec.browser if spec.fetch.engine == "browser" else None,
            run=config.run,
            cookies=spec.fetch.cookies or bool(spec.login.url),
            archives=self.captures,
        )
        self._gave_way: dict[bytes, bytes] = {}  # pages that were skipped for their canonical one

    @functools.cached_property
    def setup(self) -> PageSetup:
        """What a child process has to know to read a page of this run."""
        from zcrawl.parse.page_protocol import PageSetup  # of runs with costly pages

        options = self.options
        return PageSetup(
            self.rules,
            options.follow_nofollow,
            options.token,
            options.fingerprint,
            bytes(self._extracts),
        )

    def require_secrets(
        self, one: Assignment, more: Callable[[str], frozenset[str]] | None, tell: Tell
    ) -> None:
        """FetchError for a request that needs a secret which its host may not get; `more` names
        those beside the headers'. Where a redirect led to another host, the request goes on
        without: the job did not ask for that host by itself."""
        names = self._headers.unreleased(one.url)
        names = names if more is None else names | more(one.url)
        if not names or decode(one.extra).redirected:
            return
        refusal = not_released(names, one.url)
        origin = origin_of(one.url)
        if origin not in self._told_hosts and len(self._told_hosts) < _MAX_REMEMBERED:
            self._told_hosts.add(origin)
            tell(refusal.code, f"run {one.run}: {refusal}")
        raise refusal

    def is_endless(self, one: Assignment) -> bool:
        """Whether a request is of a shape that has ended. Seeds, sitemaps and what a spider asks
        for are wanted all the same."""
        shapes = self.traps.shapes
        return (
            shapes is not None
            and bool(shapes.ended)
            and one.depth > 0
            and not one.extra
            and one.prio != SITEMAP_PRIO
            and not self.spec.spider
            and shapes.has_ended(one.url)
        )

    def gives_way(self, url: str, canonical: str) -> bool:
        """Whether a page is skipped for the one that it names. Not if that one, or another one
        behind it, was skipped for this page: of pages that name each other one has to stay. A
        worker knows of its own pages, which are all of a host unless it is spread."""
        own, there = self.rules.key(url), self.rules.key(canonical)
        onward: bytes | None = there
        for _ in range(_LONGEST_LOOP):
            if onward is None:
                break
            if onward == own:
                return False
            onward = self._gave_way.get(onward)
        if len(self._gave_way) >= _MAX_REMEMBERED:
            self._gave_way.clear()
        self._gave_way[own] = there
        return True


def _plan(spec: JobSpec) -> Plan | None:
    if not spec.extract:
        return None
    from zcrawl.parse.extract.plan import Plan  # 15 ms of a start that most jobs do not need

    return Plan(spec.extract, spec.schema)


class DefaultItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written per page when a job has no rules of its own."""

    url: str
    final_url: str
    status: int
    depth: int
    title: str | None
    content_type: str
    bytes: int
    fetched_at: str
    parent: str | None
    screenshot: str | None = None  # blob names, of a browser's pages
    pdf: str | None = None


_encode_item = msgspec.json.Encoder().encode


def done(
    one: Assignment,
    page: Page,
    status: int,
    links: list[tuple[str, bytes]],
    crawl_delay_s: float,
    rejected: dict[str, int] | None = None,
) -> Result:
    """A page of a job without rules of its own: one default item."""
    item = default_item(one, page, status)
    return done_with(one, page, status, [item], links, crawl_delay_s, rejected)


def default_item(one: Assignment, page: Page, status: int) -> bytes:
    item = DefaultItem(
        url=one.url,
        final_url=page.final_url,
        status=status,
        depth=one.depth,
        title=page.title,
        content_type=page.content_type,
        bytes=page.size,
        fetched_at=iso(page.fetched_at),
        parent=one.parent,
        screenshot=page.files.get("screenshot"),
        pdf=page.files.get("pdf"),
    )
    return _encode_item(item)


def done_with(
    one: Assignment,
    page: Page,
    status: int,
    items: list[bytes],
    links: list[tuple[str, bytes]],
    crawl_delay_s: float,
    rejected: dict[str, int] | None = None,
    labels: dict[str, list[bytes]] | None = None,
    extracted: Extracted | None = None,
) -> Result:
    return Result(
        lease_epoch=0,
        lease_n=0,
        seq=one.seq,
        run=one.run,
        host=one.host,
        attempt=one.attempt,
        outcome=Outcome.DONE,
        status=status,
        depth=one.depth,
        page=page,
        items=items,
        rejected=rejected or {},
        links=links,
        crawl_delay_s=crawl_delay_s,
        labels=list(labels.items()) if labels else [],
        extracted=extracted,
    )


def skipped(
    one: Assignment,
    reason: str,
    *,
    status: int = 0,
    handover: Link | None = None,
    crawl_delay_s: float = 0.0,
    detail: str = "",
) -> Result:
    return Result(
        lease_epoch=0,
        lease_n=0,
        seq=one.seq,
        run=one.run,
        host=one.host,
        attempt=one.attempt,
        outcome=Outcome.SKIPPED,
        reason=reason,
        status=status,
        depth=one.depth,
        handover=handover,
        labels=[(one.label, [handover[1]])] if handover is not None and one.label else [],
        crawl_delay_s=crawl_delay_s,
        detail=clean(detail),
    )


def failed(
    one: Assignment,
    reason: str,
    retry: RetryClass | None,
    *,
    status: int = 0,
    retry_after_s: float | None = None,
    crawl_delay_s: float = 0.0,
    detail: str = "",
) -> Result:
    return Result(
        lease_epoch=0,
        lease_n=0,
        seq=one.seq,
        run=one.run,
        host=one.host,
        attempt=one.attempt,
        outcome=Outcome.FAILED,
        reason=reason,
        status=status,
        retry=retry,
        retry_after_s=retry_after_s,
        depth=one.depth,
        crawl_delay_s=crawl_delay_s,
        detail=clean(detail),
    )


def failed_with(one: Assignment, error: FetchError, crawl_delay_s: float = 0.0) -> Result:
    result = failed(
        one,
        error.reason,
        error.retry,
        retry_after_s=error.retry_after_s,
        crawl_delay_s=crawl_delay_s,
        detail=str(error),
    )
    if isinstance(error, AddressMoved):
        return msgspec.structs.replace(result, address=error.address)
    return result


def with_links(result: Result, links: SortedLinks, found: Found | None = None) -> Result:
    """The result with what its page's links came to; `found` tells which of them lead no deeper."""
    paging = found.paging if found is not None else []
    if not links.trapped and not links.dropped and not paging:
        if result.links is links.followed:
            return result
        return msgspec.structs.replace(result, links=links.followed)
    return msgspec.structs.replace(
        result, links=links.followed, trapped=links.trapped, dropped=links.dropped, paging=paging
    )


def landed(result: Result, one: Assignment, context: RunContext, url: str) -> Result:
    """The result of a page that `url` answered after redirects: the leader finds out whether that
    page is in the crawl by itself. What a spider asks for, and a POST, are pages of their own."""
    if (
        result.outcome is not Outcome.DONE
        or not context.spec.scope.collapse_redirects
        or context.spec.spider
        or not decode(one.extra).is_plain
    ):
        return result
    key = context.rules.key(url)
    if key == context.rules.key(one.url):
        return result
    return msgspec.structs.replace(result, redirected_to=(url, key))


def with_cookies(result: Result, cookies: tuple[str, bytes] | None) -> Result:
    return result if cookies is None else msgspec.structs.replace(result, cookies=cookies)


def redirected(
    one: Assignment, context: RunContext, target: str, status: int, crawl_delay_s: float
) -> Result:
    """A redirect to another origin becomes a request of its own, if it belongs to the crawl. A
    seed may lead anywhere under the default scope: who typed example.com meant www.example.com."""
    inside = one.depth == 0 and not context.spec.scope.hosts
    if one.prio == SITEMAP_PRIO:  # of its URL only the host has to belong to the crawl
        inside = inside or context.scope.has_host(target)
    if inside or context.scope.verdict(target, one.depth) is None:
        key = context.rules.key(target)
        if key == context.rules.key(one.url):
            key = context.rules.redirect_key(target)
        return skipped(
            one, REDIRECTED, status=status, handover=(target, key), crawl_delay_s=crawl_delay_s
        )
    return skipped(
        one,
        REDIRECT_OUT_OF_SCOPE,
        status=status,
        crawl_delay_s=crawl_delay_s,
        detail=f"to {target}",
    )


def wait_asked_for(header: str | None, utc: float) -> float | None:
    """Seconds that the server asks to wait."""
    return None if header is None else parse_retry_after(header, utc)


def clean(text: str) -> str:
    """A text that every codec and terminal can take."""
    text = text[:MAX_DETAIL]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def no_rules(one: Assignment, wait_s: float | None) -> Result:
    """RFC 9309: who cannot say what is allowed allows nothing; first it is waited for."""
    if wait_s is None:
        detail = "robots.txt could not be fetched, which forbids the whole host (RFC 9309)"
        return skipped(one, ROBOTS_UNAVAILABLE, detail=detail)
    return failed(one, ROBOTS_UNAVAILABLE, RetryClass.POSTPONED, retry_after_s=wait_s)


def unkept(
    one: Assignment,
    context: RunContext,
    url: str,
    parsed: ParsedPage,
    asks: set[str],
    crawl_delay_s: float,
    utc: float,
) -> Result | None:
    """A page that asks not to be kept, or that gives way to another one if the job wants that.
    `asks` are the directives of its headers."""
    if context.obeys_noindex and (parsed.noindex or (asks and forbids_index(asks))):
        return skipped(one, NOINDEX, crawl_delay_s=crawl_delay_s)
    target = parsed.canonical
    if (
        context.spec.scope.collapse_canonical
        and target is not None
        and target not in (url, one.url)
        and context.rules.key(target) != context.rules.key(one.url)
        and context.scope.verdict(target, one.depth) is None
        and context.traps.verdict(target, year_of(utc)) is None
        and context.gives_way(one.url, target)
    ):
        link = (target, context.rules.key(target))
        return skipped(one, CANONICAL, handover=link, crawl_delay_s=crawl_delay_s)
    return None
