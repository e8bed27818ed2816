"""Whole crawls of an internet of their own: names, DNS answers, https and www as they are outside.

Real processes in a network namespace; the system's resolver asks a real DNS server there.
"""

from __future__ import annotations

import itertools
import json
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import PATIENCE_S, ZCRAWL
from tests.servers import namespaces
from tests.servers.certificates import Certificates, make_certificates
from tests.web.internet import Internet, internet
from tests.web.server import MisbehavingWeb, WebThread

PUBLIC = "11.22.33.44"
PORTS = (80, 8080, 8081, 8082, 8083, 8084)
ROBOTS = "/robots.txt"

pytestmark = pytest.mark.skipif(
    not namespaces.available(), reason="needs root and network namespaces"
)


def crawl(net: Internet, folder: Path, text: str, workers: int = 2) -> dict[str, Any]:
    """What `job --json` says of a crawl of that job file."""
    (folder / "job.toml").write_text(text)
    flags = ("--job", "job.toml", "--workers", str(workers), "--data", "d", "--json")
    done = net.run(*ZCRAWL, "crawl", *flags, cwd=folder, timeout_s=PATIENCE_S)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    process = net.run(
        *(*ZCRAWL, "job", "1", "--data", "d", "--json"), cwd=folder, timeout_s=PATIENCE_S
    )
    assert process.returncode in (0, 1), process.stderr  # 1: the run failed
    view: dict[str, Any] = json.loads(process.stdout)
    return view


# ---------------------------------------------------------------- http and https, www and not


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(
        tmp_path_factory.mktemp("tls"), names=("shop.example", "www.shop.example")
    )


@pytest.mark.parametrize(
    ("asks", "pages"),
    [
        ("", 4 * 4 - 2),  # http's two spellings of the moved page are no pages
        ("collapse_scheme = true", 2 * 4),
        ("collapse_www = true", 2 * 4 - 1),
        ("collapse_scheme = true\ncollapse_www = true", 4),
    ],
    ids=["neither", "scheme", "www", "both"],
)
def test_spellings_of_a_site_are_one_page_only_when_a_job_asks(
    tmp_path: Path, shop: Certificates, asks: str, pages: int
) -> None:
    """A site under http and https, with www and without, which links to all its spellings. Each
    page is asked for once: once in each spelling, or once in all, as the job wants."""
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(shop.server_cert, shop.server_key)
    web = MisbehavingWeb(address=PUBLIC, fixed=(80,), secure=secure)
    job = f"""
        name = "shop"
        seeds = ["http://shop.example/mirrors"]
        [scope]
        hosts = ["shop.example", "www.shop.example"]
        {asks}
        [fetch]
        ca_file = "{shop.ca}"
        retries = 0
        [politeness]
        rate = 0
    """
    with internet(tmp_path, lambda name, _: [PUBLIC], PUBLIC) as net, WebThread(web, net.enter):
        view = crawl(net, tmp_path, job)
    assert (view["pages"], view["failed_reasons"]) == (pages, {})
    hits = [hit for hit in web.log if hit.path != ROBOTS]
    spelt = Counter((hit.port, hit.headers["host"], hit.path) for hit in hits)
    assert set(spelt.values()) == {1}, "no spelling is asked for twice"
    answered = Counter(path for port, _, path in spelt if (port, path) != (80, "/mirrors/moved"))
    assert set(answered) == {"/mirrors", "/mirrors/one", "/mirrors/two", "/mirrors/moved"}
    if "scheme" in asks and "www" in asks:
        assert set(answered.values()) == {1}
    assert sum(answered.values()) == pages


# ---------------------------------------------------------------- DNS that changes its mind


def rebinding(name: str, times: int) -> list[str]:
    """Public when it is looked at, private when it is connected to, and the other way round."""
    if name == "rebind.example":
        return [PUBLIC] if times % 2 == 0 else ["127.0.0.1"]
    if name == "both.example":
        return ["127.0.0.1", PUBLIC]
    if name == "cloud.example":
        return ["169.254.169.254"]
    return [PUBLIC]


