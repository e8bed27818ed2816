"""A certificate authority and certificates for one test, made by openssl's command line tool."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Certificates:
    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


def make_certificates(
    folder: Path, address: str = "127.0.0.1", names: tuple[str, ...] = (), days: int = 2
) -> Certificates:
    """The server's certificate is for `address` and `names`; the client's is for nobody in
    particular. Negative `days`: both have expired."""
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    # fmt: off
    _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test CA",
             "-keyout", ca_key, "-out", ca)
    # fmt: on
    made = {}
    owners = ",".join([f"IP:{address}", *(f"DNS:{name}" for name in names)])
    for name, extension in (("server", f"subjectAltName={owners}"), ("client", "")):
        key, request, cert = (folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = folder / f"{name}.ext"
        extensions.write_text(f"{extension}\n")
        # fmt: off
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN=zcrawl {name}",
                 "-keyout", key, "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial",
                 "-days", str(days), "-extfile", extensions, "-out", cert)
        # fmt: on
        made[name] = (cert, key)
    return Certificates(ca, *made["server"], *made["client"])


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
