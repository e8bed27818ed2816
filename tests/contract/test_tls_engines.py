"""TLS: trusted certificates, client certificates, protocols."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.engine_tools import HEADERS, OPEN, failure
from tests.servers.certificates import Certificates, make_certificates
from tests.web.tls_servers import http2_only, members_only
from zcrawl.fetch.http2.engine import HttpxEngine
from zcrawl.fetch.ports import Engine, HopLimits, TlsFiles
from zcrawl.fetch.wire.engine import HttpEngine


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def limits(ca: Path | str = "", cert: Path | str = "", key: Path | str = "") -> HopLimits:
    return HopLimits(guard=OPEN, tls=TlsFiles(str(ca), str(cert), str(key)))


async def test_a_ca_of_ones_own_is_trusted_and_no_other(engine: Engine, made: Certificates) -> None:
    """With it the site is trusted; without it, or with another one, it is not."""
    async with http2_only(made) as url:
        assert (await engine.get(url, HEADERS, limits(made.ca))).content == b"1.1"
        assert (await failure(engine, url, limits())).code == "tls"
        assert (await failure(engine, url, limits(made.client_cert))).code == "tls"


async def test_a_client_certificate_is_shown(engine: Engine, made: Certificates) -> None:
    """The server knows who comes; without it the door stays closed."""
    async with members_only(made) as url:
        shown = limits(made.ca, made.client_cert, made.client_key)
        assert (await engine.get(url, HEADERS, shown)).content == b"zcrawl client"
        assert (await failure(engine, url, limits(made.ca))).code in ("tls", "reset", "protocol")


async def test_files_that_cannot_be_used_are_named(engine: Engine, tmp_path: Path) -> None:
    """The page is not requested."""
    (tmp_path / "junk").write_text("junk")
    for files in (limits(tmp_path / "none"), limits(cert=tmp_path / "junk")):
        error = await failure(engine, "https://127.0.0.1:1234/", files)
        assert error.code == "tls"
        assert str(tmp_path) in str(error)


async def test_http2_is_spoken_where_it_is_asked_for(made: Certificates) -> None:
    """By httpx, in clients of their own: the fast engine and plain jobs keep HTTP/1.1."""
    two = HopLimits(guard=OPEN, tls=TlsFiles(str(made.ca)), http2=True)
    async with http2_only(made) as url, HttpxEngine() as httpx, HttpEngine() as wire:
        assert (await httpx.get(url, HEADERS, two)).content == b"two"
        assert (await httpx.get(url, HEADERS, limits(made.ca))).content == b"1.1"
        assert (await httpx.get(url, HEADERS, two)).content == b"two"
        assert (await wire.get(url, HEADERS, limits(made.ca))).content == b"1.1"
