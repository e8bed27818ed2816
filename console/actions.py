"""What an operator can do from the console: to what, by which key, and the command line that does
the same. Pure: `app` asks the questions and sends the requests.

Who may only look, by `--readonly` or by the role of the key, is offered none of it; the line
refuses to send it and the masters refuse to do it, by one list: `zcrawl.master.desk.rights`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from console.columns_work import ENDED
from console.state import ConsolePage, View
from console.tables import Row, number, text

RUN_PAGES: Final = (ConsolePage.JOBS, ConsolePage.QUEUES, ConsolePage.JOB)


class ActionRequest(NamedTuple):
    """One thing to be done: what is sent, and the command line that does the same."""

    op: str
    args: dict[str, Any]
    command: str


Gather: TypeAlias = Callable[[View], tuple[str, dict[str, Any]]]


class Action(NamedTuple):
    name: str
    key: str
    label: str
    pages: tuple[ConsolePage, ...]
    request: Callable[[Row, str], ActionRequest]
    fits: Callable[[Row], bool] = lambda row: True
    confirm: bool = False  # it cannot be undone
    ask: str = ""  # what has to be typed first
    gather: Gather | None = None  # what to ask for all rows that it is about, instead of the chosen


def _act(action: str) -> Callable[[Row, str], ActionRequest]:
    def request(row: Row, typed: str) -> ActionRequest:
        ref, run = text(row, "job"), _run_of(row)
        args = {"ref": ref, "action": action} | run
        return ActionRequest("act", args, f"zcrawl {action} {_q(ref)}{_flag(run)}")

    return request


def _run_of(row: Row) -> dict[str, int]:
    """The run that a row is about: a job's newest run may be another one."""
    run = int(number(row, "run"))
    return {"run": run} if run else {}


def _flag(run: dict[str, int]) -> str:
    return f" --run {run['run']}" if run else ""


def _retry_group(row: Row, typed: str) -> ActionRequest:
    ref, reason, host = text(row, "job"), text(row, "reason"), int(number(row, "host_id"))
    run = _run_of(row)
    args = {"ref": ref, "action": "retry", "reason": reason, "host": host} | run
    command = f"zcrawl retry {_q(ref)} --reason {_q(reason)} --host {host}{_flag(run)}"
    return ActionRequest("act", args, command)


def _all_errors(view: View) -> tuple[str, dict[str, Any]]:
    state = view.table
    filter_args = {"filter": state.filter, "inverse": state.inverse} if state.filter else {}
    return "errors", {"sort": "count", "desc": True, **filter_args}


def _set_drain(op: str) -> Callable[[Row, str], ActionRequest]:
    def request(row: Row, typed: str) -> ActionRequest:
        node = text(row, "id")
        return ActionRequest(op, {"node": node}, f"zcrawl {op} {_q(node)}")

    return request


def _tune(row: Row, typed: str) -> ActionRequest:
    ref = text(row, "job")
    pace = read_pace(typed)
    flags = " ".join(f"--{name} {value:.15g}" for name, value in pace.items())
    run = _run_of(row)
    return ActionRequest(
        "tune", {"ref": ref, **run, **pace}, f"zcrawl tune {_q(ref)} {flags}{_flag(run)}"
    )


def _reassign(row: Row, typed: str) -> ActionRequest:
    host, node = text(row, "host"), typed.strip()
    command = f"zcrawl reassign {_q(host)} {_q(node)}"
    return ActionRequest("reassign", {"host": host, "node": node}, command)


def _step_down(row: Row, typed: str) -> ActionRequest:
    return ActionRequest("step_down", {"epoch": row["epoch"]}, "zcrawl step-down")


