"""Seal secrets and open them again.

Two ways, both of the library `cryptography`:

- **Stored secrets** are sealed with a key of the masters (`seal`, `open_sealed`; AES-256-GCM). The
  name of the secret is authenticated, so nobody who can write the database can put the value of one
  secret under the name of another.
- **Values of a configuration** are sealed for a node's public key (`seal_for`, `open_own`: X25519
  with a fresh key, HKDF-SHA256, AES-256-GCM). Only the node's key file opens them.

Pure: random bytes come in. The nonce of a stored secret is a keyed hash of name, value and salt,
so two different values never share a nonce, also if a salt repeats.

Format of keys: 64 hexadecimal digits. The id of a key is the beginning of its hash; it is no
secret. Errors never name a value.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from zcrawl.errors import ConfigError
from zcrawl.model.reasons.usage import BAD_SEALED, BAD_VAULT_KEY, NO_CRYPTOGRAPHY
from zcrawl.text.patterns import lazy_pattern

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY: Final = lazy_pattern(r"[0-9a-f]{64}")
_NONCE: Final = 12
_PUBLIC: Final = 32
_FOR_NODE: Final = b"zcrawl sealed for a node 1"
_STORED: Final = b"zcrawl stored secret 1\0"


class SealingKey:
    """A key of the masters. It has no text form."""

    __slots__ = ("_key", "id")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.id = hashlib.blake2b(key, digest_size=8, person=b"zcrawl-key-id").hexdigest()

    def __repr__(self) -> str:
        return f"SealingKey({self.id})"

    def seal(self, name: str, value: str, salt: bytes) -> str:
        """Return the sealed value of a stored secret."""
        data = value.encode()
        parts = b"\0".join((name.encode(), salt, data))
        nonce = hashlib.blake2b(parts, key=self._key, digest_size=_NONCE).digest()
        sealed = _cipher(self._key).encrypt(nonce, data, _STORED + name.encode())
        return _text_of(nonce + sealed)

    def open(self, name: str, sealed: str) -> str:
        """Return the value; ConfigError if it was sealed otherwise, or changed."""
        data = _bytes_of(sealed, f"the secret {name}")
        return _decrypt(self._key, data, _STORED + name.encode(), f"the secret {name}")


def parse_keys(text: str, origin: str) -> tuple[SealingKey, ...]:
    """Return the keys of a file or variable, one a line, the newest last; `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    words = [line for line in lines if line]
    for number, word in enumerate(words, 1):
        if not _KEY.fullmatch(word):
            raise ConfigError(
                f"{origin}: key {number} is not 64 hexadecimal digits; make one with "
                "`zcrawl secret key FILE`",
                code=BAD_VAULT_KEY,
            )
    if not words:
        raise ConfigError(f"{origin}: there is no key in it", code=BAD_VAULT_KEY)
    return tuple(SealingKey(bytes.fromhex(word)) for word in words)


def seal_for(public: str, value: str, fresh: bytes) -> str:
    """Seal a value for the node with this public key. `fresh`: 32 random bytes."""
    _require()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    private = X25519PrivateKey.from_private_bytes(fresh)
    own = private.public_key().public_bytes_raw()
    target = bytes.fromhex(public)
    shared = private.exchange(X25519PublicKey.from_public_bytes(target))
    key = _derived(shared, own + target)
    # Each key is used once, so its nonce may be constant.
    return _text_of(own + _cipher(key).encrypt(bytes(_NONCE), value.encode(), own + target))


def open_own(secret: str, public: str, sealed: str) -> str:
    """Return a value that was sealed for this node's public key; ConfigError if it was not."""
    _require()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    data = _bytes_of(sealed, "the sealed text")
    other, target = data[:_PUBLIC], bytes.fromhex(public)
    if len(other) < _PUBLIC:
        raise _bad("the sealed text")
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:  # a point of low order
        raise _bad("the sealed text") from None
    key = _derived(shared, other + target)
    return _decrypt(key, bytes(_NONCE) + data[_PUBLIC:], other + target, "the sealed text")


def newest(keys: Iterable[SealingKey]) -> SealingKey | None:
    """Return the key that seals; the others only open."""
    return next(reversed(tuple(keys)), None)


def _derived(shared: bytes, context: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, None, _FOR_NODE + context).derive(shared)


def _decrypt(key: bytes, data: bytes, context: bytes, what: str) -> str:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(data[:_NONCE], data[_NONCE:], context).decode()
    except (InvalidTag, ValueError):  # another key, or changed bytes; ValueError: too short
        raise _bad(what) from None


def _cipher(key: bytes) -> AESGCM:
    _require()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError(
            "sealed secrets need the library cryptography: pip install 'zcrawl[secrets]'",
            code=NO_CRYPTOGRAPHY,
        ) from None


def _bad(what: str) -> ConfigError:
    return ConfigError(
        f"{what} cannot be opened: it was sealed with another key, or it was changed",
        code=BAD_SEALED,
    )


def _text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes_of(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _bad(what) from None
