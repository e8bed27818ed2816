"""Open the references of a configuration: variables, private files, sealed texts.

Called by the CLI whenever it reads a configuration, so also by each reload. A file is refused if
other users may read or change it, or if it is larger than MOST_BYTES. Errors name the reference
and never a value.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zcrawl.errors import ConfigError
from zcrawl.mesh.security import KeyPair
from zcrawl.model.reasons.usage import BAD_REFERENCE, OPEN_SECRET_FILE
from zcrawl.text.references import ENV, FILE, Reference

MOST_BYTES: Final = 65_536
# A group may read: Kubernetes gives a mounted secret to the group of the pod.
_OTHERS: Final = 0o027


class ReferenceOpener:
    """Opens references for one reading of the configuration."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._pair: KeyPair | None = None

    def open(self, reference: Reference, key_file: str) -> str:
        """Return the value. `key_file` is this node's mesh.key_file, which opens sealed texts."""
        if reference.kind == ENV:
            return self._variable(reference)
        if reference.kind == FILE:
            return read_secret_file(Path(reference.target), str(reference))
        return self._sealed(reference, key_file)

    def _variable(self, reference: Reference) -> str:
        value = self._environ.get(reference.target)
        if value is None:
            raise ConfigError(
                f"{reference}: the environment variable is not set", code=BAD_REFERENCE
            )
        return value

    def _sealed(self, reference: Reference, key_file: str) -> str:
        from zcrawl.mesh.sockets.keys import read_key_file
        from zcrawl.text.sealing import open_own

        if not key_file:
            raise ConfigError(
                f"{reference}: it is opened with the node's key file, and mesh.key_file is empty",
                code=BAD_REFERENCE,
            )
        if self._pair is None:
            self._pair = read_key_file(Path(key_file))
        try:
            return open_own(self._pair.secret, self._pair.public, reference.target)
        except ConfigError as error:
            raise ConfigError(f"{reference}: {error}", code=error.code) from None


def read_secret_file(path: Path, shown: str) -> str:
    """Return the text of a private file without the newline at its end."""
    if not path.is_absolute():
        raise ConfigError(f"{shown}: write the whole path, from /", code=BAD_REFERENCE)
    try:
        # O_NONBLOCK: a FIFO must not stop the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(
            f"{shown}: cannot be read: {error.strerror}", code=BAD_REFERENCE
        ) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{shown}: is not a file", code=BAD_REFERENCE)
        mode = stat.S_IMODE(status.st_mode)
        if mode & _OTHERS:
            raise ConfigError(
                f"{shown}: other users may read or change this secret (mode {mode:o}); chmod 600 "
                "it, and replace the secret if others have read it",
                code=OPEN_SECRET_FILE,
            )
        data = os.read(descriptor, MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{shown}: cannot be read: {error.strerror}", code=BAD_REFERENCE
        ) from None
    finally:
        os.close(descriptor)
    if len(data) > MOST_BYTES:
        raise ConfigError(
            f"{shown}: is larger than {MOST_BYTES} bytes; name a file with the secret only",
            code=BAD_REFERENCE,
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{shown}: is not UTF-8 text", code=BAD_REFERENCE) from None
    if text.endswith("\r\n"):
        return text[:-2]
    return text.removesuffix("\n")
