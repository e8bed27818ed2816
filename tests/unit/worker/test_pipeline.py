"""One fetch from its assignment to its result, on an engine that the test plays."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import msgspec
import pytest

from zcrawl.errors import BlockedAddress
from zcrawl.fetch.keyring import JobRights, Keyring
from zcrawl.fetch.policy import fetch_error
from zcrawl.fetch.ports import HopLimits
from zcrawl.frontier.extra import REDIRECT, Extra, encode
from zcrawl.frontier.robots_place import ELSEWHERE, RobotsWay, place_in, robots_group
from zcrawl.frontier.url import url_key
from zcrawl.mesh.messages import Assignment, PageRecord, Result, RunConfig
from zcrawl.model.host import RobotsFile
from zcrawl.model.spec import Auth, Fetch, JobSpec, Login, OutputSpec, Politeness, Scope
from zcrawl.model.states import Outcome
from zcrawl.worker.pipeline.pipeline import Pipeline, PipelineSettings
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.context import RunContext

SITE = "https://x.test"
HTML = {"content-type": "text/html"}
Answer = httpx.Response | Exception


def page(body: str = "<title>t</title><a href='/b'>b</a>", **headers: str) -> httpx.Response:
    return httpx.Response(200, headers={**HTML, **headers}, text=body)


def to(location: str, status: int = 302) -> httpx.Response:
    return httpx.Response(status, headers={"location": location})


class Owner:
    """A pipeline's owner that notes what it is told, and gives no permits."""

    def __init__(self) -> None:
        self.ends: dict[int, Result] = {}
        self.lacks: list[tuple[int, str]] = []
        self.notes: list[tuple[str, str]] = []

    def fetch_ended(self, seq: int, attempt: Attempt) -> None:
        self.ends[seq] = attempt.result()

    def hop_wanted(self, seq: int, crawl_delay_s: float) -> None: ...

    def started_late(self, seq: int) -> None: ...

    def run_lacks(self, run: int, what: str) -> None:
        self.lacks.append((run, what))

    def note(self, name: str, detail: str, *, run: int = 0) -> None:
        self.notes.append((name, detail))


class Rig:
    """A pipeline whose permits are given at once and noted: its owner and its engine."""

    def __init__(self, answers: Mapping[str, Answer], spec: JobSpec, **options: Any) -> None:
        self.answers = answers
        self.requested: list[str] = []
        self.limits: list[HopLimits] = []
        self.headers: list[Mapping[str, str]] = []
        self.results: dict[int, Result] = {}
        self.hops = 0
        self.errors: list[str] = []
        self.now = 0.0
        self.on_get: Callable[[], None] = lambda: None
        self._left = 0
        self._done = asyncio.Event()
        settings = PipelineSettings(**options)
        utc = 1_700_000_000.0
        self.pipeline = Pipeline(self, lambda spec: self, lambda: self.now, lambda: utc, settings)
        self.pipeline.adopt(RunConfig(1, 1, msgspec.json.encode(spec), ["x.test"]))

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        self.requested.append(url)
        self.limits.append(limits)
        self.headers.append(headers)
        self.on_get()
        for _ in range(3):  # others get their turn, as they do with a real network
            await asyncio.get_running_loop().create_task(_nothing())
        answer = self.answers[url]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> httpx.Response:
        raise AssertionError("these jobs have no login")

    async def aclose(self) -> None: ...

    def hop_wanted(self, seq: int, crawl_delay_s: float) -> None:
        self.hops += 1
        asyncio.get_running_loop().call_soon(self.pipeline.permit, seq)

    def started_late(self, seq: int) -> None: ...

    def run_lacks(self, run: int, what: str) -> None: ...

    def note(self, name: str, detail: str, *, run: int = 0) -> None:
        self.errors.append(name)

    def fetch_ended(self, seq: int, attempt: Attempt) -> None:
        self.results[seq] = attempt.result()
        self._left -= 1
        if self._left == 0:
            self._done.set()

    async def fetch(
        self,
        *paths: str,
        depth: int = 1,
        groups: tuple[str, ...] = (),
        close: bool = True,
        extra: bytes = b"",
    ) -> list[Result]:
        self._left = len(paths)
        self._done.clear()
        for seq, path in enumerate(paths):
            assignment = Assignment(seq, seq, 1, 1, SITE + path, depth, 1, None, extra=extra)
            self.pipeline.start(assignment, None, groups)
        async with asyncio.timeout(5):
            await self._done.wait()
        if close:
            await self.pipeline.close()
        return [self.results[seq] for seq in range(len(paths))]


