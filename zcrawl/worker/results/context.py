"""A run in its worker: the job's rules, compiled once, and state collected from its pages.

Made by `pipeline.pipeline` for each revision of a run; its attempts have it. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.errors import JobError, PluginError
from zcrawl.fetch.guard import Guard
from zcrawl.fetch.keyring import HeaderSecrets, Keyring, not_released
from zcrawl.fetch.ports import HopLimits, TlsFiles
from zcrawl.frontier.extra import decode
from zcrawl.frontier.scope import ScopeFilter, canonical_rules
from zcrawl.frontier.traps import ShapeWatch, TrapFilter
from zcrawl.frontier.url import origin_of
from zcrawl.mesh.messages import Assignment, RunConfig
from zcrawl.model.log_event import Log
from zcrawl.model.reasons.usage import BAD_SPEC
from zcrawl.model.spec import OFF, JobSpec
from zcrawl.parse.directives import agent_token
from zcrawl.parse.page import PageOptions
from zcrawl.submit.outputs import wants_capture
from zcrawl.worker.results.link_filter import LinkFilter

if TYPE_CHECKING:
    from zcrawl.parse.extract.plan import ExtractionPlan
    from zcrawl.parse.page_protocol import PageSetup

MOST_SITEMAPS: Final = 50_000  # listed by sitemaps, for each worker and run
_MAX_REMEMBERED: Final = 50_000  # hosts and pages that a run remembers something of
_LONGEST_LOOP: Final = 20  # of pages that name each other as canonical


class RunContext:
    """A run's configuration, compiled once per revision.

    Raises JobError for a wrong one, or one that needs files which this worker does not allow.
    """

    def __init__(
        self,
        config: RunConfig,
        keyring: Keyring | None = None,
        former: RunContext | None = None,
    ) -> None:
        """`former`: the context of the revision before."""
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
        self.reported_sitemaps: set[str] = set()  # origins whose sitemaps were reported
        self.sitemaps_left = MOST_SITEMAPS  # that others of them may still name
        keyring = keyring or Keyring()
        self.secrets = keyring.for_run(spec, config.secrets)
        self.shell_rights = keyring.shell
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
        """Return what a child process needs to read a page of this run."""
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
        self, assignment: Assignment, more: Callable[[str], frozenset[str]] | None, tell: Log
    ) -> None:
        """Raise FetchError if a request needs a secret that its host may not get.

        `more` names secrets besides those of the headers. After a redirect to another host the
        request goes on without secrets, because the job did not choose that host.
        """
        names = self._headers.missing_secrets(assignment.url)
        names = names if more is None else names | more(assignment.url)
        if not names or decode(assignment.extra).redirected:
            return
        refusal = not_released(names, assignment.url)
        origin = origin_of(assignment.url)
        if origin not in self._told_hosts and len(self._told_hosts) < _MAX_REMEMBERED:
            self._told_hosts.add(origin)
            tell(refusal.code, str(refusal), run=assignment.run)
        raise refusal

    def is_endless(self, assignment: Assignment) -> bool:
        """Return whether a request has a shape that ended as a trap.

        Seeds, sitemaps and requests of a spider are always fetched.
        """
        shapes = self.traps.shapes
        return (
            shapes is not None
            and bool(shapes.ended)
            and assignment.depth > 0
            and not assignment.extra
            and not assignment.is_sitemap
            and not self.spec.spider
            and shapes.has_ended(assignment.url)
        )

    def gives_way(self, url: str, canonical: str) -> bool:
        """Return whether a page is skipped for the canonical page that it names.

        Of pages that name each other, one must stay. A worker knows its own pages, which are all
        pages of a host unless the host is spread.
        """
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


def _plan(spec: JobSpec) -> ExtractionPlan | None:
    if not spec.extract:
        return None
    from zcrawl.parse.extract.plan import (
        ExtractionPlan,
    )  # 15 ms of a start that most jobs do not need

    return ExtractionPlan(spec.extract, spec.schema)
