"""A run with identities, credentials, cookies, proxies or a login, on an engine that the test
plays."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Mapping

import httpx
import pytest

from zcrawl.errors import FetchError, JobError, RetryClass
from zcrawl.fetch.keyring import JobRights, Keyring, RunSecrets
from zcrawl.fetch.policy import fetch_error
from zcrawl.fetch.ports import HopLimits, Response
from zcrawl.model.spec import Auth, Fetch, JobSpec, Login
from zcrawl.worker.pipeline.session import RunClient

Answer = Callable[[str, Mapping[str, str], HopLimits], httpx.Response]
HEADERS = {"User-Agent": "base", "Accept": "*/*"}
SITE = "https://x.test"


class Played:
    """An engine whose answers a function gives; notes what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[tuple[str, Mapping[str, str], str | None]] = []
        self.forms: list[tuple[str, bytes]] = []

    async def get(self, url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        self.requests.append((url, headers, limits.proxy))
        return self.answer(url, headers, limits)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: HopLimits
    ) -> httpx.Response:
        self.forms.append((url, body))
        return await self.get(url, headers, limits)

    async def aclose(self) -> None: ...


def ok(url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
    return httpx.Response(200, text="hello")


def make(
    engine: Played,
    environ: Mapping[str, str] | None = None,
    login: Login | None = None,
    **fetch: object,
) -> RunClient:
    spec = JobSpec("j", fetch=Fetch(**fetch), login=login or Login())  # type: ignore[arg-type]
    assert spec.needs_session
    return RunClient(spec, engine, secrets_for(environ), lambda: 0.0, {})


def secrets_for(environ: Mapping[str, str] | None) -> RunSecrets:
    """Of a crawl by the machine's own user, with the hosts of these tests as seeds."""
    seeds = (SITE + "/", "https://y.test:8443/")
    return Keyring(JobRights(owner=True), environ).for_run(JobSpec("j", seeds=seeds))


async def get(session: RunClient, url: str = SITE + "/") -> Response:
    return await session.get(url, HEADERS, HopLimits())


def test_a_plain_job_needs_no_session() -> None:
    """And pays for none."""
    assert not JobSpec("j").needs_session


async def test_a_host_keeps_its_user_agent_and_header_set() -> None:
    """Chosen by the host, the same in every worker, spread over hosts."""
    agents = tuple(f"agent-{n}" for n in range(5))
    sets = ({"Accept-Language": "de"}, {"Accept-Language": "en", "DNT": "1"})
    engine = Played(ok)
    first = make(engine, user_agents=agents, header_sets=sets)
    second = make(engine, user_agents=agents, header_sets=sets)
    hosts = [f"https://h{n}.test/" for n in range(40)]
    for session in (first, first, second):
        for host in hosts:
            await get(session, host)
    rounds = [engine.requests[n : n + 40] for n in (0, 40, 80)]
    assert rounds[0] == rounds[1] == rounds[2]
    assert {headers["User-Agent"] for _, headers, _ in rounds[0]} == set(agents)
    assert {headers["Accept-Language"] for _, headers, _ in rounds[0]} == {"de", "en"}
    assert first.user_agent("https://h0.test") == rounds[0][0][1]["User-Agent"]
    assert rounds[0][0][1]["Accept"] == "*/*"


async def test_credentials_go_to_their_host_only() -> None:
    """By name, or by name and port; to nobody else."""
    engine = Played(ok)
    auth = (
        Auth("x.test", user="ann", password="${PW}"),
        Auth("y.test:8443", bearer="${TOKEN}"),
    )
    environ = {"ZCRAWL_SECRET_PW": "pä:ss", "ZCRAWL_SECRET_TOKEN": "t0k"}
    session = make(engine, environ, auth=auth)
    for url in (SITE + "/", "https://sub.x.test/", "https://y.test:8443/", "https://y.test/"):
        await get(session, url)
    sent = [headers.get("Authorization") for _, headers, _ in engine.requests]
    basic = "Basic " + base64.b64encode("ann:pä:ss".encode()).decode()
    assert sent == [basic, None, "Bearer t0k", None]


async def test_a_secret_that_is_not_set_is_named() -> None:
    """The variable, not its value."""
    with pytest.raises(JobError, match="ZCRAWL_SECRET_PW") as caught:
        make(Played(ok), {"PW": "x"}, auth=(Auth("x.test", user="ann", password="${PW}"),))
    assert caught.value.code == "no_secret"


async def test_cookies_come_back_to_their_host_and_are_reported_once() -> None:
    """Set by an answer, sent with the next request, and told to the leader when they change."""

    def answer(url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        if url.endswith("/set"):
            pairs = [("set-cookie", "sid=1; Path=/; HttpOnly"), ("set-cookie", "t=2; Max-Age=60")]
            return httpx.Response(200, headers=pairs)
        if url.endswith("/clear"):
            return httpx.Response(200, headers={"set-cookie": "sid=; Max-Age=0; Path=/"})
        return httpx.Response(200)

    engine = Played(answer)
    session = make(engine, cookies=True)
    assert session.cookies is not None
    await get(session)
    assert session.cookies.changes(SITE + "/") is None
    await get(session, SITE + "/set")
    kept = session.cookies.changes(SITE + "/set")
    assert kept is not None
    assert kept[0] == "x.test"
    assert session.cookies.changes(SITE + "/set") is None
    await get(session)
    await get(session, "https://y.test/")
    sent = [headers.get("Cookie") for _, headers, _ in engine.requests]
    assert set((sent[2] or "").split("; ")) == {"sid=1", "t=2"}
    assert sent[3] is None
    after_restart = RunClient(
        JobSpec("j", fetch=Fetch(cookies=True)), engine, secrets_for({}), lambda: 0.0, dict([kept])
    )
    await get(after_restart)
    assert set((engine.requests[-1][1].get("Cookie") or "").split("; ")) == {"sid=1", "t=2"}
    await get(session, SITE + "/clear")
    assert session.cookies.changes(SITE + "/") is not None
    await get(session)
    assert engine.requests[-1][1].get("Cookie") == "t=2"


async def test_a_failing_proxy_costs_the_page_nothing() -> None:
    """The request goes through another one; only `proxy` is the proxy's fault."""

    def answer(url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        if limits.proxy == "http://bad:1":
            raise fetch_error("proxy", "broken")
        if url.endswith("/dead"):
            raise fetch_error("connect", "nobody there")
        return httpx.Response(200)

    engine = Played(answer)
    session = make(engine, proxies=("http://bad:1", "http://good:1"), proxy_rotation="round_robin")
    assert (await get(session)).status_code == 200
    assert [proxy for _, _, proxy in engine.requests] == ["http://bad:1", "http://good:1"]
    with pytest.raises(FetchError) as caught:
        await get(session, SITE + "/dead")
    assert caught.value.code == "connect"
    assert session.pool is not None
    assert session.pool.statistics()["http://good:1"].failures == 0


@pytest.mark.parametrize("code", ["reset", "truncated", "protocol", "http2"])
async def test_a_failure_that_may_be_the_proxys_is_asked_of_another(code: str) -> None:
    """Nobody can tell whose it is: the second proxy does."""

    def answer(url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        if limits.proxy == "http://bad:1":
            raise fetch_error(code, "broken")
        return httpx.Response(200)

    engine = Played(answer)
    session = make(engine, proxies=("http://bad:1", "http://good:1"), proxy_rotation="round_robin")
    assert (await get(session)).status_code == 200
    assert [proxy for _, _, proxy in engine.requests] == ["http://bad:1", "http://good:1"]


async def test_when_all_proxies_are_down_the_page_waits_with_a_name() -> None:
    """Postponed until the first of them has rested; no attempt is counted."""

    def answer(url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        raise fetch_error("proxy", "broken")

    session = make(Played(answer), proxies=("http://a:1", "http://b:1"))
    for _ in range(2):
        with pytest.raises(FetchError) as caught:
            await get(session)
        assert caught.value.code == "proxies_down"
        assert caught.value.retry is RetryClass.POSTPONED
        assert caught.value.retry_after_s == 5.0


async def test_requests_wait_for_a_busy_proxy() -> None:
    """Never more than the limit at a time, and all are served in the end."""
    running = most = 0

    class Slow(Played):
        async def get(
            self, url: str, headers: Mapping[str, str], limits: HopLimits
        ) -> httpx.Response:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.wait_for(asyncio.get_running_loop().create_task(nothing()), 1)
            running -= 1
            return httpx.Response(200)

    session = make(Slow(ok), proxies=("http://a:1",), proxy_limit=2)
    await asyncio.gather(*(get(session) for _ in range(20)))
    assert most == 2


async def nothing() -> None: ...


FORM = """<form action=/search><input name=q></form>
<form method=post action="do?x=1"><input type=hidden name=csrf value="a b&amp;c">
<input name=user><input type=password name=pass><input type=submit name=go value=Go></form>"""
LOGIN = Login(SITE + "/login", {"user": "ann", "pass": "${PW}"}, success="Hello ann")
SECRET = {"ZCRAWL_SECRET_PW": "p&w"}


def site(good: bytes) -> Answer:
    """A login page, the form's target, and pages that want a cookie."""

    def answer(url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        if url == SITE + "/login":
            return httpx.Response(200, text=FORM, headers={"set-cookie": "pre=1; Path=/"})
        if url == SITE + "/do?x=1":
            return httpx.Response(302, headers={"location": "/home", "set-cookie": "sid=9; Path=/"})
        if url == SITE + "/home":
            return httpx.Response(200, content=good)
        return httpx.Response(200 if "sid=9" in headers.get("Cookie", "") else 403)

    return answer


async def log_in(session: RunClient, permits: list[int]) -> None:
    async def next_hop() -> None:
        permits.append(1)

    await session.prepare(SITE + "/page", HEADERS, HopLimits(), next_hop)


async def test_a_login_is_done_once_before_the_first_page_and_paced() -> None:
    """The form is found by its fields, its hidden ones go back, cookies stay."""
    engine, permits = Played(site(b"Hello ann")), list[int]()
    session = make(engine, SECRET, LOGIN)
    await asyncio.gather(*(log_in(session, permits) for _ in range(5)))
    assert engine.forms == [(SITE + "/do?x=1", b"csrf=a+b%26c&user=ann&pass=p%26w")]
    assert [url for url, _, _ in engine.requests] == [
        SITE + "/login",
        SITE + "/do?x=1",
        SITE + "/home",
    ]
    assert len(permits) == 3  # the POST, the page behind it, and the page that waited
    assert (await get(session, SITE + "/page")).status_code == 200
    await session.prepare("https://y.test/", HEADERS, HopLimits(), nothing)
    assert len(engine.requests) == 4


@pytest.mark.parametrize("charset", ["hex", "idna", "undefined", "rot13", "a\0b", "punycode"])
async def test_no_charset_of_a_server_breaks_a_login(charset: str) -> None:
    """Python has codecs that raise errors, and punycode takes the square of the length."""
    words = b"Hello ann-" + b"z" * 100_000

    def answer(url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        if url == SITE + "/login":
            return httpx.Response(200, text=FORM)
        return httpx.Response(
            200, content=words, headers={"Content-Type": f"text/html; charset={charset}"}
        )

    played = Played(answer)
    began = time.process_time()
    await log_in(make(played, SECRET, LOGIN), [])
    assert len(played.forms) == 1
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "page",
    [
        f"<p {' '.join(f'a{n}' for n in range(30_000))}>",
        "".join(f"<b a{n}>" for n in range(2_000)) + "<p>" * 2_000,
    ],
    ids=["attributes", "copies"],
)
async def test_a_login_page_that_takes_long_to_parse_fails_the_login(page: str) -> None:
    """It is not parsed at all: nothing could interrupt the parser."""
    played = Played(lambda url, headers, limits: httpx.Response(200, text=page + FORM))
    session = make(played, SECRET, LOGIN)
    with pytest.raises(FetchError, match="too long to parse") as caught:
        await log_in(session, [])
    assert caught.value.code == "login_failed"
    assert not played.forms


async def test_a_login_with_a_redirect_to_nowhere_is_not_hammered() -> None:
    """The password would be sent again for every page."""
    bad = {"Location": "http://[::1/"}

    def answer(url: str, headers: Mapping[str, str], limits: HopLimits) -> httpx.Response:
        if url == SITE + "/login":
            return httpx.Response(200, text=FORM)
        return httpx.Response(302, headers=bad)

    played = Played(answer)
    session = make(played, SECRET, LOGIN)
    for _ in range(3):
        with pytest.raises(FetchError) as caught:
            await log_in(session, [])
        assert caught.value.code == "login_failed"
    assert len(played.forms) == 1


async def test_a_login_that_does_not_work_is_named_and_not_hammered() -> None:
    """`login_failed`, the same for everybody, for a minute."""
    engine = Played(site(b"wrong password"))
    session = make(engine, SECRET, LOGIN)
    for _ in range(3):
        with pytest.raises(FetchError, match=r"login\.success") as caught:
            await log_in(session, [])
        assert caught.value.code == "login_failed"
        assert "p&w" not in str(caught.value)
    assert len(engine.forms) == 1


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<p>no form</p>", "no form with the fields"),
        (
            "<form action='https://evil.test/'><input name=user><input name=pass></form>",
            "elsewhere",
        ),
    ],
)
async def test_a_form_that_is_not_what_it_should_be_gets_no_password(
    page: str, message: str
) -> None:
    """Not found, or sent to another host."""
    engine = Played(lambda url, headers, limits: httpx.Response(200, text=page))
    with pytest.raises(FetchError, match=message):
        await log_in(make(engine, SECRET, LOGIN), [])
    assert not engine.forms