async def _nothing() -> None: ...


def rig(
    answers: Mapping[str, Answer], *, robots: bool = False, patience: float = 30.0, **fetch: Any
) -> Rig:
    politeness = Politeness(robots=robots, robots_patience=patience)
    spec = JobSpec("j", politeness=politeness, fetch=Fetch(**fetch))
    return Rig({SITE + path: answer for path, answer in answers.items()}, spec)


async def test_a_page_gives_an_item_and_its_links() -> None:
    """The plain case needs one request and no further permit."""
    world = rig({"/a": page()})
    (result,) = await world.fetch("/a")
    assert result.outcome is Outcome.DONE
    assert result.page is not None
    assert result.page.title == "t"
    assert [url for url, _ in result.links] == [f"{SITE}/b"]
    assert (world.requested, world.hops) == ([f"{SITE}/a"], 0)


async def test_robots_txt_is_asked_for_once_and_obeyed() -> None:
    """Those who come while it is on its way wait for it, and each then takes a new permit."""
    rules = httpx.Response(200, text="User-agent: *\nDisallow: /no\nCrawl-delay: 3\n")
    world = rig({"/robots.txt": rules, "/a": page(), "/c": page()}, robots=True)
    allowed, forbidden, other = await world.fetch("/a", "/no", "/c")
    assert world.requested.count(f"{SITE}/robots.txt") == 1
    assert (allowed.outcome, other.outcome) == (Outcome.DONE, Outcome.DONE)
    assert (forbidden.outcome, forbidden.reason) == (Outcome.SKIPPED, "robots")
    assert f"{SITE}/no" not in world.requested
    assert {allowed.crawl_delay_s, forbidden.crawl_delay_s} == {3.0}
    assert world.hops == 2


async def test_rules_that_cannot_be_had_hold_the_page_back() -> None:
    """A server in trouble has not said that everything is allowed: the page waits for a while,
    which is no attempt, and nobody is told that there are no rules."""
    world = rig({"/robots.txt": httpx.Response(503)}, robots=True)
    (result,) = await world.fetch("/a")
    assert (result.outcome, result.reason) == (Outcome.FAILED, "robots_unavailable")
    assert (result.retry, result.robots) == ("postponed", None)
    assert result.retry_after_s == 2.0


async def test_rules_that_are_never_to_be_had_forbid_everything() -> None:
    """Without patience the page is skipped at once, and the next owner is told so."""
    world = rig({"/robots.txt": httpx.Response(503)}, robots=True, patience=0.0)
    (result,) = await world.fetch("/a")
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "robots_unavailable")
    assert result.robots is not None
    assert (result.robots.status, result.robots.lasts_s) == (503, 600.0)


async def test_a_robots_txt_that_another_worker_fetched_is_not_asked_for() -> None:
    """It came with the grant, and it is obeyed."""
    rules = RobotsFile(200, zlib.compress(b"User-agent: *\nDisallow: /no\n"), 100.0)
    world = rig({"/a": page()}, robots=True)
    world.pipeline.learn_robots(SITE, rules)
    allowed, forbidden = await world.fetch("/a", "/no")
    assert (allowed.outcome, forbidden.reason) == (Outcome.DONE, "robots")
    assert world.requested == [f"{SITE}/a"]


