"""What a master knows of the others from the catalogue, and of itself without it."""

from __future__ import annotations

from msgspec import UNSET

from zcrawl.master.catalogue import Catalogue
from zcrawl.master.events import CatalogueSeen, NodeEntry
from zcrawl.mesh.ports import Endpoints
from zcrawl.model.vitals import Vitals

OWN = Endpoints("m1", "tcp://a:1", "tcp://a:2", "tcp://a:3")
OTHER = Endpoints("m2", "tcp://b:1", "tcp://b:2", "tcp://b:3")


def masters(catalogue: Catalogue) -> list[str]:
    return [endpoint["master"] for endpoint in catalogue.endpoints()]


def test_a_master_names_itself_before_the_catalogue_does() -> None:
    """Who asks it for masters learns at least of this one, and of no one twice."""
    catalogue = Catalogue()
    assert masters(catalogue) == []
    catalogue.see(CatalogueSeen(own=OWN))
    assert masters(catalogue) == ["m1"]
    other = NodeEntry("m2", True, endpoints=OTHER)
    catalogue.see(CatalogueSeen(masters=(other,)))
    assert masters(catalogue) == ["m2", "m1"]
    catalogue.see(CatalogueSeen(masters=(NodeEntry("m1", True, endpoints=OWN), other)))
    assert masters(catalogue) == ["m1", "m2"]


def roles(catalogue: Catalogue, now: float) -> dict[str, str]:
    return {view.id: view.role for view in catalogue.masters_view("m1", now)}


def test_a_dead_master_is_not_a_follower() -> None:
    """Its health check fails, or it has not reported for seconds: its old figures are not shown."""
    catalogue = Catalogue()
    entries = [NodeEntry("m1", True), NodeEntry("m2", True), NodeEntry("m3", False)]
    catalogue.see(CatalogueSeen(masters=tuple(entries)))
    catalogue.hear("m2", Vitals(1_000, 2.0, 30.0), 10.0)
    assert roles(catalogue, 11.0) == {"m1": "leader", "m2": "follower", "m3": "down"}
    fresh = catalogue.masters_view("m1", 11.0)[1]
    assert (fresh.rss_bytes, fresh.cpu_percent, fresh.heard_s_ago) == (1_000, 30.0, 1.0)
    assert roles(catalogue, 16.0)["m2"] == "silent"
    stale = catalogue.masters_view("m1", 16.0)[1]
    assert (stale.rss_bytes, stale.lag_ms, stale.cpu_percent) == (UNSET, UNSET, UNSET)
    assert stale.heard_s_ago == 6.0
