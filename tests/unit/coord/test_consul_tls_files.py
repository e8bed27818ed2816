"""The files for TLS to Consul are checked before the first connection; errors name the key."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.servers.certificates import Certificates, make_certificates
from zcrawl.coord.agents.consul_client import ConsulSettings, check_tls
from zcrawl.errors import ConfigError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("consul"))


def settings(made: Certificates) -> ConsulSettings:
    return ConsulSettings(
        "https://127.0.0.1:8501",
        ca_file=str(made.ca),
        cert_file=str(made.client_cert),
        key_file=str(made.client_key),
    )


def refused(settings: ConsulSettings, **changes: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check_tls(msgspec.structs.replace(settings, **changes))
    return str(caught.value)


def test_usable_files_are_accepted(made: Certificates) -> None:
    """All three, only the authority, and none of them; without files http is allowed."""
    check_tls(settings(made))
    check_tls(ConsulSettings("https://consul:8501", ca_file=str(made.ca)))
    check_tls(ConsulSettings("127.0.0.1:8500"))


@pytest.mark.parametrize("address", ["127.0.0.1:8500", "http://127.0.0.1:8500"])
def test_files_for_tls_with_an_address_without_tls_are_refused(
    made: Certificates, address: str
) -> None:
    """Otherwise the token would go over the network unencrypted, without a word."""
    text = refused(settings(made), address=address)
    assert "consul.ca_file" in text
    assert "https" in text


@pytest.mark.parametrize("key", ["ca_file", "cert_file", "key_file"])
def test_a_missing_or_spoilt_file_is_named_with_its_key(
    made: Certificates, tmp_path: Path, key: str
) -> None:
    """A file that does not exist, and one that is no PEM."""
    text = refused(settings(made), **{key: str(tmp_path / "none.pem")})
    assert text.startswith(f"consul.{key}: ")
    assert "No such file" in text
    (tmp_path / "spoilt.pem").write_text("nothing")
    text = refused(settings(made), **{key: str(tmp_path / "spoilt.pem")})
    assert f"consul.{key}" in text


def test_a_key_of_another_certificate_is_refused(made: Certificates) -> None:
    """The pair must fit."""
    text = refused(settings(made), key_file=str(made.server_key))
    assert "consul.key_file does not belong" in text


def test_a_key_without_a_certificate_is_refused(made: Certificates) -> None:
    """It would not be used, and the agent would refuse us later."""
    assert "consul.key_file needs consul.cert_file" in refused(settings(made), cert_file="")


def test_a_key_with_a_passphrase_is_refused_and_prompts_nobody(
    made: Certificates, tmp_path: Path
) -> None:
    """OpenSSL would ask for it on the terminal, and a daemon would wait for ever."""
    locked = tmp_path / "locked.key"
    command = ["openssl", "rsa", "-aes128", "-passout", "pass:x", "-in", str(made.client_key)]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True, timeout=60)
    assert "has a passphrase" in refused(settings(made), key_file=str(locked))