async def test_a_fetched_robots_txt_is_reported_once() -> None:
    """For the store and for the next owner of the host."""
    rules = httpx.Response(200, text="User-agent: *\nDisallow: /no\n")
    world = rig({"/robots.txt": rules, "/a": page(), "/c": page()}, robots=True)
    results = await world.fetch("/a", "/c")
    (robots,) = [result.robots for result in results if result.robots is not None]
    assert zlib.decompress(robots.body) == rules.content
    assert (robots.status, robots.lasts_s) == (200, 3600.0)


async def test_a_host_that_is_away_is_told_by_its_own_name() -> None:
    """robots.txt fails as the page would: dns says more than robots_unavailable."""
    world = rig({"/robots.txt": fetch_error("dns", "no such host")}, robots=True)
    first, second = await world.fetch("/a", "/c")
    assert (first.reason, second.reason) == ("dns", "dns")
    assert world.requested == [f"{SITE}/robots.txt"]


async def test_a_redirect_on_the_host_takes_a_permit_for_each_hop() -> None:
    """The host's pace counts requests, not pages."""
    world = rig({"/a": to("/b"), "/b": to("/c"), "/c": page()})
    (result,) = await world.fetch("/a")
    assert result.outcome is Outcome.DONE
    assert result.page is not None
    assert result.page.final_url == f"{SITE}/c"
    assert world.hops == 2


async def test_a_page_behind_a_redirect_tells_where_it_came_from() -> None:
    """By the key that a link to it would have. A page without one tells nothing."""
    world = rig({"/a": to("/b"), "/b": to("/c?x=1#y"), "/c?x=1": page()})
    moved, plain = await world.fetch("/a", "/c?x=1")
    assert moved.redirected_to == (f"{SITE}/c?x=1", url_key(f"{SITE}/c?x=1"))
    assert plain.redirected_to is None


@pytest.mark.parametrize(
    ("spec", "extra"),
    [
        (JobSpec("j", scope=Scope(collapse_redirects=False)), b""),
        (JobSpec("j", spider="x:Y"), b""),
        (JobSpec("j"), encode(Extra(method="POST", body=b"1"))),
        (JobSpec("j"), encode(Extra(handler="parse"))),
        (JobSpec("j", scope=Scope(collapse_scheme=True)), b""),
    ],
    ids=["off", "spider", "post", "handler", "same-key"],
)
def test_what_stays_a_page_of_its_own_behind_a_redirect(spec: JobSpec, extra: bytes) -> None:
    """The job does not want it, somebody asked for it on purpose, or it is the same page."""
    context = RunContext(RunConfig(1, 1, msgspec.json.encode(spec), ["x.test"]))
    assignment = Assignment(1, 1, 1, 1, f"{SITE}/a", 1, 1, None, extra=extra)
    target = "http://x.test/a" if spec.scope.collapse_scheme else f"{SITE}/b"
    done = Attempt(assignment, context).done(PageRecord(target, None, "", 1, 0.0, 0.0), 200, [])
    assert done.add_redirects(target).redirected_to is None


def test_only_pages_tell_where_they_landed() -> None:
    """A skip or a failure behind a redirect makes nobody a duplicate."""
    context = RunContext(RunConfig(1, 1, msgspec.json.encode(JobSpec("j")), ["x.test"]))
    assignment = Assignment(1, 1, 1, 1, f"{SITE}/a", 1, 1, None, extra=encode(REDIRECT))
    gone = Attempt(assignment, context).skipped("noindex")
    assert gone.add_redirects(f"{SITE}/b").redirected_to is None
    done = Attempt(assignment, context).done(
        PageRecord(f"{SITE}/b", None, "", 1, 0.0, 0.0), 200, []
    )
    assert done.add_redirects(f"{SITE}/b").redirected_to is not None


