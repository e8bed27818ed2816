"""Links of a cluster fail one at a time; the crawl goes on, or waits and goes on.

Consul and MariaDB are behind a TCP proxy for each master, which drops, stalls, and lets through one
way only. Masters and workers stand on hosts of their own (network namespaces), so that a cut
between two of them is a real one: nobody is told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import wait_until
from tests.servers import namespaces
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.page_site import PageSite, page_site
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy
from zcrawl.model.spec import Politeness

PAGES = 1250
STEADY = Politeness(rate=50.0, concurrency=16, robots=False)  # a crawl takes 25 s
MASTERS = ("m1", "m2", "m3")
WORKERS = ("w1", "w2")


class Linked:
    """A cluster, and what stands between each master and the two servers."""

    def __init__(self, made: Cluster, site: PageSite) -> None:
        self.made, self.site = made, site
        self.consul: dict[str, TcpProxy] = {}
        self.database: dict[str, TcpProxy] = {}


@pytest.fixture
def linked(tmp_path: Path, consul: ConsulServer, mysql: Mariadb) -> Iterator[Linked]:
    with (
        contextlib.ExitStack() as stack,
        page_site(tmp_path, PAGES) as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        links = Linked(made, site)
        for name in MASTERS:
            links.consul[name] = stack.enter_context(tcp_proxy(urlsplit(consul.url).port or 0))
            links.database[name] = stack.enter_context(tcp_proxy(mysql.port))
            url = mysql.url(made.database_name, links.database[name].port)
            made.add_master(
                name,
                consul__address=f"127.0.0.1:{links.consul[name].port}",
                database__urls=[url],
            )
        for name in WORKERS:
            made.add_worker(name)
        made.wait_ready(len(WORKERS))
        yield links


FAULTS = ["cut", "stall", "up", "down", "refuse"]


def break_link(proxy: TcpProxy, how: str) -> None:
    match how:
        case "cut":
            proxy.cut()
        case "stall":
            proxy.stall()
        case "refuse":
            proxy.refuse()
        case "up" | "down":
            proxy.drop_one_way(how)


def mend_link(proxy: TcpProxy) -> None:
    proxy.resume()
    proxy.accept_again()


@pytest.mark.parametrize("how", FAULTS)
def test_the_link_between_leader_and_consul_fails(linked: Linked, how: str) -> None:
    """Another master leads soon, or the same one continues: each page is stored once."""
    made, site = linked.made, linked.site
    _, run = made.submit(site, STEADY)
    made.wait_pages(run, 50)
    leader = made.leader()
    break_link(linked.consul[leader.name], how)
    made.wait_more(run, 400)
    mend_link(linked.consul[leader.name])
    made.complete(run)


@pytest.mark.parametrize("how", FAULTS)
def test_the_link_between_leader_and_database_fails(linked: Linked, how: str) -> None:
    """A leader without a database gives the lock away: the others have one."""
    made, site = linked.made, linked.site
    _, run = made.submit(site, STEADY)
    made.wait_pages(run, 50)
    leader, epoch = made.leader(), made.epoch()
    break_link(linked.database[leader.name], how)
    made.wait_more(run, 200)  # of which none is committed by a leader without a database
    if how != "cut":  # a reset connection is opened again
        assert made.epoch() > epoch
    mend_link(linked.database[leader.name])
    made.complete(run)


# ---------------------------------------------------------------- hosts


@pytest.fixture
def spread(tmp_path: Path, consul: ConsulServer, mysql: Mariadb) -> Iterator[Linked]:
    if not namespaces.available():
        pytest.skip("this machine makes no network namespaces")
    with (
        contextlib.ExitStack() as stack,
        namespaces.hosts(*MASTERS, *WORKERS) as hosts,
        page_site(tmp_path, PAGES, host=hosts.outside) as site,
        cluster(tmp_path, consul.url, mysql, masters=0, workers=0) as made,
    ):
        listen = hosts.outside
        to_consul = stack.enter_context(tcp_proxy(urlsplit(consul.url).port or 0, listen=listen))
        to_database = stack.enter_context(tcp_proxy(mysql.port, listen=listen))
        url = mysql.url(made.database_name, to_database.port).replace("127.0.0.1", listen)
        made.hosts = hosts
        made.values["consul.address"] = f"{listen}:{to_consul.port}"
        for name in MASTERS:
            made.add_master(
                name,
                database__urls=[url],
                mesh__bind="0.0.0.0",
                mesh__advertise=hosts.addresses[name],
                mesh__insecure=True,
            )
        for name in WORKERS:
            made.add_worker(name)
        made.wait_ready(len(WORKERS))
        yield Linked(made, site)


@pytest.mark.parametrize("how", ["cut", "to the worker", "from the worker"])
def test_the_link_between_leader_and_a_worker_fails(spread: Linked, how: str) -> None:
    """Its work goes to the other worker after a while; when the link is back nothing is twice."""
    made, site = spread.made, spread.site
    hosts = made.hosts
    assert hosts is not None
    _, run = made.submit(site, STEADY)
    made.wait_pages(run, 50)
    leader = made.leader().name
    if how == "cut":
        hosts.cut(leader, "w1")
    elif how == "to the worker":
        hosts.cut_one_way(leader, "w1")
    else:
        hosts.cut_one_way("w1", leader)
    made.wait_more(run, 600)
    hosts.mend()
    made.complete(run)


@pytest.mark.parametrize("how", ["cut", "one way"])
def test_the_links_between_leader_and_followers_fail(spread: Linked, how: str) -> None:
    """Followers cannot forward; commands find the leader, and leadership stays where it is."""
    made, site = spread.made, spread.site
    hosts = made.hosts
    assert hosts is not None
    _, run = made.submit(site, STEADY)
    made.wait_pages(run, 50)
    leader, epoch = made.leader(), made.epoch()
    for name in MASTERS:
        if name != leader.name and how == "cut":
            hosts.cut(leader.name, name)
        elif name != leader.name:
            hosts.cut_one_way(leader.name, name)
    made.wait_more(run, 400)
    assert made.epoch() == epoch
    hosts.mend()
    made.complete(run)


def test_a_leader_that_is_cut_off_from_everything_is_replaced(spread: Linked) -> None:
    """Its host loses the network: others lead, and its own commits come too late."""
    made, site = spread.made, spread.site
    hosts = made.hosts
    assert hosts is not None
    _, run = made.submit(site, STEADY)
    made.wait_pages(run, 50)
    leader, epoch = made.leader(), made.epoch()
    for name in (*MASTERS, *WORKERS, "outside"):
        if name != leader.name:
            hosts.cut(leader.name, name)
    wait_until(lambda: made.epoch() > epoch)
    made.wait_more(run, 400)
    hosts.mend()
    made.complete(run)
