"""A TLS context of a server whose certificate is read again when its files change.

Made by the gateway, which calls `poll` about once a second. A new certificate counts for new
handshakes; connections that exist go on with the old one. A pair is used as a whole or not at all:
while the files do not fit together (one is already new, the other still old), the old pair counts.

    hello of a client ──▶ `context` (what the server listens with) ──swap──▶ the newest whole pair
"""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path
from typing import Final, TypeAlias

from zcrawl.errors import ConfigError

_FileStamp: TypeAlias = tuple[tuple[int, int, int, int], ...]
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # for TLS 1.2; TLS 1.3 has its own


class ServerCertificate:
    """The certificate of one listening server. `names`: the keys of the configuration, for
    errors."""

    def __init__(self, cert: Path, key: Path, names: tuple[str, str] = ("tls_cert", "tls_key")):
        """Raise ConfigError, which names the key, if the files cannot be used."""
        self._files, self._names = (cert, key), names
        self._stamp = self._look()
        self._newest = self._load()
        self.error = ""  # why the newest files are not used; empty: they are
        self.context = self._load()
        self.context.sni_callback = self._swap

    def poll(self) -> bool:
        """Read the files again if they changed; return whether there is something new to say.

        After True, `error` says why the files are not used; empty: they are in use."""
        try:
            stamp = self._look()
        except ConfigError as error:
            return self._failed(str(error))
        if stamp == self._stamp:
            return False
        try:
            newest = self._load()
            again = self._look()
        except ConfigError as error:
            self._stamp = stamp
            return self._failed(str(error))
        if again != stamp:
            return False  # they are just being written: the next look decides
        self._newest, self._stamp, self.error = newest, stamp, ""
        return True

    def _failed(self, error: str) -> bool:
        is_news, self.error = error != self.error, error
        return is_news

    def _swap(self, connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        """Called by OpenSSL for each handshake, also for clients that name no server."""
        connection.context = self._newest

    def _look(self) -> _FileStamp:
        """Return what changes with the content of the files; a link is followed."""
        stamps = []
        for name, path in zip(self._names, self._files, strict=True):
            try:
                status = path.stat()
            except OSError as error:
                raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}") from None
            stamps.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        cert, key = self._files
        for name, path in zip(self._names, self._files, strict=True):
            try:
                with path.open("rb") as file:
                    mode = os.fstat(file.fileno()).st_mode
            except OSError as error:
                raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}") from None
            if path == key and mode & stat.S_IRWXO:
                raise ConfigError(f"{name}: every user can use {path}: chmod o-rwx {path}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A key with a passphrase is refused; OpenSSL would ask for it on the terminal.
            context.load_cert_chain(cert, key, lambda: "")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self._names[0]}: {cert} and {self._names[1]}: {key} are not a certificate and "
                f"its key without a passphrase (PEM): {error}"
            ) from None
        return context