async def test_a_redirect_to_another_host_is_not_followed() -> None:
    """It becomes a request of its own, if it belongs to the crawl."""
    world = rig({"/a": to("https://y.test/")})
    (result,) = await world.fetch("/a")
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "redirect_out_of_scope")
    (result,) = await rig({"/a": to("https://y.test/")}).fetch("/a", depth=0)
    assert result.reason == "redirected"
    assert result.handover is not None
    assert result.handover[0] == "https://y.test/"
    assert len(world.requested) == 1


async def test_all_hops_together_have_the_time_of_one_request() -> None:
    """Each hop gets what is left; a server cannot stretch a fetch by redirects."""
    world = rig({"/a": to("/b"), "/b": to("/c"), "/c": page()}, timeout=10.0)
    world.on_get = four_seconds_of(world)
    (result,) = await world.fetch("/a")
    assert result.outcome is Outcome.DONE
    assert [limits.total_s for limits in world.limits] == [10.0, 6.0, 2.0]
    world = rig({"/a": to("/b"), "/b": to("/c"), "/c": to("/d")}, timeout=10.0)
    world.on_get = four_seconds_of(world)
    (result,) = await world.fetch("/a")
    assert result.reason == "total_timeout"


def four_seconds_of(world: Rig) -> Callable[[], None]:
    def step() -> None:
        world.now += 4.0

    return step


async def test_a_failure_keeps_its_status_and_what_the_server_asked_for() -> None:
    """Retry-After reaches the leader."""
    answer = httpx.Response(429, headers={"retry-after": "17"})
    (result,) = await rig({"/a": answer}).fetch("/a")
    assert (result.reason, result.status, result.retry_after_s) == ("http_429", 429, 17.0)
    assert result.retry == "throttled"


async def test_binary_data_that_calls_itself_html_is_skipped() -> None:
    """With its reason."""
    answer = httpx.Response(200, headers=HTML, content=b"\x89PNG\r\n\x1a\n\0\0\0" * 50)
    (result,) = await rig({"/a": answer}).fetch("/a")
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "binary_content")


async def test_a_large_page_is_parsed_in_a_thread() -> None:
    """The result is the same."""
    body = "<title>big</title>" + "<p>x</p>" * 40_000 + "<a href='/b'>b</a>"
    (result,) = await rig({"/a": page(body)}).fetch("/a")
    assert result.page is not None
    assert result.page.title == "big"
    assert [url for url, _ in result.links] == [f"{SITE}/b"]


async def test_a_bug_becomes_a_named_failure_and_not_the_end() -> None:
    """Logged, counted, tried again."""
    world = rig({"/a": RuntimeError("oops")})
    (result,) = await world.fetch("/a")
    assert (result.reason, result.retry) == ("internal_error", "transient")
    assert world.errors == ["internal_error"]


async def test_a_run_that_nobody_announced_fails_by_name() -> None:
    """For example because its spec could not be read."""
    world = rig({})
    world.pipeline.adopt(RunConfig(1, 2, b"{}", []))
    (result,) = await world.fetch("/a")
    assert result.reason == "bad_spec"
    assert world.errors == ["bad_spec"]


async def test_bodies_are_kept_when_the_job_says_so() -> None:
    """Their name travels with the page."""

    class Blobs:
        kept: bytes = b""

        def put(self, data: bytes) -> str:
            self.kept = data
            return "f" * 64

    blobs = Blobs()
    spec = JobSpec("j", politeness=Politeness(robots=False), output=OutputSpec(keep_html=True))
    world = Rig({f"{SITE}/a": page("<p>hello")}, spec, blobs=blobs)
    (result,) = await world.fetch("/a")
    assert result.page is not None
    assert result.page.body == "f" * 64
    assert blobs.kept == b"<p>hello"


async def test_a_cancelled_fetch_reports_nothing() -> None:
    """Whoever waits for the same robots.txt is told, and does not wait for ever."""
    world = rig({"/robots.txt": httpx.Response(404), "/c": page()}, robots=True)

    def cancel_the_first() -> None:
        world.on_get = lambda: None
        asyncio.get_running_loop().call_soon(world.pipeline.cancel, 0)
        world._left -= 1

    world.on_get = cancel_the_first
    world._left = 2
    for seq, path in enumerate(("/a", "/c")):
        world.pipeline.start(Assignment(seq, seq, 1, 1, SITE + path, 1, 1, None))
    async with asyncio.timeout(5):
        await world._done.wait()
    assert 0 not in world.results
    assert world.results[1].reason == "robots_unavailable"


