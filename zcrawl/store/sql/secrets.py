"""ChangeSecrets: sealed secrets of jobs, which each leader loads at its takeover.

Called by `store` after the epoch check; it commits afterwards. Only sealed texts come here.
"""

from __future__ import annotations

import msgspec

from zcrawl.store.commands import ChangeSecrets, SecretChange, SecretRow, SecretsChanged
from zcrawl.store.sql.dialects.dialect import Session
from zcrawl.store.sql.idempotency import TEXT_CHARS, keep_request, stored_reply

_COLUMNS = "name, sealed, key_id, hosts, commands, updated_at, updated_by"


def change_secrets(session: Session, command: ChangeSecrets) -> SecretsChanged:
    action = command.client_action
    reply = stored_reply(session, action.request)
    if reply is None:
        reply = command.reply
        for change in command.put:
            _put(session, change)
        for name in command.drop:
            session.run("DELETE FROM secrets WHERE name = ?", (name,))
        keep_request(session, action, 0, 0, reply)
    return SecretsChanged(secrets(session), reply)


def _put(session: Session, change: SecretChange) -> None:
    row = change.row
    stored = session.fetch_row("SELECT sealed FROM secrets WHERE name = ?", (row.name,))
    if change.before and (stored is None or bytes(stored[0]).decode() != change.before):
        return
    session.run("DELETE FROM secrets WHERE name = ?", (row.name,))
    session.run(
        f"INSERT INTO secrets ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            row.name,
            row.sealed.encode(),
            row.key_id,
            msgspec.json.encode(row.hosts),
            msgspec.json.encode(row.commands),
            row.updated_at,
            row.updated_by[:TEXT_CHARS],
        ),
    )


def secrets(session: Session) -> list[SecretRow]:
    rows = session.all(f"SELECT {_COLUMNS} FROM secrets ORDER BY name")
    return sorted((_row(*row) for row in rows), key=lambda row: row.name)


def _row(
    name: str, sealed: bytes, key_id: str, hosts: bytes, commands: bytes, at: float, by: str
) -> SecretRow:
    return SecretRow(name, bytes(sealed).decode(), key_id, _texts(hosts), _texts(commands), at, by)


def _texts(data: bytes) -> tuple[str, ...]:
    return msgspec.json.decode(bytes(data), type=tuple[str, ...])
