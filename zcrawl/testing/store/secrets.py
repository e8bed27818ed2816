"""Sealed secrets in the fake store's tables: the twin of `sql.secrets`.

Only `store` and its parts call it, after the epoch check.
"""

from __future__ import annotations

from zcrawl.store.commands import ChangeSecrets, SecretRow, SecretsChanged
from zcrawl.testing.store import idempotency as once
from zcrawl.testing.store.tables import FakeAnswer, Tables


def change_secrets(tables: Tables, command: ChangeSecrets) -> SecretsChanged:
    action = command.client_action
    reply = once.stored_reply(tables, action.request)
    if reply is None:
        reply = command.reply
        for change in command.put:
            stored = tables.secrets.get(change.row.name)
            if not change.before or (stored is not None and stored.sealed == change.before):
                tables.secrets[change.row.name] = change.row
        for name in command.drop:
            tables.secrets.pop(name, None)
        tables.answers[action.request] = FakeAnswer(action, 0, 0, reply)
    return SecretsChanged(secrets(tables), reply)


def secrets(tables: Tables) -> list[SecretRow]:
    return sorted(tables.secrets.values(), key=lambda row: row.name)