async def test_rules_that_lie_where_nobody_may_look_are_no_rules() -> None:
    """A robots.txt that redirects inside is not followed, and the page is fetched."""
    lure = "http://10.0.0.1/robots.txt"
    world = rig({"/robots.txt": to(lure), "/a": page()}, robots=True)
    world.answers = {**world.answers, lure: BlockedAddress(lure, "private (10.0.0.1)")}
    (result,) = await world.fetch("/a")
    assert result.outcome is Outcome.DONE


OTHER = "https://other.test"


async def test_a_robots_txt_elsewhere_is_fetched_at_that_hosts_pace_only() -> None:
    """The page that finds it out reports the way and comes again; its host's robots.txt is asked
    for once, and nothing at the other host before the page is started at its pace too."""
    rules = httpx.Response(200, text="User-agent: *\nDisallow: /b\n")
    world = rig({"/robots.txt": to(f"{OTHER}/r.txt"), "/a": page()}, robots=True)
    world.answers = {**world.answers, f"{OTHER}/r.txt": rules}
    (first,) = await world.fetch("/a", close=False)
    assert (first.reason, first.retry) == ("robots_elsewhere", "postponed")
    assert first.robots is not None
    assert place_in(first.robots) == OTHER
    (again,) = await world.fetch("/a", close=False)
    assert (again.reason, world.requested) == ("robots_elsewhere", [f"{SITE}/robots.txt"])
    paced = (robots_group(OTHER),)
    allowed, forbidden = await world.fetch("/a", "/b", groups=paced)
    assert (allowed.outcome, forbidden.reason) == (Outcome.DONE, "robots")
    assert world.requested == [f"{SITE}/robots.txt", f"{OTHER}/r.txt", f"{SITE}/a"]


async def test_the_way_to_a_robots_txt_is_known_to_the_next_owner() -> None:
    """It goes on from there; a loop of hosts is no rules, and a damaged way begins anew."""
    way = [f"{SITE}/robots.txt", f"{OTHER}/robots.txt"]
    for body, urls in ((RobotsWay(tuple(way)).pack(60.0).body, way[1:]), (b"damaged", way)):
        world = rig({"/robots.txt": to(way[1]), "/a": page()}, robots=True)
        world.answers = {**world.answers, way[1]: to(way[0])}
        world.pipeline.learn_robots(SITE, RobotsFile(ELSEWHERE, body, 60.0))
        (result,) = await world.fetch("/a", groups=(robots_group(OTHER),))
        assert result.outcome is Outcome.DONE
        assert world.requested == [*urls, f"{SITE}/a"]


async def test_a_blocked_address_is_told_by_its_kind_also_when_robots_meets_it_first() -> None:
    """For all that wait for the same robots.txt; it is not tried again."""
    answer = BlockedAddress(SITE, "private (10.0.0.1)")
    first, second = await rig({"/robots.txt": answer}, robots=True).fetch("/a", "/b")
    for result in (first, second):
        assert (result.outcome, result.retry) == (Outcome.FAILED, "permanent")
        assert result.reason == "blocked_address: private (10.0.0.1)"


async def test_a_secret_that_is_not_set_fails_by_name() -> None:
    """Tried again, for the next worker may have it; the log has the variable."""
    spec = JobSpec("j", fetch=Fetch(headers={"X-Key": "${KEY}"}))
    world = Rig({}, spec, keyring=Keyring(JobRights(), {"KEY": "x"}))
    (result,) = await world.fetch("/a")
    assert (result.reason, result.retry) == ("no_secret", "transient")
    assert world.errors == ["no_secret"]


