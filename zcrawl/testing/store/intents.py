"""Drains, wishes and retries in the fake store's tables: the twin of `sql.intents`.

Only `store` and its parts call it, after the epoch check.
"""

from __future__ import annotations

import msgspec

from zcrawl.store.commands import (
    DrainRow,
    DrainSet,
    RetryDead,
    RetryRow,
    SetDrain,
    SetWish,
    WishRow,
    WishSet,
)
from zcrawl.store.rules import drain_reply
from zcrawl.testing.store import idempotency as once
from zcrawl.testing.store.people import keep_audit
from zcrawl.testing.store.tables import Tables


def set_drain(tables: Tables, command: SetDrain) -> DrainSet:
    worker, action, stored = (
        command.worker,
        command.client_action,
        tables.drains.get(command.worker),
    )
    if action is None:
        meets = stored is not None and command.life != stored.life
        if stored is not None and meets and command.on and stored.life == 0:
            tables.drains[worker] = DrainRow(worker, command.life)
        elif stored is not None and meets and not command.on and stored.life != 0:
            del tables.drains[worker]
        return DrainSet(worker, tables.drains.get(worker))
    reply = once.stored_reply(tables, action.request)
    if reply is None:
        if command.on:
            tables.drains[worker] = DrainRow(worker, command.life)
        else:
            tables.drains.pop(worker, None)
        reply = drain_reply(command, command.on != (stored is not None))
        once.keep(tables, action, 0, 0, reply)
    return DrainSet(worker, tables.drains.get(worker), reply)


def set_wish(tables: Tables, command: SetWish) -> WishSet:
    reply = once.stored_reply(tables, command.client_action.request)
    if reply is None:
        reply = command.reply
        for host in (command.host, *command.others):
            tables.wishes.pop(host, None)
        tables.wishes[command.host] = command.worker
        once.keep(tables, command.client_action, 0, 0, reply)
    return WishSet(wishes(tables), reply)


def wishes(tables: Tables) -> list[WishRow]:
    return [WishRow(host, worker) for host, worker in sorted(tables.wishes.items())]


def keep_retry(tables: Tables, command: RetryDead, after: int, changed: int) -> None:
    if command.client_action.request not in tables.retries:
        keep_audit(tables, command.client_action, 0, command.run)
    action = msgspec.structs.replace(command.client_action, changed=changed, audit=None)
    row = RetryRow(action, command.run, command.reason, command.host, after)
    tables.retries[action.request] = row
