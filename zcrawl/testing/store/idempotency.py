"""Answers to clients in the fake store's tables: the twin of `sql.idempotency`.

Only `store` and its parts call it, after the epoch check.
"""

from __future__ import annotations

import msgspec

from zcrawl.model.states import JobState
from zcrawl.store.commands import ClientAction, Forget, Forgotten
from zcrawl.store.queries import ActionRow
from zcrawl.store.rules import MOST_ACTIONS, SEEDING, run_reply
from zcrawl.testing.store.known import forget as forget_pages
from zcrawl.testing.store.people import keep_audit
from zcrawl.testing.store.tables import FakeAnswer, FakeRun, Tables


def stored_reply(tables: Tables, request: str) -> bytes | None:
    answer = tables.answers.get(request)
    if answer is None:
        return None
    if answer.reply is None:
        return msgspec.json.encode({"job": answer.job, "run": answer.run})
    return answer.reply


def latest_actions(tables: Tables, run: int) -> list[ActionRow]:
    of_run = [answer.client_action for answer in tables.answers.values() if answer.run == run]
    of_run.sort(key=lambda action: -action.at)
    rows = [
        ActionRow(action.at, action.what, action.by, action.via)
        for action in of_run
        if action.what != SEEDING
    ]
    return rows[:MOST_ACTIONS]


def given_before(tables: Tables, action: ClientAction | None) -> bytes:
    return b"" if action is None else stored_reply(tables, action.request) or b""


def keep_run_reply(
    tables: Tables, action: ClientAction | None, run: FakeRun, changed: int | None = None
) -> None:
    if action is not None:
        changed = action.changed if changed is None else changed
        keep(tables, action, run.job.id, run.id, msgspec.json.encode(run_reply(run.row(), changed)))


def keep(tables: Tables, action: ClientAction, job: int, run: int, reply: bytes | None) -> None:
    keep_audit(tables, action, job, run)
    tables.answers[action.request] = FakeAnswer(action, job, run, reply)


def forget(tables: Tables, command: Forget) -> Forgotten:
    for stream in command.streams:
        if stream in tables.moved and tables.moved[stream] < command.before:
            del tables.moved[stream], tables.watermarks[stream]
    answers = tables.answers.items()
    old = [id for id, answer in answers if answer.client_action.at < command.answers_before][
        : command.limit
    ]
    for id in old:
        del tables.answers[id]
    return Forgotten(more=len(old) == command.limit or _remove_deleted_jobs(tables, command.limit))


def _remove_deleted_jobs(tables: Tables, limit: int) -> bool:
    """Remove deleted jobs that have no run, after their known pages."""
    with_runs = {run.job.id for run in tables.runs.values()}
    for job in list(tables.jobs.values()):
        if job.state is JobState.DELETED and job.id not in with_runs:
            limit -= forget_pages(tables, job.id, limit)
            if limit == 0:
                return True
            del tables.jobs[job.id]
    return False
