"""Read the masters' key for stored secrets, from vault.key_file or vault.key.

Called when a master or `up` starts, and when its configuration is read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from zcrawl.config import Config
from zcrawl.dispatch.secret_book import Vault
from zcrawl.errors import ConfigError
from zcrawl.model.reasons.usage import BAD_VAULT_KEY
from zcrawl.runtime.files import PRIVATE_FILE, sync_folder

KEY_BYTES = 32


def read_vault(config: Config, *, private: bool) -> Vault:
    """Return the keys of the configuration; without keys no secret can be stored or opened."""
    vault = config.vault
    if vault.key_file and vault.key:
        raise ConfigError("vault.key_file and vault.key are both set; keep one", code=BAD_VAULT_KEY)
    if not (vault.key_file or vault.key):
        return Vault(private=private)
    from zcrawl.text.sealing import parse_keys

    if vault.key:
        return Vault(parse_keys(vault.key, "vault.key"), private)
    from zcrawl.roles.config_references import read_secret_file

    path = Path(vault.key_file).expanduser().absolute()
    shown = f"vault.key_file {path}"
    return Vault(parse_keys(read_secret_file(path, shown), shown), private)


def renewed_vault(config: Config, before: Vault, log: Callable[[str, str], object]) -> Vault:
    """Return the keys of a configuration that was read again. If they cannot be read, those in
    force stay, and the log says why."""
    try:
        return read_vault(config, private=before.private)
    except ConfigError as error:
        log(error.code, f"{error}; the keys in force stay")
        return before


def add_key(path: Path) -> str:
    """Add a new key at the end of a key file, which is made if it is missing; return its id. The
    last key of a file seals, all of them open."""
    from zcrawl.text.sealing import parse_keys

    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    if path.exists():
        from zcrawl.roles.config_references import read_secret_file

        parse_keys(read_secret_file(path.absolute(), str(path)), str(path))
    key = os.urandom(KEY_BYTES).hex()
    try:
        descriptor = os.open(path, flags, PRIVATE_FILE)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, PRIVATE_FILE)
            file.write(f"{key}\n")
            file.flush()
            os.fsync(descriptor)
        sync_folder(path.absolute().parent)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return parse_keys(key, str(path))[0].id
