"""A fake web under a seed: hosts, pages, links, and the ways in which pages misbehave.

It keeps a log of every request, by which the world checks politeness and repeated fetches.
"""

from __future__ import annotations

import dataclasses
import random

import msgspec

from zcrawl.errors import RetryClass
from zcrawl.frontier.recrawl import decode
from zcrawl.frontier.scope import canonical_rules
from zcrawl.frontier.url import CANONICAL_VERSION, origin_of
from zcrawl.mesh.messages import Assignment, PageRecord, Traits
from zcrawl.model.reasons.failure import REDIRECT_LOOP, http_status
from zcrawl.model.spec import Scope
from zcrawl.worker.results.attempt import Attempt

RULES = canonical_rules(Scope(), CANONICAL_VERSION)  # of the runs of every simulated world


@dataclasses.dataclass
class FakePage:
    url: str
    links: list[str]
    fails_first: int = 0  # so many answers are 503 before the first 200
    asks_for_patience: bool = False  # with a Retry-After
    dead: bool = False  # 404
    redirects_to: str | None = None
    poison: bool = False  # its item cannot be stored
    kills: bool = False  # whoever fetches it dies
    second_links: list[str] | None = None  # what a second fetch shows
    second_fails: bool = False  # a second fetch is 404


@dataclasses.dataclass
class Visit:
    url: str
    host: str
    worker: str
    started: float
    ended: float | None = None
    address: str = ""
    run: int = 0


class FakeWeb:
    def __init__(
        self, rng: random.Random, pages: int, hosts: int, *, killers: bool, poison: bool
    ) -> None:
        # One registered domain for all hosts, so that limits of domains have an effect.
        names = [f"http://h{number}.site.test" for number in range(hosts)]
        urls = [f"{rng.choice(names)}/p{number}" for number in range(pages)]
        urls[0] = f"{names[0]}/"
        self.seed = urls[0]
        self.hosts = [name.partition("://")[2] for name in names]
        self.pages: dict[str, FakePage] = {}
        self.visits: list[Visit] = []
        self.answers: dict[str, int] = {}  # 200s given, by URL
        self._tries: dict[str, int] = {}
        self.moves_at = float("inf")  # when the second host moves to another address
        for at, url in enumerate(urls):
            ahead = urls[at + 1 : at + 5]
            links = [*ahead[:2], *rng.sample(urls, min(3, pages))]
            page = self.pages[url] = FakePage(url, list(dict.fromkeys(links)))
            if at == 0:
                continue
            dice = rng.random()
            if dice < 0.12:
                page.fails_first = rng.randint(1, 2)
                page.asks_for_patience = page.fails_first == 2
            elif dice < 0.17:
                page.dead = True
            elif dice < 0.22:
                page.second_fails = True
            elif dice < 0.30:
                page.second_links = rng.sample(urls, min(3, pages))
            elif dice < 0.42:
                near = [other for other in urls if origin_of(other) == origin_of(url)]
                page.redirects_to = rng.choice(urls if rng.random() < 0.3 else near)
            elif dice < 0.45 and poison:
                page.poison = True
            elif dice < 0.47 and killers:
                page.kills = True

    def address_of(self, origin: str, now: float) -> str:
        """Two hosts share each address, and one of them moves."""
        number = self.hosts.index(origin.partition("://")[2])
        if number == 1 and now >= self.moves_at:
            number = 2
        return f"192.0.2.{number // 2 + 1}"

    def start(self, url: str, worker: str, now: float) -> Visit:
        origin = origin_of(url)
        visit = Visit(url, origin, worker, now, address=self.address_of(origin, now))
        self.visits.append(visit)
        return visit

    def answer(self, assignment: Assignment, now: float) -> Attempt:
        """Return the attempt that the pipeline would report for this page now."""
        url = self.landing(assignment.url)
        attempt = Attempt(assignment)
        if url is None:
            return attempt.failed(REDIRECT_LOOP, RetryClass.PERMANENT)
        page = self.pages[url]
        tries = self._tries[url] = self._tries.get(url, 0) + 1
        if page.dead or (page.second_fails and self.answers.get(url, 0) >= 1):
            return attempt.failed(http_status(404), RetryClass.PERMANENT, status=404)
        if tries <= page.fails_first:
            wait_s = 0.3 if page.asks_for_patience else None
            reason = http_status(503)
            return attempt.failed(reason, RetryClass.THROTTLED, status=503, retry_after_s=wait_s)
        if page.redirects_to:  # to another host
            target = page.redirects_to
            return attempt.handed_over((target, RULES.key(target)), status=301)
        version = min(2, self.answers.get(url, 0) + 1)
        self.answers[url] = self.answers.get(url, 0) + 1
        earlier_traits, content = (
            decode(assignment.known),
            self.content_of(url, assignment.run, version),
        )
        if earlier_traits is not None and earlier_traits.content == content:
            traits = msgspec.structs.replace(earlier_traits, unchanged=True)
            attempt.unchanged(PageRecord(url, None, "", 0, now, 1.0), 304, traits)
        else:
            mark = "poison" if page.poison else "fine"
            place = f'"url": "{assignment.url}", "final": "{url}"'
            item = f'{{{place}, "version": {version}, "mark": "{mark}"}}'
            attempt.done(PageRecord(url, None, "text/html", 100, now, 1.0), 200, [item.encode()])
            attempt.links = [(link, RULES.key(link)) for link in self.links_of(url, version)]
            attempt.traits = Traits(content=content)
        if url != assignment.url:
            attempt.redirected_to = (url, RULES.key(url))
        return attempt

    def landing(self, url: str) -> str | None:
        """Return the page that answers `url` after redirects within its host; None: a loop."""
        passed = {url}
        while (target := self.pages[url].redirects_to) and origin_of(target) == origin_of(url):
            if target in passed:
                return None
            passed.add(target)
            url = target
        return url

    def page_behind(self, url: str) -> FakePage:
        """Return the page that decides how `url` is answered."""
        return self.pages[self.landing(url) or url]

    def content_of(self, url: str, run: int, version: int) -> bytes:
        """A third of the pages differ in every run; others when they have other links."""
        changes = sum(url.encode()) % 3 == 0
        shown = version if self.pages[url].second_links else 1
        return f"{run if changes else 0}.{shown}".encode()

    def links_of(self, url: str, version: int) -> list[str]:
        page = self.pages[url]
        return page.second_links if version > 1 and page.second_links else page.links
