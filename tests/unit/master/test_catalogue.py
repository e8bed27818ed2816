"""What a master knows of the others from the catalogue, and of itself without it."""

from __future__ import annotations

from zcrawl.master.catalogue import Catalogue
from zcrawl.master.events import CatalogueSeen, NodeEntry
from zcrawl.mesh.ports import Endpoints

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
