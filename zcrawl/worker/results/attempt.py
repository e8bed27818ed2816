"""What becomes of a page: one attempt at a request, from its assignment to the Result.

The pipeline has one Attempt for each running fetch. It ends with one of `done`, `unchanged`,
`skipped`, `failed`, `handed_over` (or a method here that decides between them), and then collects
what was found. The worker machine adds the lease and calls `results`: the only place of a worker
where a Result is made, once per request unless its links need several messages. A fetch that fails
after its page was done is failed: a later end replaces an earlier one with all that was found.

Pure, because the worker machine and the simulated world make attempts too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.errors import AddressMoved, FetchError, RetryClass
from zcrawl.fetch.policy import StatusVerdict, parse_retry_after
from zcrawl.frontier.extra import decode
from zcrawl.mesh.messages import (
    LINKS_PER_RESULT,
    Assignment,
    CanonicalLink,
    ExtractionReport,
    PageRecord,
    Result,
    SpiderRequest,
    Traits,
)
from zcrawl.model.host import Manner, RobotsFile
from zcrawl.model.reasons.failure import (
    ATTEMPT_OVERDUE,
    HOST_DOWN,
    RESULT_UNSENDABLE,
    SECRET_NOT_RELEASED,
)
from zcrawl.model.reasons.skip import (
    CANONICAL,
    NOINDEX,
    REDIRECT_OUT_OF_SCOPE,
    REDIRECTED,
    ROBOTS_UNAVAILABLE,
    UNCHANGED,
)
from zcrawl.model.reasons.usage import PATH_NOT_ALLOWED
from zcrawl.model.states import Outcome
from zcrawl.parse.directives import forbids_index
from zcrawl.worker.results.items import as_message, default_item
from zcrawl.worker.results.link_filter import SortedLinks, year_of
from zcrawl.worker.results.pages import clean

if TYPE_CHECKING:
    from zcrawl.parse.extract.plan import Extracted
    from zcrawl.parse.page import ParsedPage
    from zcrawl.worker.results.context import RunContext

MAX_UNSENDABLE_DETAIL: Final = 200  # characters


class Attempt(msgspec.Struct):
    """One attempt at one request. `outcome` is None until it is decided."""

    assignment: Assignment
    context: RunContext | None = None  # None: its run cannot be worked on here, or need not be
    crawl_delay_s: float = 0.0  # the delay of robots.txt

    outcome: Outcome | None = None
    reason: str = ""
    status: int = 0
    retry: RetryClass | None = None
    retry_after_s: float | None = None
    detail: str = ""

    # Results. Lists and dicts are replaced, never changed, because others may use them.
    page: PageRecord | None = None
    items: list[bytes] = []
    extracted: ExtractionReport | None = None
    links: list[CanonicalLink] = []
    prios: list[int] = []
    blocks: list[tuple[str, list[bytes]]] = []
    paging: list[bytes] = []
    rejected: dict[str, int] = {}
    dropped: dict[str, int] = {}
    trapped: list[tuple[str, bytes, str]] = []
    requests: list[SpiderRequest] = []
    handover: CanonicalLink | None = None
    redirected_to: CanonicalLink | None = None
    traits: Traits | None = None

    # Learned besides the page.
    sitemaps: list[CanonicalLink] = []
    cookies: tuple[str, bytes] | None = None
    robots: RobotsFile | None = None
    address: str = ""

    # Set by the worker machine.
    lease: tuple[int, int, int] | None = None  # epoch, n, number of the attempt
    host_next_in_s: float = 0.0
    manner: Manner | None = None

    # ------------------------------------------------------------ how an attempt ends

    def done(
        self,
        page: PageRecord,
        status: int,
        items: list[bytes],
        rejected: dict[str, int] | None = None,
    ) -> Attempt:
        """End the page as done, with these items. `rejected` counts links that cannot be
        crawled."""
        self._end(Outcome.DONE, "", status, "")
        self.page = page
        self.items = items
        if rejected is not None:
            self.rejected = rejected
        return self

    def unchanged(self, page: PageRecord, status: int, traits: Traits) -> Attempt:
        """End the page as done and unchanged: nothing of it is read or kept again."""
        self._end(Outcome.DONE, UNCHANGED, status, "")
        self.page, self.traits = page, traits
        return self

    def skipped(self, reason: str, *, status: int = 0, detail: str = "") -> Attempt:
        self._end(Outcome.SKIPPED, reason, status, detail)
        return self

    def failed(
        self,
        reason: str,
        retry: RetryClass | None,
        *,
        status: int = 0,
        retry_after_s: float | None = None,
        detail: str = "",
    ) -> Attempt:
        self._end(Outcome.FAILED, reason, status, detail)
        self.retry, self.retry_after_s = retry, retry_after_s
        return self

    def handed_over(
        self, link: CanonicalLink, reason: str = REDIRECTED, *, status: int = 0
    ) -> Attempt:
        """End with another request in place of this one, with its block."""
        self._end(Outcome.SKIPPED, reason, status, "")
        self.handover = link
        if self.assignment.block:
            self.blocks = [(self.assignment.block, [link[1]])]
        return self

    def _end(self, outcome: Outcome, reason: str, status: int, detail: str) -> None:
        if self.outcome is not None:
            blank = Attempt(self.assignment, self.context, self.crawl_delay_s)
            for name in self.__struct_fields__:
                setattr(self, name, getattr(blank, name))
        self.outcome, self.reason, self.status = outcome, reason, status
        if detail:
            self.detail = clean(detail)

    # ------------------------------------------------------------ which end it is

    def failed_with(self, error: FetchError) -> Attempt:
        self.failed(error.reason, error.retry, retry_after_s=error.retry_after_s, detail=str(error))
        if isinstance(error, AddressMoved):
            self.address = error.address
        if error.result is not None:
            self.change_extracted(failure=error.result)
        return self

    def run_refused(self, code: str, detail: str) -> Attempt:
        """End because this worker cannot work on the run.

        Another attempt may get a worker that can; but what the operator does not allow stays
        refused.
        """
        forbidden = code in (SECRET_NOT_RELEASED, PATH_NOT_ALLOWED)
        retry = RetryClass.PERMANENT if forbidden else RetryClass.TRANSIENT
        return self.failed(code, retry, detail=detail)

    def without_robots(self, wait_s: float | None) -> Attempt:
        """Postpone while robots.txt is unavailable; skip once the job's patience is over (RFC 9309:
        unavailable means disallow)."""
        if wait_s is None:
            detail = "robots.txt could not be fetched, which forbids the whole host (RFC 9309)"
            return self.skipped(ROBOTS_UNAVAILABLE, detail=detail)
        return self.failed(ROBOTS_UNAVAILABLE, RetryClass.POSTPONED, retry_after_s=wait_s)

    def refused(
        self, verdict: StatusVerdict, status: int, retry_after: str | None, utc: float
    ) -> Attempt:
        """End with a status that means there is no page. `retry_after` is that header."""
        wait_s = None if retry_after is None else parse_retry_after(retry_after, utc)
        return self.failed(verdict.reason, verdict.retry, status=status, retry_after_s=wait_s)

    def redirected(self, target: str, status: int) -> Attempt:
        """Turn a redirect to another origin into a new request, if it belongs to the crawl.

        Under the default scope a seed may redirect anywhere, for example from example.com to
        www.example.com.
        """
        assignment, context = self.assignment, self.run_context
        inside = assignment.depth == 0 and not context.spec.scope.hosts
        if assignment.is_sitemap:  # of its URL only the host has to belong to the crawl
            inside = inside or context.scope.has_host(target)
        if not inside and context.scope.verdict(target, assignment.depth) is not None:
            return self.skipped(REDIRECT_OUT_OF_SCOPE, status=status, detail=f"to {target}")
        key = context.rules.key(target)
        if key == context.rules.key(assignment.url):
            key = context.rules.redirect_key(target)
        return self.handed_over((target, key), status=status)

    def gives_way(
        self, url: str, parsed: ParsedPage, directives: set[str], status: int, utc: float
    ) -> bool:
        """Skip a page that asks not to be kept, or that names another one as canonical.

        `directives` are those of its headers. Return whether it was skipped.
        """
        context = self.run_context
        if context.obeys_noindex and (parsed.noindex or (directives and forbids_index(directives))):
            self.skipped(NOINDEX, status=status)
            return True
        target, own_url = parsed.canonical, self.assignment.url
        if (
            context.spec.scope.collapse_canonical
            and target is not None
            and target not in (url, own_url)
            and context.rules.key(target) != context.rules.key(own_url)
            and context.scope.verdict(target, self.assignment.depth) is None
            and context.traps.verdict(target, year_of(utc)) is None
            and context.gives_way(own_url, target)
        ):
            self.handed_over((target, context.rules.key(target)), CANONICAL, status=status)
            return True
        return False

    def read(
        self, page: PageRecord, status: int, links: SortedLinks, parsed: ParsedPage
    ) -> Attempt:
        """Store what zcrawl read from the page, with or without rules of the job."""
        extracted = parsed.extracted
        if self.run_context.plan is None:
            self.done(page, status, [default_item(self.assignment, page, status)], parsed.rejected)
        else:
            self.done(page, status, [] if extracted is None else extracted.items, parsed.rejected)
            if extracted is not None:
                self.blocks = list(extracted.blocks.items())
                self.extracted = as_message(extracted)
        return self.add_links(links, extracted)

    # ------------------------------------------------------------ what was found

    @property
    def run_context(self) -> RunContext:
        """The run's context, which exists once the attempt has started its fetch."""
        assert self.context is not None, "a run that cannot be worked on is not fetched"
        return self.context

    def add_links(self, links: SortedLinks, extracted: Extracted | None = None) -> Attempt:
        """Add the page's checked links; `extracted` names those that lead no deeper."""
        self.links, self.trapped, self.dropped = links.followed, links.trapped, links.dropped
        if extracted is not None:
            self.paging = extracted.paging
        return self

    def add_redirects(self, url: str) -> Attempt:
        """Add the URL that answered after redirects.

        The leader checks whether that page is in the crawl by itself. Requests of a spider and
        POSTs are always pages of their own.
        """
        context, assignment = self.run_context, self.assignment
        if (
            self.outcome is Outcome.DONE
            and context.spec.scope.collapse_redirects
            and not context.spec.spider
            and decode(assignment.extra).is_plain
        ):
            key = context.rules.key(url)
            if key != context.rules.key(assignment.url):
                self.redirected_to = (url, key)
        return self

    def add_traits(self, traits: Traits | None, fingerprint: bytes) -> Attempt:
        """Add the page's traits, as far as its job uses them."""
        if self.outcome is Outcome.DONE and (traits is not None or fingerprint):
            self.traits = msgspec.structs.replace(traits or Traits(), fingerprint=fingerprint)
        return self

    def change_extracted(self, **changes: object) -> None:
        """Change fields of what is reported of the job's extraction."""
        self.extracted = msgspec.structs.replace(self.extracted or ExtractionReport(), **changes)

    # ------------------------------------------------------------ what is reported

    def take_lease(self, epoch: int, assignment: Assignment) -> None:
        """Set the current lease of the request: a new leader may have given it another one."""
        self.lease = (epoch, assignment.n, assignment.attempt)

    def results(self) -> list[Result]:
        """Return the Result; many links are sent in parts before it (rule `many links`)."""
        longest = max(len(self.links), len(self.requests), len(self.sitemaps))
        if longest <= LINKS_PER_RESULT:
            return [self.result()]
        starts = range(0, longest, LINKS_PER_RESULT)
        first = [self._bare()._cut(start).result() for start in starts[:-1]]
        return [*first, self._cut(starts[-1]).result()]

    def _bare(self) -> Attempt:
        return msgspec.structs.replace(
            self,
            outcome=Outcome.PART,
            page=None,
            items=[],
            trapped=[],
            dropped={},
            redirected_to=None,
            robots=None,
            extracted=None,
        )

    def _cut(self, start: int) -> Attempt:
        end = start + LINKS_PER_RESULT
        return msgspec.structs.replace(
            self,
            links=self.links[start:end],
            prios=self.prios[start:end],
            requests=self.requests[start:end],
            sitemaps=self.sitemaps[start:end],
        )

    def result(self) -> Result:
        assignment = self.assignment
        epoch, n, number = self.lease or (0, 0, assignment.attempt)
        assert self.outcome is not None, "an attempt ends before it is reported"
        # By position, in the order of the message: 34 names would cost each page 1 us.
        return Result(
            epoch,
            n,
            assignment.seq,
            assignment.run,
            assignment.host,
            number,
            self.outcome,
            self.reason,
            self.status,
            self.retry,
            self.retry_after_s,
            assignment.depth,
            self.page,
            self.items,
            self.links,
            self.rejected,
            self.handover,
            self.host_next_in_s,
            self.crawl_delay_s,
            self.detail,
            self.blocks,
            self.extracted,
            self.cookies,
            self.manner,
            self.robots,
            self.trapped,
            self.sitemaps,
            self.prios,
            self.requests,
            self.traits,
            self.address,
            self.dropped,
            self.paging,
            self.redirected_to,
        )


def by_verdict(assignment: Assignment, epoch: int) -> Attempt:
    """Return an attempt that ends without a fetch, as the leader decided."""
    attempt = Attempt(assignment)
    if assignment.verdict in (HOST_DOWN, ATTEMPT_OVERDUE):
        attempt.failed(assignment.verdict, RetryClass.PERMANENT)
    else:
        attempt.skipped(assignment.verdict)
    attempt.take_lease(epoch, assignment)
    return attempt


def unsendable(result: Result, detail: str) -> Result:
    """Return a Result in place of one that no message can carry; it has the same number."""
    assignment = Assignment(
        n=result.lease_n,
        seq=result.seq,
        run=result.run,
        host=result.host,
        url="",
        depth=result.depth,
        attempt=result.attempt,
        parent=None,
    )
    detail = detail[:MAX_UNSENDABLE_DETAIL].encode("ascii", "backslashreplace").decode()
    attempt = Attempt(assignment).failed(RESULT_UNSENDABLE, RetryClass.PERMANENT, detail=detail)
    attempt.take_lease(result.lease_epoch, assignment)
    return attempt.result()
