"""TLS contexts of requests: what is trusted and what is shown, read from files when first needed.

Used by all engines. The system's certificates take 130 ms and 10 MB to read, more than most of a
worker's start, so nothing is read before the first https request.
"""

from __future__ import annotations

import functools
import ssl

from zcrawl.fetch.policy import fetch_error
from zcrawl.fetch.ports import TlsFiles
from zcrawl.model.reasons.failure import TLS


@functools.lru_cache(64)
def context_for(files: TlsFiles, verify: bool, http2: bool = False) -> ssl.SSLContext:
    """The context of a request; FetchError tls for files that cannot be used. One of its own for
    HTTP/2: httpx writes into a context what it offers the server."""
    if not verify and files == TlsFiles():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without reading what it will not check
    else:
        try:
            context = ssl.create_default_context(cafile=files.ca or None)
            if files.cert:
                context.load_cert_chain(files.cert, files.key or None)
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(name for name in (files.ca, files.cert, files.key) if name)
            raise fetch_error(TLS, f"{names}: cannot be used: {error}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(("http/1.1",))
    return context