def read_pace(typed: str) -> dict[str, float]:
    """`rate=5 concurrency=2`, or `5 2`: rate, then concurrency. ValueError for anything else."""
    names = ("rate", "concurrency", "burst")
    pace: dict[str, float] = {}
    for n, part in enumerate(typed.replace(",", " ").split()):
        name, separator, value = part.rpartition("=")
        name = name if separator else names[min(n, 2)]
        if name not in names:
            raise ValueError(f"{name!r} is none of {', '.join(names)}")
        try:
            pace[name] = float(value) if name == "rate" else int(value)
        except ValueError:
            raise ValueError(f"{name}: {value!r} is no number") from None
    if not pace:
        raise ValueError("nothing was given")
    return pace


def _goes_on(row: Row) -> bool:
    return text(row, "state") not in ENDED


def _is_worker(row: Row) -> bool:
    return text(row, "kind") == "worker" or "slots" in row


ACTIONS: Final = (
    Action("pause", "h", "hold", RUN_PAGES, _act("pause"), _goes_on),
    Action("resume", "g", "go on", RUN_PAGES, _act("resume"), _goes_on),
    Action("cancel", "x", "cancel", RUN_PAGES, _act("cancel"), _goes_on, confirm=True),
    Action("retry", "r", "retry failed", RUN_PAGES, _act("retry")),
    Action("delete", "d", "delete with all it has", RUN_PAGES, _act("delete"), confirm=True),
    Action(
        "tune",
        "t",
        "change pace",
        RUN_PAGES,
        _tune,
        _goes_on,
        ask="rate and concurrency per host, e.g. rate=5 concurrency=2",
    ),
    Action(
        "drain",
        "d",
        "drain",
        (ConsolePage.NODES, ConsolePage.NODE),
        _set_drain("drain"),
        _is_worker,
        True,
    ),
    Action(
        "undrain",
        "u",
        "undrain",
        (ConsolePage.NODES, ConsolePage.NODE),
        _set_drain("undrain"),
        _is_worker,
    ),
    Action(
        "step_down",
        "l",
        "step the leader down",
        (ConsolePage.NODES, ConsolePage.OVERVIEW),
        _step_down,
        confirm=True,
    ),
    Action(
        "reassign",
        "m",
        "move to a worker",
        (ConsolePage.HOSTS, ConsolePage.HOST, ConsolePage.LANES),
        _reassign,
        ask="the worker that shall have it",
    ),
    Action("retry_group", "r", "retry", (ConsolePage.ERRORS,), _retry_group),
    Action(
        "retry_all",
        "a",
        "retry all that match",
        (ConsolePage.ERRORS,),
        _retry_group,
        confirm=True,
        gather=_all_errors,
    ),
)
BY_NAME: Final = {action.name: action for action in ACTIONS}


def offered(view: View) -> list[Action]:
    """What may be done here. What may not be done is not offered."""
    if not view.may_act:
        return []
    here = [action for action in ACTIONS if view.page in action.pages]
    if view.page is not ConsolePage.NODE:
        return here
    return [action for action in here if action.fits(view.place.about)]  # it may be a master


def key_of(view: View, action: Action) -> str:
    """The key that does it here: the user may have changed it."""
    return view.keys.get(f"act.{action.key}", action.key)


def by_key(view: View, key: str) -> Action | None:
    return next((action for action in offered(view) if action.key == key), None)


def plan(action: Action, rows: list[Row], typed: str = "", epoch: int = 0) -> list[ActionRequest]:
    """One request for each row that it fits; each only once. ValueError tells what was mistyped.
    `epoch` is the one that is seen to lead."""
    if action.name == "step_down":
        rows = [{"epoch": epoch}]
    requests = [action.request(row, typed) for row in rows if action.fits(row)]
    return list({request.command: request for request in requests}.values())


def result_text(request: ActionRequest, reply: dict[str, Any]) -> str:
    """A reply in a few words."""
    if request.op in ("act", "tune"):
        changed = reply.get("changed", 0)
        more = f", {changed} tried again" if request.args.get("action") == "retry" else ""
        same = "" if changed or more else ", as it was before"
        return f"run {reply.get('run')}: {reply.get('state')}{more}{same}"
    return ", ".join(f"{key} {value}" for key, value in reply.items())


def _q(value: str) -> str:
    return shlex.quote(value)
