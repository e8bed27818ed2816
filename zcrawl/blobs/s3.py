"""Store blobs and finished parts of outputs in S3 or a compatible service. Needs the extra `s3`.

Used by workers (bodies), by masters (parts, archives) and by `export`. A blob's name is the SHA-256
of its content, a part's name follows from its number: a repeated write replaces the same object, so
a crash between a write and its commit leaves no duplicates. Credentials and endpoint come from the
usual
environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL …), never from a job.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

from zcrawl.errors import StoreCorrupt, StoreError, StoreUnavailable, UsageError
from zcrawl.model.reasons.storage import BAD_BLOB_NAME, BAD_S3_URL, NO_BLOB, S3_UNAVAILABLE
from zcrawl.model.reasons.usage import MISSING_EXTRA
from zcrawl.submit.outputs import key_of

NAME_LENGTH: Final = 64
_REMEMBERED: Final = 10_000  # names that need not be written again
RETRY_S: Final = 10


class S3Blobs:
    """Blobs in S3, with the calls of `folder.FileBlobs`. Calls block, so use threads."""

    def __init__(self, url: str) -> None:
        """`url` is s3://bucket/prefix."""
        bucket, self._prefix = key_of(url)
        self._url = url
        self._store = open_store(bucket)
        self._written: dict[str, None] = {}

    def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        if name in self._written:
            return name
        put(self._store, self._key(name), data, self._url)
        self._written[name] = None
        if len(self._written) > _REMEMBERED:
            self._written.pop(next(iter(self._written)))
        return name

    def get(self, name: str) -> bytes:
        import obstore
        from obstore.exceptions import BaseError

        try:
            data = bytes(obstore.get(self._store, self._key(name)).bytes())
        except (FileNotFoundError, BaseError) as error:
            if "NotFound" in type(error).__name__ or isinstance(error, FileNotFoundError):
                raise StoreError(f"there is no blob {name} in {self._url}", code=NO_BLOB) from error
            raise _unavailable(self._url, error) from error
        if hashlib.sha256(data).hexdigest() != name:
            raise StoreCorrupt(
                f"the blob {name} in {self._url} is damaged: its content does not match its name"
            )
        return data

    def _key(self, name: str) -> str:
        if len(name) != NAME_LENGTH or set(name) - set("0123456789abcdef"):
            raise StoreError(f"{name!r} is not the name of a blob", code=BAD_BLOB_NAME)
        return "/".join(part for part in (self._prefix, name[:2], name[2:4], name) if part)


def upload(url: str, path: Path) -> None:
    """Upload a finished file."""
    bucket, key = key_of(url)
    put(open_store(bucket), key, path, url)


def open_store(bucket: str) -> Any:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise UsageError("S3 needs obstore: pip install 'zcrawl[s3]'", code=MISSING_EXTRA) from None
    import os
    from datetime import timedelta

    insecure = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    try:
        return S3Store.from_url(
            bucket,
            client_options={"allow_http": insecure, "timeout": "30s", "connect_timeout": "5s"},
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=RETRY_S)},
        )
    except (BaseError, ValueError) as error:
        raise UsageError(f"{bucket}: {error}", code=BAD_S3_URL) from error


def put(store: Any, key: str, data: bytes | Path, url: str) -> None:
    import obstore
    from obstore.exceptions import BaseError

    try:
        obstore.put(store, key, data)
    except (BaseError, OSError) as error:
        raise _unavailable(url, error) from error


def _unavailable(url: str, error: Exception) -> StoreUnavailable:
    reason = " ".join(str(error).split())[:300]
    return StoreUnavailable(f"{url}: {reason}", code=S3_UNAVAILABLE)
