"""aiohttp without its certificates: they are loaded when the first https request needs them.

aiohttp reads the system's certificates when it is imported, which takes 130 ms and 10 MB, more
than all the rest of a worker's start. Whoever imports aiohttp imports it from here, and passes
`verified()` as the `ssl` of its requests: aiohttp's own default context stays empty, so a request
that forgets that fails, it is not let through.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def _no_certificates() -> Iterator[None]:
    """Shadows a method of the C base class for as long as aiohttp is being imported."""
    context: Any = ssl.SSLContext
    context.set_default_verify_paths = lambda self: None
    try:
        yield
    finally:
        del context.set_default_verify_paths


with _no_certificates():
    import aiohttp

from zcrawl.fetch.policy import fetch_error  # noqa: E402 - aiohttp comes first
from zcrawl.fetch.ports import TlsFiles  # noqa: E402


@functools.cache
def verified() -> ssl.SSLContext:
    """A context that trusts what the system trusts, as aiohttp would have made it."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


@functools.lru_cache(64)
def context_for(files: TlsFiles, verify: bool, http2: bool = False) -> ssl.SSLContext | bool:
    """The context of a request; FetchError tls for files that cannot be used. One of its own for
    HTTP/2: httpx writes into a context what it offers the server."""
    if files == TlsFiles() and not http2:
        return verified() if verify else False
    try:
        context = ssl.create_default_context(cafile=files.ca or None)
        if files.cert:
            context.load_cert_chain(files.cert, files.key or None)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(name for name in (files.ca, files.cert, files.key) if name)
        raise fetch_error("tls", f"{names}: cannot be used: {error}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(("http/1.1",))
    return context


__all__ = ["aiohttp", "context_for", "verified"]
