"""What an operator can do from the console: to what, by which key, and the command line that does
the same. Pure: `acting` asks before anything is changed, and sends the requests.

Who may only look, by `--readonly` or by the role of the key, is offered none of it; the feed
refuses to send it and the masters refuse to do it, by one list: `zcrawl.master.desk.rights`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from console.columns.work import ENDED
from console.state import ConsolePage, View
from console.tables import Row, text
from console.targets import (
    Target,
    deletion_target,
    group_target,
    host_target,
    leader_target,
    queued_text,
    run_target,
    without_covered,
    worker_target,
)
from zcrawl.master.desk.rights import may_ask

RUN_PAGES: Final = (ConsolePage.JOBS, ConsolePage.QUEUES, ConsolePage.JOB)


class ActionRequest(NamedTuple):
    """One thing to be done: what is sent, and the command line that does the same."""

    op: str
    args: dict[str, Any]
    command: str


class PlannedChange(NamedTuple):
    """A request, and what the dialog says about it."""

    label: str
    target: Target
    request: ActionRequest
    losses: str  # what cannot be had back


Gather: TypeAlias = Callable[[View], tuple[str, dict[str, Any]]]
Values: TypeAlias = dict[str, str]  # of a form: field → what was typed


class ActionField(NamedTuple):
    """One field of a form."""

    name: str
    label: str
    kind: str  # rate, count, worker
    hint: str = ""


class Action(NamedTuple):
    """Something that can be done. It is always asked about before it is done."""

    name: str
    key: str
    label: str
    about: str  # a sentence: what it does
    pages: tuple[ConsolePage, ...]
    target: Callable[[Row], Target]
    request: Callable[[Target, Values], ActionRequest]
    fits: Callable[[Row], bool] = lambda row: True
    destructive: bool = False  # it cannot be undone: the default answer is no
    loses: Callable[[Row, Target], str] = lambda row, target: ""  # what cannot be had back
    run_label: str = ""  # the label where it is about a run, if that differs
    form: tuple[ActionField, ...] = ()  # what has to be filled in first
    short: str = ""  # the label in the footer, where there is little room
    gather: Gather | None = None  # what to ask for all rows that it is about, instead of the chosen


def _act(action: str) -> Callable[[Target, Values], ActionRequest]:
    def request(target: Target, values: Values) -> ActionRequest:
        args = {"action": action, **target.args}
        return ActionRequest("act", args, f"zcrawl {action} {target.words}")

    return request


def _delete(target: Target, values: Values) -> ActionRequest:
    """Of a whole job: with the runs that the dialog is about, so that the leader refuses others."""
    request = _act("delete")(target, values)
    runs = sorted(target.all_runs)
    return request._replace(args={**request.args, "runs": runs}) if runs else request


def _all_errors(view: View) -> tuple[str, dict[str, Any]]:
    state = view.table
    filter_args = {"filter": state.filter, "inverse": state.inverse} if state.filter else {}
    return "errors", {"sort": "count", "desc": True, **filter_args}


def _set_drain(op: str) -> Callable[[Target, Values], ActionRequest]:
    def request(target: Target, values: Values) -> ActionRequest:
        return ActionRequest(op, dict(target.args), f"zcrawl {op} {target.words}")

    return request


def _tune(target: Target, values: Values) -> ActionRequest:
    limits = read_limits(values)
    flags = " ".join(f"--{name} {value:.15g}" for name, value in limits.items())
    return ActionRequest("tune", {**target.args, **limits}, f"zcrawl tune {target.words} {flags}")


def _reassign(target: Target, values: Values) -> ActionRequest:
    node = values.get("worker", "").strip()
    if not node:
        raise ValueError("choose the target worker")
    command = f"zcrawl reassign {target.words} {shlex.quote(node)}"
    return ActionRequest("reassign", {**target.args, "node": node}, command)


def _step_down(target: Target, values: Values) -> ActionRequest:
    return ActionRequest("step_down", dict(target.args), "zcrawl step-down")


LIMITS: Final = ("rate", "concurrency", "burst")


def read_limits(values: Values) -> dict[str, float]:
    """The rate limit that was filled in. ValueError for what is not a number, or nothing."""
    limits: dict[str, float] = {}
    for name in LIMITS:
        typed = values.get(name, "").strip()
        if not typed:
            continue
        try:
            limits[name] = float(typed) if name == "rate" else int(typed)
        except ValueError:
            raise ValueError(f"{name}: not a number: {typed!r}") from None
    if not limits:
        raise ValueError("give a rate, a concurrency or a burst")
    return limits


def typed_values(action: Action, typed: str) -> Values:
    """Read `rate=5 concurrency=2`, or `5 2`, as the fields of a form in their order.

    ValueError for a name that the form does not have."""
    names = [field.name for field in action.form]
    values: Values = {}
    for n, part in enumerate(typed.replace(",", " ").split()):
        name, separator, value = part.rpartition("=")
        name = name if separator else names[min(n, len(names) - 1)]
        if name not in names:
            raise ValueError(f"{name!r} is none of {', '.join(names)}")
        values[name] = value
    return values


def _goes_on(row: Row) -> bool:
    return text(row, "state") not in ENDED


def _is_worker(row: Row) -> bool:
    return text(row, "kind") == "worker" or "slots" in row


NODE_PAGES: Final = (ConsolePage.NODES, ConsolePage.NODE)
ACTIONS: Final = (
    Action(
        "pause",
        "h",
        "pause",
        "Stop fetching; resume continues.",
        RUN_PAGES,
        run_target,
        _act("pause"),
        _goes_on,
    ),
    Action(
        "resume",
        "g",
        "resume",
        "Continue a paused run.",
        RUN_PAGES,
        run_target,
        _act("resume"),
        _goes_on,
    ),
    Action(
        "cancel",
        "x",
        "cancel",
        "End the run now. What is queued is dropped.",
        RUN_PAGES,
        run_target,
        _act("cancel"),
        _goes_on,
        destructive=True,
        loses=lambda row, target: queued_text(row),
    ),
    Action(
        "retry",
        "r",
        "retry failed",
        "Fetch the failed URLs of the run again.",
        RUN_PAGES,
        run_target,
        _act("retry"),
        short="retry",
    ),
    Action(
        "delete",
        "d",
        "delete job and data",
        "Delete it with its pages and items. Output files stay.",
        RUN_PAGES,
        deletion_target,
        _delete,
        destructive=True,
        loses=lambda row, target: target.data,
        run_label="delete run and data",
        short="delete",
    ),
    Action(
        "tune",
        "t",
        "change rate limit",
        "Change rate, concurrency and burst per host.",
        RUN_PAGES,
        run_target,
        _tune,
        _goes_on,
        form=(
            ActionField("rate", "Requests per second and host", "rate", "0: no limit"),
            ActionField("concurrency", "Concurrency per host", "count"),
            ActionField("burst", "Burst", "count"),
        ),
        short="rate limit",
    ),
    Action(
        "drain",
        "d",
        "drain",
        "Give the worker no new URLs. It ends what it has and waits.",
        NODE_PAGES,
        worker_target,
        _set_drain("drain"),
        _is_worker,
        destructive=True,
    ),
    Action(
        "undrain",
        "u",
        "undrain",
        "Give a drained worker URLs again.",
        NODE_PAGES,
        worker_target,
        _set_drain("undrain"),
        _is_worker,
    ),
    Action(
        "step_down",
        "l",
        "force failover",
        "The leader steps down, and another master takes over.",
        (ConsolePage.NODES, ConsolePage.OVERVIEW),
        leader_target,
        _step_down,
        destructive=True,
        loses=lambda row, target: "nothing is fetched until another master leads, a few seconds",
        short="failover",
    ),
    Action(
        "reassign",
        "m",
        "move to a worker",
        "Let another worker fetch this host.",
        (ConsolePage.HOSTS, ConsolePage.HOST, ConsolePage.LANES),
        host_target,
        _reassign,
        form=(ActionField("worker", "Target worker", "worker"),),
        short="move",
    ),
    Action(
        "retry_group",
        "r",
        "retry",
        "Fetch the failed URLs of the group again.",
        (ConsolePage.ERRORS,),
        group_target,
        _act("retry"),
    ),
    Action(
        "retry_all",
        "a",
        "retry all that match",
        "Fetch all failed URLs that match the filter again.",
        (ConsolePage.ERRORS,),
        group_target,
        _act("retry"),
        destructive=True,
        gather=_all_errors,
        short="retry all",
    ),
)
BY_NAME: Final = {action.name: action for action in ACTIONS}


_OPS: Final = frozenset(("tune", "drain", "undrain", "step_down", "reassign"))


def may_do(view: View, action: Action) -> bool:
    """Whether the role of this console may do it. Which jobs are a submitter's own, the masters
    know."""
    return view.may_act and may_ask(view.role, action.name if action.name in _OPS else "act")


def may_begin(view: View, action: Action) -> bool:
    """Whether the action is offered on the pages that have it: a master cannot be drained."""
    about = view.place.about if view.page is ConsolePage.NODE else None
    return may_do(view, action) and (about is None or action.fits(about))


def offered(view: View) -> list[Action]:
    """What may be done here. What may not be done is not offered."""
    return [action for action in ACTIONS if view.page in action.pages and may_begin(view, action)]


def key_of(view: View, action: Action) -> str:
    """The key that does it here: the user may have changed it."""
    return view.keys.get(f"act.{action.name}", action.key)


def changes(action: Action, rows: list[Row], values: Values | None = None) -> list[PlannedChange]:
    """Return one change for each target of the rows that it fits, each only once. ValueError tells
    what was mistyped."""
    losses = {}
    targets = []
    for row in rows:
        if action.fits(row):
            target = action.target(row)
            targets.append(target)
            losses[target.words] = action.loses(row, target)
    return [
        PlannedChange(
            action.label if target.is_job or not action.run_label else action.run_label,
            target,
            action.request(target, values or {}),
            losses[target.words],
        )
        for target in without_covered(targets)
    ]


def plan(action: Action, rows: list[Row], values: Values | None = None) -> list[ActionRequest]:
    """Return the requests of `changes`."""
    return [change.request for change in changes(action, rows, values)]


def result_text(request: ActionRequest, reply: dict[str, Any]) -> str:
    """A reply in a few words."""
    if request.op in ("act", "tune"):
        changed = reply.get("changed", 0)
        retries = request.args.get("action") == "retry"
        more = (f", {changed} to retry" if changed else ", nothing to retry") if retries else ""
        same = "" if changed or more else ", no change"
        return f"run {reply.get('run')}: {reply.get('state')}{more}{same}"
    return ", ".join(f"{key} {value}" for key, value in reply.items())