async def test_proxies_that_are_down_postpone_the_page() -> None:
    """Also when robots.txt meets them first."""
    spec = JobSpec("j", fetch=Fetch(proxies=("http://p:1",)))
    world = Rig({f"{SITE}/robots.txt": fetch_error("proxy", "broken")}, spec)
    (result,) = await world.fetch("/a")
    assert (result.reason, result.retry) == ("proxies_down", "postponed")
    assert result.retry_after_s == 5.0


KEY = {"ZCRAWL_SECRET_KEY": "k3y"}


def secretive(*hosts: str, robots: bool = False, **fetch: Any) -> Rig:
    """A job with a secret, on a worker of a cluster that lets it go to these hosts."""
    fetch = fetch or {"headers": {"X-Key": "${KEY}", "X-Plain": "p"}}
    spec = JobSpec("j", politeness=Politeness(robots=robots), fetch=Fetch(**fetch))
    answers = {f"{SITE}/{name}": page() for name in ("a", "b")}
    answers[f"{SITE}/robots.txt"] = httpx.Response(404)
    keyring = Keyring(JobRights(secrets={"KEY": hosts}), KEY)
    return Rig(answers, spec, keyring=keyring)


async def test_a_request_that_needs_a_secret_which_its_host_may_not_get_is_not_sent() -> None:
    """Nothing is asked for, robots.txt neither; it fails for good, by its name, and the log tells
    it once for each host."""
    for fetch in (
        {"headers": {"X-Key": "${KEY}"}},
        {"header_sets": ({"X-Key": "${KEY}"},)},
        {"auth": (Auth("x.test", bearer="${KEY}"),)},
        {"proxies": ("http://x:${KEY}@p.test:1",)},
    ):
        world = secretive("other.test", robots=True, **fetch)
        for result in await world.fetch("/a", "/b"):
            assert (result.reason, result.retry) == ("secret_not_released", "permanent")
            assert "k3y" not in result.detail
        assert (world.requested, world.errors) == ([], ["secret_not_released"])


async def test_a_request_to_a_secrets_host_has_it() -> None:
    """And only that header; robots.txt is asked for without it."""
    world = secretive("x.test", robots=True)
    (result,) = await world.fetch("/a")
    assert result.outcome is Outcome.DONE
    assert [headers.get("X-Key") for headers in world.headers] == [None, "k3y"]


async def test_the_target_of_a_redirect_is_asked_for_without_the_secret() -> None:
    """The job did not name that host by itself; everything else is sent."""
    world = secretive("other.test")
    (result,) = await world.fetch("/a", extra=encode(REDIRECT))
    assert result.outcome is Outcome.DONE
    assert "X-Key" not in world.headers[0]
    assert world.headers[0]["X-Plain"] == "p"


async def test_a_login_with_a_secret_is_not_tried_where_it_may_not_go() -> None:
    """Also behind a redirect: without its fields it would be no login."""
    login = Login(f"{SITE}/login", {"user": "x", "pass": "${KEY}"})
    spec = JobSpec("j", politeness=Politeness(robots=False), login=login)
    for extra in (b"", encode(REDIRECT)):
        keyring = Keyring(JobRights(secrets={"KEY": ("other.test",)}), KEY)
        world = Rig({}, spec, keyring=keyring)
        (result,) = await world.fetch("/a", extra=extra)
        assert (result.reason, world.requested) == ("secret_not_released", [])


async def test_a_certificate_that_a_job_may_not_name_fails_the_run_by_name() -> None:
    """For good: the operator of the worker said so. Nothing is asked for."""
    spec = JobSpec("j", fetch=Fetch(ca_file="/etc/passwd"))
    world = Rig({}, spec, keyring=Keyring(JobRights(tls_files=("/etc/tls/",))))
    (result,) = await world.fetch("/a")
    assert (result.reason, result.retry) == ("path_not_allowed", "permanent")
    assert (world.requested, world.errors) == ([], ["path_not_allowed"])
