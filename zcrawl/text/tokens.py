"""The form of an API token, and its digests. Pure.

    zc_ab12cd34_<43 characters of base64url: 256 random bits>

The gateway and the command line send the digest of a token, never the token. The store keeps a
digest of that digest, made with a key of its database: who reads the database can neither use a
token nor check a guess without the key.
"""

from __future__ import annotations

import base64
import hmac
from hashlib import blake2b
from typing import Final

from zcrawl.text.patterns import lazy_pattern

SECRET_BYTES: Final = 32
VISIBLE: Final = 8  # characters that tell tokens apart
START: Final = "zc_"
_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 letters without l, o, 0 and 1
_TOKEN = lazy_pattern(r"zc_[a-z0-9]{8}_[A-Za-z0-9_-]{43}")
_PREFIX = lazy_pattern(r"zc_[a-z0-9]{8}")
_DIGEST = lazy_pattern(r"[0-9a-f]{64}")


def format_token(visible: bytes, secret: bytes) -> str:
    """Write a token of random bytes: `VISIBLE` of them to be seen, `SECRET_BYTES` to be kept."""
    shown = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in visible[:VISIBLE])
    return f"{START}{shown}_{base64.urlsafe_b64encode(secret).decode().rstrip('=')}"


def prefix_of(token: str) -> str:
    """Return the visible part, `zc_ab12cd34`; empty: it has not the form of a token."""
    return token[: len(START) + VISIBLE] if _TOKEN.fullmatch(token) else ""


def full_prefix(text: str) -> str:
    """Return a prefix as it is stored, also of one without its `zc_`; empty: it is not one."""
    text = text if text.startswith(START) else START + text
    return text if _PREFIX.fullmatch(text) else ""


def token_digest(token: str) -> str:
    """Return what is sent instead of the token."""
    return blake2b(token.encode(), digest_size=32).hexdigest()


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def stored_digest(digest: str, key: bytes) -> str:
    """Return what the database keeps of a token's digest."""
    return blake2b(digest.encode(), key=key, digest_size=32).hexdigest()


def digests_match(stored: str, digest: str, key: bytes) -> bool:
    return hmac.compare_digest(stored, stored_digest(digest, key))
