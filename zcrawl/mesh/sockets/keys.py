"""Key files and allow-lists on disk. Called by `zcrawl keys` and when a node starts.

A master reads its allow-list again when it changed: `AllowList.poll`, called now and then in a
thread (the event loop reads no files), and the result handed to `ZmqMasterMesh.allow`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import zmq
from zmq.utils import z85

from zcrawl.errors import ConfigError
from zcrawl.mesh.roles import KeyRole
from zcrawl.mesh.security import (
    AllowedKey,
    KeyPair,
    MeshKeys,
    allow_list_line,
    check_key,
    check_name,
    key_file_text,
    parse_allow_list,
    parse_key_file,
    without_key,
)
from zcrawl.model.reasons.cluster import (
    BAD_ALLOW_LIST,
    BAD_KEY,
    FILE_EXISTS,
    NO_SUCH_KEY,
    OPEN_KEY_FILE,
)
from zcrawl.runtime.files import replace_durably, sync_folder

KEY_FILE_MODE = 0o600


def new_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(z85.decode(public).hex(), z85.decode(secret).hex())


def write_key_file(path: Path, pair: KeyPair) -> None:
    """Write a key file durably, never over an existing one: a lost secret cannot be restored."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_FILE_MODE)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists already, and keys are not replaced; choose another name",
            code=FILE_EXISTS,
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        os.fchmod(descriptor, KEY_FILE_MODE)  # whatever the umask says
        file.write(key_file_text(pair))
        file.flush()
        os.fsync(descriptor)
    sync_folder(path.absolute().parent)


def read_key_file(path: Path) -> KeyPair:
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {_reason(error)}", code=BAD_KEY) from None
    if mode & 0o077:
        raise ConfigError(
            f"{path}: others may read this secret (mode {mode:o}); chmod 600 it, or make a new "
            "one if they did",
            code=OPEN_KEY_FILE,
        )
    pair = parse_key_file(text, str(path))
    if z85.decode(zmq.curve_public(z85.encode(bytes.fromhex(pair.secret)))).hex() != pair.public:
        raise ConfigError(
            f"{path}: its two keys are not a pair; make a new one with `zcrawl keys new`",
            code=BAD_KEY,
        )
    return pair


def read_mesh_keys(path: Path, server: str | None = None) -> MeshKeys:
    """Read the keys of a node; `server` is the masters' public key, None on a master."""
    own = read_key_file(path)
    return MeshKeys(own, own.public if server is None else check_key(server, "server key"))


class AllowList:
    """The masters' list of public keys, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def poll(self) -> dict[str, AllowedKey] | None:
        """Return the keys of the file, or None if it did not change.

        An unreadable file raises each time, a wrong line once; the caller logs it and keeps its
        list.
        """
        try:
            status = self._path.stat()
            mark = (status.st_ino, status.st_mtime_ns, status.st_size)
            if mark == self._seen:
                return None
            text = self._path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self._path}: cannot be read: {_reason(error)}", code=BAD_ALLOW_LIST
            ) from None
        self._seen = mark
        return parse_allow_list(text, str(self._path))

    def add(
        self, public: str, name: str, roles: Iterable[KeyRole] = (), patterns: Sequence[str] = ()
    ) -> None:
        """Append a key; create the file if there is none."""
        line = allow_list_line(check_key(public), check_name(name), roles, patterns)
        parse_allow_list(line, "this line")  # before a file is made
        try:
            with self._path.open("a+", encoding="utf-8") as file:
                file.seek(0)
                text = file.read()
                line = line if not text or text.endswith("\n") else "\n" + line
                parse_allow_list(text + line, str(self._path))  # raises if the key is there
                file.write(line)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self._path}: cannot be written: {_reason(error)}", code=BAD_ALLOW_LIST
            ) from None

    def revoke(self, which: str) -> dict[str, AllowedKey]:
        """Remove the lines of a name or a public key; return what they allowed.

        The file is replaced as a whole, and keeps its mode, user and group, because a master that
        cannot read the new list keeps the old one.
        """
        try:
            path = self._path.resolve(strict=True)
            text, like = path.read_text("utf-8"), path.stat()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self._path}: cannot be read: {_reason(error)}", code=BAD_ALLOW_LIST
            ) from None
        kept, removed = without_key(text, which, str(self._path))
        if not removed:
            raise ConfigError(
                f"{self._path}: no line has the name or the key {which[:100]!r}", code=NO_SUCH_KEY
            )
        try:
            replace_durably(path, kept.encode(), like)
        except OSError as error:
            raise ConfigError(
                f"{self._path}: cannot be written: {_reason(error)}", code=BAD_ALLOW_LIST
            ) from None
        return removed


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "no UTF-8 text"
