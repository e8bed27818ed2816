"""DNS rebinding through a name that the operator typed: what it opens is settled at submission.

Whole crawls in an internet of their own, with a real DNS server that changes its answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import PATIENCE_S, ZCRAWL
from tests.integration.test_internet import PORTS, PUBLIC, crawl
from tests.servers import namespaces
from tests.web.internet import Zone, internet
from tests.web.server import MisbehavingWeb, WebThread
from tests.web.shelf import Document

INSIDE = "10.1.2.3"
NEIGHBOUR = "10.1.2.99"
ELSEWHERE = "10.9.9.9"
BLOCKED = "blocked_address: loopback (127.0.0.1)"
SCRIPT = """<script>
  fetch("/status/200").then(r => r.text()).then(() => { document.title = "stolen" })
</script>"""

pytestmark = pytest.mark.skipif(
    not namespaces.available(), reason="needs root and network namespaces"
)


def job(seeds: list[str], fetch: str = "", more: str = "") -> str:
    return f"""
        name = "typed"
        seeds = {json.dumps(seeds)}
        [fetch]
        retries = 0
        {fetch}
        [politeness]
        rate = 0
        {more}
    """


def then(*answers: list[str]) -> Zone:
    """The first answer once, the second once, …, the last one ever after."""

    def zone(name: str, times: int) -> list[str]:
        return answers[min(times, len(answers) - 1)]

    return zone


def logged(folder: Path, event: str) -> list[str]:
    lines = (folder / "d" / "zcrawl.log").read_text().splitlines()
    return [line for line in lines if event in line]


@pytest.mark.parametrize("engine", ["http", "httpx"])
@pytest.mark.parametrize(
    "first", [[PUBLIC], [PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC]], ids=["public", "mixed", "m2"]
)
def test_a_typed_public_name_never_opens_a_private_address(
    tmp_path: Path, engine: str, first: list[str]
) -> None:
    """It is public, or public too, when it is submitted, and private from then on, on six ports:
    the server inside sees no connection, neither for pages nor for robots.txt."""
    outside, inside = MisbehavingWeb(address=PUBLIC, fixed=PORTS), MisbehavingWeb(fixed=PORTS)
    seeds = [f"http://rebind.example:{port}/status/200" for port in PORTS]
    with (
        internet(tmp_path, then(first, [PUBLIC], ["127.0.0.1"]), PUBLIC) as net,
        WebThread(outside, net.enter),
        WebThread(inside, net.enter),
    ):
        view = crawl(net, tmp_path, job(seeds, f'engine = "{engine}"'))
    assert inside.connections == 0
    assert view["failed_reasons"].keys() == {BLOCKED}
    assert view["failed_reasons"][BLOCKED] >= len(PORTS) - 1
    assert bool(logged(tmp_path, "not_vouched")) == (len(first) > 1)


def test_a_page_in_the_browser_cannot_rebind_its_typed_name(tmp_path: Path) -> None:
    """The page comes from a public address; by the time its script asks for its own name again,
    that is 127.0.0.1, where a server with the operator's secrets listens."""
    outside, inside = MisbehavingWeb(address=PUBLIC, fixed=(80,)), MisbehavingWeb(fixed=(80,))
    outside.shelf = {"page": Document(SCRIPT, headers=("Connection: close",))}

    def zone(name: str, times: int) -> list[str]:
        shown = any(hit.path == "/shelf/page" for hit in outside.log)
        return ["127.0.0.1"] if shown else [PUBLIC]

    more = '[browser]\nwait_s = 1.5\nblock = []\n[extract.fields]\ntitle = "title"'
    with (
        internet(tmp_path, zone, PUBLIC) as net,
        WebThread(outside, net.enter),
        WebThread(inside, net.enter),
    ):
        view = crawl(
            *(net, tmp_path, job(["http://rebind.example/shelf/page"], 'engine = "browser"', more))
        )
        assert net.lookups["rebind.example"] >= 3, "submission, page and script"
    assert view["pages"] == 1, view
    assert inside.connections == 0


@pytest.mark.parametrize("engine", ["http", "httpx", "browser"])
@pytest.mark.parametrize(
    ("later", "opened"),
    [(INSIDE, True), (NEIGHBOUR, True), (ELSEWHERE, False), ("127.0.0.1", False)],
)
def test_a_typed_private_name_opens_its_own_network_only(
    tmp_path: Path, engine: str, later: str, opened: bool
) -> None:
    """The wiki of the house may move within its network; it does not become another one."""
    web = MisbehavingWeb(address=later, fixed=(80,))
    with (
        internet(tmp_path, then([INSIDE], [later]), INSIDE, NEIGHBOUR, ELSEWHERE) as net,
        WebThread(web, net.enter),
    ):
        view = crawl(net, tmp_path, job(["http://wiki.example/shelf/x"], f'engine = "{engine}"'))
    assert (web.connections > 0) == opened
    assert any(why.startswith("blocked_address") for why in view["failed_reasons"]) != opened


def run_job(
    tmp_path: Path, zone: Zone, text: str, web: MisbehavingWeb, *addresses: str
) -> dict[str, Any]:
    with internet(tmp_path, zone, *addresses) as net, WebThread(web, net.enter):
        return crawl(net, tmp_path, text)


def test_a_job_may_still_name_a_private_host(tmp_path: Path) -> None:
    """`private_hosts` is the author's own word: it is not bound to what DNS said, unless the entry
    says so itself."""
    moving = then([PUBLIC], ["127.0.0.1"])
    entries: dict[str, Callable[[int], bool]] = {
        "wiki.example:80": lambda pages: pages == 1,
        "wiki.example:80=127.0.0.0/24": lambda pages: pages == 1,
        "wiki.example:80=10.0.0.0/8": lambda pages: pages == 0,
    }
    for number, (entry, expected) in enumerate(entries.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = job(["http://wiki.example/status/200"], f'private_hosts = ["{entry}"]')
        view = run_job(folder, moving, text, MisbehavingWeb(fixed=(80,)), PUBLIC)
        assert expected(view["pages"]), (entry, view)


def test_a_name_that_nobody_knows_at_submission_opens_nothing(tmp_path: Path) -> None:
    """And the log says what to do, if it was meant."""
    web = MisbehavingWeb(fixed=(80,))
    zone = then([], ["127.0.0.1"])
    view = run_job(tmp_path, zone, job(["http://late.example/status/200"]), web)
    assert (view["pages"], web.connections) == (0, 0)
    (line,) = logged(tmp_path, "not_vouched")
    assert "private_hosts" in line


def test_zcrawl_test_binds_a_typed_name_too(tmp_path: Path) -> None:
    """The command that fetches one page has the same rule."""
    web = MisbehavingWeb(fixed=(80,))
    zone = then([PUBLIC], ["127.0.0.1"])
    with internet(tmp_path, zone, PUBLIC) as net, WebThread(web, net.enter):
        command = (*ZCRAWL, "test", "http://rebind.example/status/200", "--no-robots", "--json")
        done = net.run(*command, cwd=tmp_path, timeout_s=PATIENCE_S)
    assert done.returncode == 1, done.stderr
    assert web.connections == 0
    assert json.loads(done.stdout)["reason"] == BLOCKED