@pytest.mark.parametrize("engine", ["http", "httpx"])
def test_a_name_that_changes_its_answer_leads_to_no_private_address(
    tmp_path: Path, engine: str
) -> None:
    """A public page redirects to a name whose DNS says public and private in turns, on six ports,
    so that each is looked up anew. What was looked up is what is connected to: the server inside
    sees no connection, and each page is fetched from outside or ends with the guard's reason."""
    outside = MisbehavingWeb(address=PUBLIC, fixed=PORTS)
    inside = MisbehavingWeb(fixed=PORTS)
    targets = [f"http://rebind.example:{port}/status/200" for port in PORTS]
    targets += ["http://both.example/status/200", "http://cloud.example/status/200"]
    seeds = [f"http://start.example/redirect-to?{target}" for target in targets]
    job = f"""
        name = "lured"
        seeds = {json.dumps(seeds)}
        [fetch]
        engine = "{engine}"
        retries = 0
        [politeness]
        rate = 0
    """
    with (
        internet(tmp_path, rebinding, PUBLIC) as net,
        WebThread(outside, net.enter),
        WebThread(inside, net.enter),
    ):
        view = crawl(net, tmp_path, job)
    assert inside.connections == 0
    assert net.lookups["rebind.example"] >= len(PORTS)
    blocked = view["failed_reasons"].pop("blocked_address: loopback (127.0.0.1)")
    assert view["failed_reasons"] == {"blocked_address: metadata (169.254.169.254)": 1}
    assert blocked >= 1
    assert view["pages"] - 1 >= 1, "beside the one of both.example"
    assert blocked + view["pages"] - 1 == len(PORTS)
    assert view["skipped_reasons"] == {"redirected": len(seeds)}


# ---------------------------------------------------------------- what one domain may get


SHOPS = ("www.shop.co.uk", "news.shop.co.uk", "shop.co.uk", "static.shop.co.uk")
OTHERS = ("www.other.co.uk", "other.co.uk")
PRIVATE_SUFFIX = ("ann.github.io", "bob.github.io")  # two who have nothing to do with each other


@pytest.mark.parametrize("limit", [1, 2])
def test_the_hosts_of_a_registered_domain_share_its_concurrency(tmp_path: Path, limit: int) -> None:
    """Four hosts of one domain, three workers: all of them together never have more requests at
    once than the domain may, and as many as that. Another domain under the same public suffix has
    as many of its own, and so has each name under a private suffix."""
    names = (*SHOPS, *OTHERS, *PRIVATE_SUFFIX)
    web = MisbehavingWeb(address=PUBLIC, fixed=(80,))
    seeds = [f"http://{name}/slow/{200 + n}" for n in range(6) for name in names]
    job = f"""
        name = "domains"
        seeds = {json.dumps(seeds)}
        [politeness]
        rate = 0
        concurrency = 8
        domain_concurrency = {limit}
    """
    with internet(tmp_path, lambda name, _: [PUBLIC], PUBLIC) as net, WebThread(web, net.enter):
        view = crawl(net, tmp_path, job, workers=3)
    assert (view["pages"], view["failed_reasons"]) == (len(seeds), {})
    for domain in (SHOPS, OTHERS, *((name,) for name in PRIVATE_SUFFIX)):
        assert _most_at_once(web, domain) == limit, domain
    assert _most_at_once(web, names) > limit, "domains do not wait for each other"


def _most_at_once(web: MisbehavingWeb, names: tuple[str, ...]) -> int:
    """Requests for any of these hosts that were being answered at the same moment."""
    answered = [(hit.at, end) for hit, end in web.answered if hit.headers["host"] in names]
    steps = sorted(step for begin, end in answered for step in ((begin, 1), (end, -1)))
    return max(itertools.accumulate(step for _, step in steps))
