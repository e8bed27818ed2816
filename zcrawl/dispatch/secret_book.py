"""The stored secrets in the leader's memory, and which of them a run gets.

Filled at takeover and by committed changes. Sealed values are opened when a CONFIG message is made,
and are not kept. A run that names a secret which is missing, or cannot be opened, waits with a
named reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.errors import ConfigError, RefusedError
from zcrawl.mesh.messages import RunSecret
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.reasons.usage import (
    BAD_VAULT_KEY,
    NO_SUCH_SECRET,
    SECRET_NEEDS_KEYS,
    SECRET_SEALED,
)
from zcrawl.store.commands import SecretRow
from zcrawl.text.patterns import lazy_pattern

if TYPE_CHECKING:
    from zcrawl.text.sealing import SealingKey

_STORED: Final = lazy_pattern(r"\$\{secret:([A-Za-z0-9_]{1,64})\}")


def stored_names(spec: bytes) -> tuple[str, ...]:
    """Return the names of the stored secrets that a job names anywhere."""
    if b"${secret:" not in spec:
        return ()
    return tuple(sorted(set(_STORED.findall(spec.decode("utf-8", "replace")))))


class Vault(msgspec.Struct, frozen=True):
    """What a master needs for stored secrets. `private`: workers and clients are reached over
    encrypted connections or a private Unix socket only."""

    keys: tuple[SealingKey, ...] = ()  # the newest last
    private: bool = False


class SecretBook:
    def __init__(self) -> None:
        self.rows: dict[str, SecretRow] = {}
        self.vault = Vault()  # set by the leader before it loads rows

    @property
    def private(self) -> bool:
        return self.vault.private

    def load(self, rows: Iterable[SecretRow]) -> None:
        self.rows = {row.name: row for row in rows}

    def seal(self, name: str, value: str, salt: str) -> tuple[str, str]:
        """Return the sealed value and the id of the newest key, which sealed it."""
        from zcrawl.text.sealing import newest  # few masters have keys

        key = newest(self.vault.keys)
        if key is None:
            raise RefusedError(
                "the leader has no key for stored secrets; make one with `zcrawl secret key FILE` "
                "and name the file in vault.key_file on every master",
                code=BAD_VAULT_KEY,
            )
        return key.seal(name, value, salt.encode()), key.id

    def open(self, row: SecretRow) -> str:
        """Return the value; ConfigError if no key of this master opens it."""
        key = next((key for key in self.vault.keys if key.id == row.key_id), None)
        if key is None:
            raise ConfigError(
                f"the secret {row.name} was sealed with the key {row.key_id}, which the leader "
                "does not have",
                code=SECRET_SEALED,
            )
        return key.open(row.name, row.sealed)

    def check_lines(self, spec: bytes) -> None:
        """Raise RefusedError if a job names stored secrets and they cannot be sent in private."""
        names = stored_names(spec)
        if names and not self.private:
            raise RefusedError(
                f"the job names the stored secret {names[0]}, which is sent over encrypted or "
                "private connections only; give the cluster keys (`zcrawl keys`)",
                code=SECRET_NEEDS_KEYS,
            )

    def problem(self, names: Iterable[str]) -> str:
        """Return why a run that names these secrets waits; empty: it has all of them."""
        for name in names:
            row = self.rows.get(name)
            if not self.private:
                return with_detail(
                    SECRET_NEEDS_KEYS,
                    f"the run names the stored secret {name}, and the connections to workers are "
                    "not encrypted",
                )
            if row is None:
                return with_detail(
                    NO_SUCH_SECRET, f"{name} is not stored; `zcrawl secret set {name}` stores it"
                )
            try:
                self.open(row)
            except ConfigError as error:
                return with_detail(SECRET_SEALED, str(error))
        return ""

    def of_run(self, names: Iterable[str]) -> dict[str, RunSecret]:
        """Return the secrets of a run that does not wait for one of them."""
        rows = [self.rows[name] for name in names if name in self.rows and self.private]
        return {row.name: RunSecret(self.open(row), row.hosts, row.commands) for row in rows}
