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


@functools.cache
def verified() -> ssl.SSLContext:
    """A context that trusts what the system trusts, as aiohttp would have made it."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


__all__ = ["aiohttp", "verified"]
