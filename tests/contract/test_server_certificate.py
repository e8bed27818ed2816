"""A server's certificate that changes while it serves, on real TLS connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.servers.certificates import Certificates, make_certificates
from zcrawl.errors import ConfigError
from zcrawl.runtime.certificate import ServerCertificate


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("new"))


def install(made: Certificates, folder: Path) -> tuple[Path, Path]:
    """Rename new files over the old ones, as ACME clients do."""
    places = folder / "cert.pem", folder / "key.pem"
    for source, place in zip((made.server_cert, made.server_key), places, strict=True):
        shutil.copy(source, folder / "part")
        (folder / "part").chmod(0o600)
        (folder / "part").rename(place)
    return places


class Line:
    """One TLS connection that trusts one authority."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def echoes(self) -> bool:
        self.writer.write(b"ping\n")
        return await asyncio.wait_for(self.reader.readline(), 10) == b"ping\n"


@contextlib.asynccontextmanager
async def serving(certificate: ServerCertificate) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while line := await reader.readline():
                writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificate.context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextlib.asynccontextmanager
async def connected(port: int, made: Certificates, host: str | None = None) -> AsyncIterator[Line]:
    context = ssl.create_default_context(cafile=made.ca)
    if host == "":  # no server name in the hello
        context.check_hostname = False
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=host
    )
    yield Line(reader, writer)
    writer.close()


async def test_a_new_certificate_counts_for_new_connections_and_ends_none(
    tmp_path: Path, old: Certificates, new: Certificates
) -> None:
    """A connection that was open before goes on; the next one gets the new certificate, with and
    without a server name, and the old authority is not served any more."""
    certificate = ServerCertificate(*install(old, tmp_path))
    async with serving(certificate) as port, connected(port, old) as before:
        assert await before.echoes()
        assert not certificate.poll()
        install(new, tmp_path)
        assert certificate.poll()
        assert certificate.error == ""
        assert not certificate.poll()
        for host in (None, ""):
            async with connected(port, new, host) as after:
                assert await after.echoes()
        with pytest.raises(ssl.SSLCertVerificationError):
            async with connected(port, old):
                raise AssertionError("the old certificate was served")
        assert await before.echoes()


async def test_files_that_do_not_fit_leave_the_old_pair_in_use(
    tmp_path: Path, old: Certificates, new: Certificates
) -> None:
    """First the certificate changes, later its key: between the two, and with a file that is gone
    or spoilt, the server serves the old pair, and the reason is given once."""
    cert, key = install(old, tmp_path)
    certificate = ServerCertificate(cert, key, ("gateway.tls_cert", "gateway.tls_key"))
    async with serving(certificate) as port:

        async def serves(made: Certificates) -> bool:
            async with connected(port, made) as line:
                return await line.echoes()

        shutil.copy(new.server_cert, cert)
        os.utime(cert, (1, 1))
        assert certificate.poll()
        assert "gateway.tls_cert" in certificate.error
        assert not certificate.poll()
        assert await serves(old)
        key.write_text("spoilt")
        assert certificate.poll()
        assert await serves(old)
        key.unlink()
        assert certificate.poll()
        assert f"gateway.tls_key: {key} cannot be read: No such file" in certificate.error
        assert not certificate.poll()
        assert await serves(old)
        install(new, tmp_path)
        assert certificate.poll()
        assert certificate.error == ""
        assert await serves(new)


async def test_old_versions_of_tls_are_refused(tmp_path: Path, old: Certificates) -> None:
    """TLS 1.1 and older: no handshake."""
    certificate = ServerCertificate(*install(old, tmp_path))
    context = ssl.create_default_context(cafile=old.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(certificate) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context)


def test_files_that_cannot_be_used_are_refused_at_the_start(
    tmp_path: Path, old: Certificates, new: Certificates
) -> None:
    """Missing, of another pair, with a passphrase, or readable by every user of the machine; the
    error names the key of the configuration."""
    names = ("gateway.tls_cert", "gateway.tls_key")
    cert, key = install(old, tmp_path)
    locked = tmp_path / "locked.key"
    command = ["openssl", "rsa", "-aes128", "-passout", "pass:x", "-in", str(old.server_key)]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True, timeout=60)
    locked.chmod(0o600)
    for pair, words in (
        ((tmp_path / "none", key), "gateway.tls_cert: "),
        ((cert, tmp_path / "none"), "gateway.tls_key: "),
        ((cert, new.server_key), "gateway.tls_key"),
        ((cert, locked), "without a passphrase"),
    ):
        if pair[1] == new.server_key:
            pair[1].chmod(0o600)
        with pytest.raises(ConfigError) as caught:
            ServerCertificate(*pair, names)
        assert words in str(caught.value)
    key.chmod(0o644)
    with pytest.raises(ConfigError, match=r"gateway\.tls_key: every user can use"):
        ServerCertificate(cert, key, names)
