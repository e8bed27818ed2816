"""Create TLS contexts of requests from certificate files, when they are first needed.

Used by all engines. Reading the system's certificates takes 130 ms and 10 MB, a large part of a
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
    """Return the context of a request; FetchError tls for files that cannot be used. HTTP/2 has its
    own context, because httpx changes the protocols that it offers."""
    if not verify and files == TlsFiles():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without reading certificates that it
        # will not check
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
