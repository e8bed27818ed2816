"""What `zcrawl doctor` says of connections, with real servers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.servers.certificates import make_certificates
from tests.servers.mariadb import mariadb
from zcrawl.cli.transport import ConnectionLine, connection_lines
from zcrawl.config import resolve


def lines(**values: object) -> dict[str, ConnectionLine]:
    sections: dict[str, list[str]] = {}
    for key, value in values.items():
        section, _, name = key.partition("__")
        sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
    text = "".join(f"[{name}]\n" + "\n".join(rows) + "\n" for name, rows in sections.items())
    return {line.name: line for line in connection_lines(resolve(text, "f", {}).config)}


def test_a_folder_on_this_machine_has_no_connections() -> None:
    """The embedded form uses Unix sockets and SQLite."""
    assert lines() == {}


def test_consul_is_well_with_tls_or_on_this_machine(tmp_path: Path) -> None:
    """Plain HTTP to another machine is a warning that mentions the token, but does not show it."""
    made = make_certificates(tmp_path)
    assert lines(consul__address="127.0.0.1:8500")["consul"].well
    away = lines(consul__address="consul.example:8500", consul__token="s3cret")["consul"]
    assert not away.well
    assert "token is sent in the clear" in away.detail
    assert "s3cret" not in repr(away)
    safe = lines(
        consul__address="https://consul.example",
        consul__ca_file=str(made.ca),
        consul__cert_file=str(made.client_cert),
        consul__key_file=str(made.client_key),
    )["consul"]
    assert safe.well
    assert "with our certificate" in safe.detail
    wrong = lines(consul__address="consul.example:8500", consul__ca_file=str(made.ca))["consul"]
    assert not wrong.well
    assert "consul.ca_file" in wrong.detail


def test_the_mesh_is_well_with_keys_or_on_this_machine() -> None:
    """An address that others reach, without keys, is a warning."""
    consul = {"consul__address": "127.0.0.1:8500"}
    assert lines(**consul)["mesh"].well
    assert not lines(**consul, mesh__bind="10.0.0.1", mesh__insecure=True)["mesh"].well
    assert not lines(cluster__masters=["tcp://10.0.0.1:7600"])["mesh"].well
    assert lines(**consul, mesh__bind="10.0.0.1", mesh__key_file="/k")["mesh"].well


def test_the_database_says_which_encryption_the_connection_really_has(tmp_path: Path) -> None:
    """The version and the cipher come from the server. No TLS over the network is no better than
    a server that nobody verified; on this machine both are well."""
    made = make_certificates(tmp_path)
    tls = f"--ssl-cert={made.server_cert}", f"--ssl-key={made.server_key}"
    with mariadb(*tls) as server:
        name = server.new_database()
        verified = lines(database__urls=[server.url(name, ssl_ca=str(made.ca))])["database server"]
        assert verified.well
        assert "TLSv1." in verified.detail
        assert "the server is verified" in verified.detail
        plain = lines(database__urls=[server.url(name, ssl_mode="disabled")])["database server"]
        assert plain.well
        assert "not encrypted" in plain.detail
        assert "stays on this machine" in plain.detail
        # 127.0.0.1 by a name that is not known to be this machine's
        url = server.url(name).replace("@127.0.0.1:", "@ip6-localhost.invalid:")
        away = lines(database__urls=[url])["database server"]
        assert not away.well
        assert "cannot reach" in away.detail
