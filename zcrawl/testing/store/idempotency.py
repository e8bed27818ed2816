"""Answers to clients in the fake store's tables: the twin of `sql.idempotency`.

Only `store` and its parts call it, after the epoch check.
"""

from __future__ import annotations

import msgspec

from zcrawl.store.commands import ClientAction, Forget, Forgotten
from zcrawl.store.queries import ActionRow
from zcrawl.store.rules import MOST_ACTIONS, SEEDING, run_reply
from zcrawl.testing.store.tables import FakeAnswer, FakeRun, Tables


def stored_reply(tables: Tables, request: str) -> bytes | None:
    known = tables.answers.get(request)
    if known is None:
        return None
    if known.reply is None:
        return msgspec.json.encode({"job": known.job, "run": known.run})
    return known.reply


def latest_actions(tables: Tables, run: int) -> list[ActionRow]:
    of_run = [one.asked for one in tables.answers.values() if one.run == run]
    of_run.sort(key=lambda asked: -asked.at)
    rows = [ActionRow(one.at, one.what, one.by, one.via) for one in of_run if one.what != SEEDING]
    return rows[:MOST_ACTIONS]


def given_before(tables: Tables, asked: ClientAction | None) -> bytes:
    return b"" if asked is None else stored_reply(tables, asked.request) or b""


def keep_run_reply(
    tables: Tables, asked: ClientAction | None, run: FakeRun, changed: int | None = None
) -> None:
    if asked is not None:
        changed = asked.changed if changed is None else changed
        reply = msgspec.json.encode(run_reply(run.row(), changed))
        tables.answers[asked.request] = FakeAnswer(asked, run.job.id, run.id, reply)


def forget(tables: Tables, command: Forget) -> Forgotten:
    for stream in command.streams:
        if stream in tables.moved and tables.moved[stream] < command.before:
            del tables.moved[stream], tables.watermarks[stream]
    answers = tables.answers.items()
    old = [id for id, one in answers if one.asked.at < command.answers_before][: command.limit]
    for id in old:
        del tables.answers[id]
    return Forgotten(more=len(old) == command.limit)
