"""A self-signed certificate for the local web, made once per process with openssl."""

from __future__ import annotations

import functools
import ssl
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def self_signed_context(*protocols: str) -> ssl.SSLContext:
    """A server context whose certificate nobody trusts. It chooses among `protocols`, by ALPN."""
    with tempfile.TemporaryDirectory(prefix="zcrawl-tls-") as folder:
        key, certificate = Path(folder) / "key.pem", Path(folder) / "cert.pem"
        command = (
            "openssl req -x509 -nodes -days 2 -subj /CN=localhost -newkey ec"
            " -pkeyopt ec_paramgen_curve:prime256v1"
            " -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
        )
        subprocess.run(
            [*command.split(), "-keyout", str(key), "-out", str(certificate)],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context
