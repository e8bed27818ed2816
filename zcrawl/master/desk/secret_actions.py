"""Store, list, delete and reseal secrets of jobs: what `zcrawl secret` asks of the leader.

The value arrives in a request over an encrypted or private connection, is sealed here at once, and
goes to the store sealed. No answer, log line or audit row has it. Called by the desk. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.master.desk import idempotency
from zcrawl.master.desk.replies import OpenRequests, Pending
from zcrawl.master.events import Execute, MasterEffects
from zcrawl.master.leader_state import LeaderState
from zcrawl.model.reasons.cluster import BAD_REQUEST
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.reasons.usage import NO_SUCH_SECRET, SECRET_NEEDS_KEYS
from zcrawl.store.commands import ChangeSecrets, SecretChange, SecretRow, SecretsChanged
from zcrawl.submit.secret_rules import (
    MOST_SECRETS,
    check_release,
    check_secret_name,
    check_secret_value,
)


class SecretActions:
    def __init__(self, state: LeaderState, requests: OpenRequests) -> None:
        self._state, self._requests = state, requests

    def set(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Seal a value and store it with what it is released to. Without a value only the release
        changes; a release that is not given stays."""
        args, book = pending.args, self._state.secrets
        name = args.text("secret")
        check_secret_name(name)
        row = book.rows.get(name)
        if row is None and len(book.rows) >= MOST_SECRETS:
            raise RefusedError(f"at most {MOST_SECRETS} secrets are stored", code=BAD_REQUEST)
        hosts, commands = (_release(pending, key) for key in ("hosts", "commands"))
        check_release(hosts or (), commands or ())
        hosts = (row.hosts if row else ()) if hosts is None else hosts
        commands = (row.commands if row else ()) if commands is None else commands
        action = idempotency.client_action(self._state, pending, now)
        if args.get("value") is None:
            if row is None:
                raise _unknown(name)
            sealed, key_id = row.sealed, row.key_id
        else:
            if not book.private:
                raise RefusedError(
                    "a secret is sent over an encrypted or private connection only; give the "
                    "cluster keys (`zcrawl keys`)",
                    code=SECRET_NEEDS_KEYS,
                )
            check_secret_value(args.text("value"))
            sealed, key_id = book.seal(name, args.text("value"), pending.request.id)
        new = SecretRow(name, sealed, key_id, hosts, commands, action.at, action.by)
        reply = {"secret": name, "key": key_id, "hosts": hosts, "commands": commands}
        before = "" if args.get("value") is not None or row is None else row.sealed
        self._store((SecretChange(new, before),), (), reply, pending, now, effects)

    def delete(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        name = pending.args.text("secret")
        if name not in self._state.secrets.rows:
            raise _unknown(name)
        self._store((), (name,), {"secret": name}, pending, now, effects)

    def rotate(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        """Seal all secrets with the newest key. One that is changed meanwhile stays as it is then:
        it is sealed with that key already."""
        book, changes = self._state.secrets, []
        for row in book.rows.values():
            sealed, key_id = book.seal(row.name, book.open(row), pending.request.id)
            if key_id != row.key_id:
                new = msgspec.structs.replace(row, sealed=sealed, key_id=key_id)
                changes.append(SecretChange(new, row.sealed))
        reply = {"rotated": [change.row.name for change in changes]}
        self._store(tuple(changes), (), reply, pending, now, effects)

    def list(self, pending: Pending, now: float, effects: MasterEffects) -> None:
        book = self._state.secrets
        rows = [
            {
                "secret": row.name,
                "key": row.key_id,
                "hosts": row.hosts,
                "commands": row.commands,
                "updated_at": row.updated_at,
                "updated_by": row.updated_by,
                "problem": book.problem((row.name,)),
            }
            for row in book.rows.values()
        ]
        self._requests.reply(pending, {"secrets": rows}, effects)

    def changed(self, pending: Pending, done: SecretsChanged, effects: MasterEffects) -> None:
        """A change is stored: runs that name these secrets go on by it."""
        self._state.change_secrets(done.secrets, effects)
        self._requests.reply(pending, msgspec.json.decode(done.reply), effects)

    def _store(
        self,
        put: tuple[SecretChange, ...],
        drop: tuple[str, ...],
        reply: dict[str, Any],
        pending: Pending,
        now: float,
        effects: MasterEffects,
    ) -> None:
        action = idempotency.client_action(self._state, pending, now)
        data = msgspec.json.encode(reply)
        effects.append(Execute(ChangeSecrets(self._state.epoch, put, drop, data, action)))


def _release(pending: Pending, key: str) -> tuple[str, ...] | None:
    if pending.args.get(key) is None:
        return None
    entries = pending.args.sequence(key)
    if not all(isinstance(entry, str) for entry in entries):
        raise RefusedError(f"secret_set: {key} must be texts", code=BAD_REQUEST)
    return tuple(entries)


def _unknown(name: str) -> RefusedError:
    check_secret_name(name)
    return RefusedError(
        f"no secret {name!r} is stored; `zcrawl secret list` shows the names",
        code=with_detail(NO_SUCH_SECRET, name),
    )
