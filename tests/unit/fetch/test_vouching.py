"""What a typed URL opens: what its name means when it is submitted, and nothing later."""

from __future__ import annotations

import asyncio

import pytest

from zcrawl.fetch.guard import Guard, entries_for
from zcrawl.mesh.messages import ClientRequest
from zcrawl.roles import vouching
from zcrawl.roles.vouching import Vouching, look_up

DNS = {
    "wiki": ["10.1.2.3"],
    "both": ["10.1.2.3", "93.184.215.14"],
    "site": ["93.184.215.14"],
    "meta": ["10.1.2.3", "169.254.169.254"],
}


@pytest.mark.parametrize(
    ("addresses", "bounds"),
    [
        (["10.1.2.3"], ["10.1.2.0/24"]),
        (["10.1.2.3", "10.1.2.4", "192.168.7.1"], ["10.1.2.0/24", "192.168.7.0/24"]),
        (["127.0.0.1", "::1"], ["127.0.0.0/24", "::1/128"]),
        (["fd00:1:2:3:4::5"], ["fd00:1:2:3::/64"]),
        (["100.64.1.1"], ["100.64.1.0/24"]),
        (["::ffff:10.1.2.3"], ["::ffff:a01:203/128"]),
        ([], []),
        (["93.184.215.14"], []),
        (["10.1.2.3", "93.184.215.14"], []),
        (["2606:2800::1", "10.1.2.3"], []),
        (["10.1.2.3", "169.254.169.254"], []),
        (["0.0.0.0"], []),
        (["fe80::1%eth0"], []),
        (["nonsense"], []),
    ],
)
def test_a_name_opens_the_networks_of_its_private_addresses(
    addresses: list[str], bounds: list[str]
) -> None:
    """If it has no other ones; an IPv4 address in disguise has no neighbours."""
    assert entries_for("wiki:80", addresses) == tuple(f"wiki:80={bound}" for bound in bounds)


@pytest.mark.parametrize("netloc", ["10.0.0.1:80", "[fd00::1]:8080", "8.8.8.8:443"])
def test_an_address_opens_itself(netloc: str) -> None:
    """An address needs no DNS, so no answer can change it."""
    assert entries_for(netloc, []) == (netloc,)


def test_no_later_answer_of_a_public_name_leads_inside() -> None:
    """The whole of it: entries for what was typed, given to the guard of a connection."""
    for first in (["93.184.215.14"], ["93.184.215.14", "10.0.0.1"], []):
        guard = Guard(private_hosts=entries_for("evil:80", first))
        for later in ("127.0.0.1", "10.0.0.1", "::1", "fd00::1", "::ffff:127.0.0.1"):
            assert guard.refuse_address("evil", 80, later) is not None


class World:
    """A fake DNS that records look-ups and warnings."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        self.warnings: list[str] = []

    async def look_up(self, name: str) -> list[str]:
        self.looked_up.append(name)
        return DNS.get(name, [])

    def vouching(self) -> Vouching:
        return Vouching(lambda name, detail: self.warnings.append(detail), self.look_up)


async def test_each_name_is_looked_up_once_and_odd_ones_are_told() -> None:
    """A public name is what nearly all are: nothing is said of it."""
    world = World()
    urls = ["http://wiki/a", "http://wiki:8080/", "https://site/", "http://10.0.0.1/", "no url"]
    opened = await world.vouching().opened_by([*urls, "http://both/", "http://nobody/"])
    assert opened == ["wiki:80=10.1.2.0/24", "wiki:8080=10.1.2.0/24", "10.0.0.1:80"]
    assert sorted(world.looked_up) == ["both", "nobody", "site", "wiki"]
    assert [text.split()[0] for text in world.warnings] == ["both:80", "nobody:80"]
    assert all("private_hosts" in text for text in world.warnings)


@pytest.mark.parametrize("typed", [None, 5, "http://wiki/", {"a": 1}, [None, 5, {}], []])
async def test_nonsense_opens_nothing_and_a_clients_own_entries_are_thrown_away(
    typed: object,
) -> None:
    """Only this process says what is open."""
    request = ClientRequest("1", "submit", {"vouched": typed, "opened": ["10.0.0.1:80"]})
    prepared = await World().vouching().prepare(request)
    assert prepared.args["opened"] == []


async def test_a_resolver_that_hangs_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known in time opens nothing; other names are not held up by it."""
    monkeypatch.setattr(vouching, "LOOK_UP_S", 0.05)

    async def hanging(name: str) -> list[str]:
        if name == "hangs":
            await asyncio.Event().wait()
        return DNS.get(name, [])

    made = Vouching(lambda name, detail: None, hanging)
    opened = await made.opened_by(["http://hangs/", "http://wiki/"])
    assert opened == ["wiki:80=10.1.2.0/24"]


async def test_the_systems_resolver_is_asked() -> None:
    """`localhost` is private everywhere; what cannot be a name has no address."""
    assert "127.0.0.1" in await look_up("localhost")
    assert await look_up("x" * 300) == []
    assert await look_up("nothing.invalid") == []
