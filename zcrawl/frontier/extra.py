"""Parts of a request beyond its URL: method, body, headers, and the handler for its answer.

Requests of spiders have extras, links of pages do not. The worker encodes them for the requests of
a spider, the store keeps the bytes, and the worker that fetches decodes them. The leader reads them
only to check samples of the keys that workers send. Pure.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from zcrawl.errors import ParseError
from zcrawl.frontier.url import KEY_BYTES, CanonicalRules
from zcrawl.model.reasons.failure import BAD_EXTRA

MOST_EXTRA_BYTES: Final = 60_000  # of one request, encoded
MOST_PRIORITY: Final = 1_000
START: Final = "start"  # the handler that runs first
# A name reserved by RFC 2606: the request that calls a spider's `start` is never sent.
START_URL: Final = "http://spider.invalid/start"
_STARTS: Final = frozenset({START_URL, START_URL.encode()})  # the store has bytes


class Extra(msgspec.Struct, frozen=True, array_like=True):
    method: str = "GET"
    body: bytes = b""
    headers: dict[str, str] = {}
    handler: str = ""  # empty: the spider chooses
    meta: dict[str, Any] = {}
    # A redirect from another host led here, so the job's secrets are not sent.
    redirected: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is the same request as a link of a page would be."""
        return self in (PLAIN, REDIRECT)


PLAIN: Final = Extra()
REDIRECT: Final = Extra(redirected=True)
_decode = msgspec.msgpack.Decoder(Extra).decode


def encode(extra: Extra) -> bytes:
    """Return the stored bytes; empty for a plain GET."""
    return b"" if extra == PLAIN else msgspec.msgpack.encode(extra)


def decode(data: bytes) -> Extra:
    if not data:
        return PLAIN
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ParseError(
            f"the extras of a request cannot be read: {error}", code=BAD_EXTRA
        ) from None


def request_key(url: str, extra: Extra, rules: CanonicalRules) -> bytes:
    """Return the identity of a request within a run.

    A plain GET has the key of a link; two POSTs to one URL differ unless their bodies are equal.
    """
    if extra.method == "GET" and not extra.body:
        return rules.key(url)
    return _key_with_body(rules.key(url), extra)


def redirect_key(url: str, onward: Extra, own_key: bytes, rules: CanonicalRules) -> bytes:
    """Return the key of the request that a redirect from `own_key` to `url` makes."""
    key = request_key(url, onward, rules)
    return _taken_key(url, onward, rules) if key == own_key else key


def is_key_of(key: bytes, url: str, extra: Extra, rules: CanonicalRules) -> bool:
    """Return whether a request with this key can belong to a run with these rules."""
    return key in (request_key(url, extra, rules), _taken_key(url, extra, rules))


def _taken_key(url: str, extra: Extra, rules: CanonicalRules) -> bytes:
    key = rules.redirect_key(url)
    return key if extra.method == "GET" and not extra.body else _key_with_body(key, extra)


def _key_with_body(key: bytes, extra: Extra) -> bytes:
    return blake2b(extra.method.encode() + key + extra.body, digest_size=KEY_BYTES).digest()


def is_start(url: str | bytes) -> bool:
    """Return whether the URL is the pseudo request that calls a spider's `start`."""
    return url in _STARTS


def start_seed(rules: CanonicalRules) -> tuple[str, bytes, bytes]:
    """Return URL, key and extras of the request that calls a spider's `start`."""
    extra = Extra(method="START", handler=START)
    return START_URL, request_key(START_URL, extra, rules), encode(extra)
