"""Check messages at the two open sockets of a master, before their bodies are decoded. Pure.

    frame ──sender known?──▶ kind may arrive here from its roles? ──▶ body short enough for it?
          ──▶ worker kinds: is the name its own? ──▶ requests: within its rate? ──▶ machine

Whatever fails a step is dropped, counted and logged, at most once a second for each key and event.
A client or worker that waits for an answer gets one that names the reason, a few a second.

Invariants: nothing reaches a machine that `roles.ARRIVALS` does not allow; a request that does is
marked with the name and role of the key that sent it, whatever its client wrote there, and only a
master's word for a forwarded request is taken; a removed key gets nothing but refusals; memory is
bounded by the number of listed keys.

How often a master answers subscriptions: all of them together, at most once in 100 ms. Pure.

A new subscriber gets the last BEAT at once instead of in a second. The answer goes to all
subscribers of beats, so without a limit a peer that subscribes a thousand times would cause a
thousand messages to each of the others.

    idle ──want──▶ sent now ──want within 100 ms──▶ planned (one answer for all who come) ──▶ idle
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from zcrawl.mesh.messages import ClientRequest, Header, MessageKind
from zcrawl.mesh.roles import (
    ANYBODY,
    PRINCIPALS,
    WORKER_KINDS,
    Channel,
    KeyRole,
    body_most,
    kinds_on,
)
from zcrawl.mesh.security import MASTERS, AllowedKey
from zcrawl.model.log_event import FRAME_REFUSED, FRAME_TOO_LARGE, NAME_REFUSED, REQUEST_LIMITED

ANSWER_S: Final = 0.1


class AnswerPace:
    def __init__(self, interval_s: float = ANSWER_S) -> None:
        self._interval_s = interval_s
        self._sent_at = float("-inf")
        self._planned = False

    def want(self, now: float) -> float | None:
        """Return how long to wait before the answer is sent; None if it is planned already."""
        if self._planned:
            return None
        self._planned = True
        return max(0.0, self._sent_at + self._interval_s - now)

    def sent(self, now: float) -> None:
        self._sent_at = now
        self._planned = False


OPEN_CHANNELS: Final = (Channel.CONTROL, Channel.REPORTS)
NAMES_KEPT: Final = 1_000  # of one key, whether it may use them
NAME_MOST: Final = 255  # characters of a worker's id
BUCKETS_KEPT: Final = 10_000
LOG_S: Final = 1.0  # between two lines about one key and event
TRY_AGAIN_S: Final = 0.5  # the wait that a too fast client is given


class Refusal(enum.Enum):
    """Why a frame is dropped; the value is the counter and the log event."""

    KIND = FRAME_REFUSED  # no such message from this role on this socket
    SIZE = FRAME_TOO_LARGE  # for its kind and its sender's role
    NAME = NAME_REFUSED  # a worker's message under a name that its key may not use
    RATE = REQUEST_LIMITED


class Allowance(msgspec.Struct, frozen=True):
    """A rate, and how much of it may be used in a burst."""

    per_s: float
    burst: float


# A console sends a few requests a second, `submit` sends 1,000 seeds in each request, and people
# share keys. Workers that share one key request the list of masters.
REQUESTS: Final[Mapping[KeyRole, Allowance]] = {
    KeyRole.ADMIN: Allowance(200, 1_000),
    KeyRole.OPERATOR: Allowance(200, 1_000),
    KeyRole.SUBMITTER: Allowance(100, 1_000),
    KeyRole.VIEWER: Allowance(50, 50),
    KeyRole.GATEWAY: Allowance(5_000, 20_000),  # it limits its own clients
    KeyRole.WORKER: Allowance(100, 500),
}
REFUSALS: Final = Allowance(20, 50)  # answers to what was refused, for each key
# A long answer counts as many requests: `jobs` with 1.5 MB of specs takes a leader 0.1 s, and 45 of
# them a second, within a viewer's rate, cost it its epoch.
ANSWER_BYTES: Final = 20_000
DEBT_MOST: Final = 1_000.0  # requests
ROUTES_KEPT: Final = 10_000  # the most recent ones


class Buckets:
    """Token buckets by key. A key that was not seen for long has a full one."""

    def __init__(self, most: int = BUCKETS_KEPT) -> None:
        self._most = most
        self._buckets: dict[str, tuple[float, float]] = {}  # key → tokens, at which moment

    def take(self, key: str, allowance: Allowance, now: float) -> bool:
        tokens, at = self._buckets.pop(key, (allowance.burst, now))
        tokens = min(allowance.burst, tokens + max(0.0, now - at) * allowance.per_s)
        taken = tokens >= 1.0
        self._buckets[key] = (tokens - taken, now)  # the newest last
        if len(self._buckets) > self._most:
            del self._buckets[next(iter(self._buckets))]
        return taken

    def charge(self, key: str, tokens: float, most: float) -> None:
        """Take what was used afterwards; the key may owe as much as `most`."""
        if key in self._buckets:
            left, at = self._buckets[key]
            self._buckets[key] = (max(-most, left - tokens), at)

    def __len__(self) -> int:
        return len(self._buckets)


class Sender:
    """One key: which messages it may send, and under which names."""

    def __init__(
        self,
        key: str,
        name: str,
        roles: frozenset[KeyRole],
        allowed: AllowedKey | None = None,
        others: frozenset[str] = frozenset(),
    ) -> None:
        """`allowed` is the key's line in the list. None: it may use any name. `others`: the names
        of all worker keys; `node-1` is not a number of `node` if it is the name of another key."""
        self._others = others
        self.key, self.name, self.roles, self.allowed = key, name, roles, allowed
        self.most: dict[Channel, dict[int, int]] = {
            channel: {kind: body_most(kind, roles) for kind in kinds_on(channel, roles)}
            for channel in OPEN_CHANNELS
        }
        self._names: dict[str, bool] = {}

    @property
    def request_role(self) -> KeyRole:
        """The highest of its roles."""
        ranked = (*reversed(PRINCIPALS), KeyRole.GATEWAY, KeyRole.WORKER)
        return next((role for role in ranked if role in self.roles), KeyRole.VIEWER)

    def owns(self, worker: str) -> bool:
        """Return whether it may send messages of this worker. Cached, because every result needs
        it."""
        if self.allowed is None:
            return True
        owned = self._names.get(worker)
        if owned is None:
            owned = len(worker) <= NAME_MOST and self.allowed.may_be(worker)
            if owned and not self.allowed.patterns and worker != self.name:
                owned = worker not in self._others
            if len(self._names) >= NAMES_KEPT:
                self._names.clear()
            self._names[worker] = owned
        return owned

    def text(self) -> str:
        """Describe it for people: `worker w1`, `viewer ann`, `worker,operator bob`."""
        if not self.roles:
            return f"a key that is no longer in the list ({self.key})"
        if self.roles is ANYBODY:
            return "a peer without keys"
        return f"{','.join(sorted(self.roles))} {self.name}"


LOCAL: Final = Sender("", "", ANYBODY)  # without keys: the embedded form, a cluster on loopback


class Border:
    """The senders by their keys, and the limits of each."""

    def __init__(self, server: str = "") -> None:
        """`server` is the masters' public key; empty: no keys, and every sender is LOCAL."""
        self._server = server
        self._senders: dict[str, Sender] = {}
        self._requests, self._refusals = Buckets(), Buckets()
        self._logged: dict[tuple[str, Refusal], float] = {}
        self._askers: dict[bytes, str] = {}  # route → key whose answers are counted
        self._workers: dict[bytes, str] = {}  # route → key of a worker that said HELLO
        self.allow({})

    def allow(self, allowed: Mapping[str, AllowedKey]) -> None:
        """Use these keys from the next message on, also for connected peers."""
        workers = frozenset(
            allowed_key.name
            for allowed_key in allowed.values()
            if KeyRole.WORKER in allowed_key.roles
        )
        self._senders = {
            key: Sender(key, allowed_key.name, allowed_key.roles, allowed_key, workers)
            for key, allowed_key in allowed.items()
        }
        if self._server:
            masters = Sender(self._server, MASTERS, frozenset({KeyRole.MASTER}))
            self._senders[self._server] = masters

    def sender(self, key: str) -> Sender:
        """Return the sender of a key; a removed key may send nothing."""
        sender = self._senders.get(key)
        if sender is None:  # cached as well: only keys that were listed once connect
            sender = self._senders[key] = Sender(key, "", frozenset())
        return sender

    # ------------------------------------------------------------ decisions

    def refusal(
        self, sender: Sender, channel: Channel, header: Header, length: int
    ) -> Refusal | None:
        """Return why this message is refused, None if it is not. Called for every message."""
        most = sender.most[channel].get(header.kind)
        if most is None:
            return Refusal.KIND
        if length > most:
            return Refusal.SIZE
        if header.kind in WORKER_KINDS and not sender.owns(header.source):
            return Refusal.NAME
        return None

    def may_ask(self, sender: Sender, now: float) -> bool:
        """Count a request. Masters forward what another border has counted."""
        if sender is LOCAL or KeyRole.MASTER in sender.roles:
            return True
        return self._requests.take(sender.key, REQUESTS[sender.request_role], now)

    def expect_answer(self, sender: Sender, route: bytes) -> None:
        """Remember the route of an accepted request, to count its answer."""
        if sender is LOCAL or KeyRole.MASTER in sender.roles:
            return
        self._askers.pop(route, None)
        self._askers[route] = sender.key  # the newest last
        if len(self._askers) > ROUTES_KEPT:
            del self._askers[next(iter(self._askers))]

    def note_worker(self, sender: Sender, route: bytes) -> None:
        """Remember the route of a worker, to end what it gets when its key is removed."""
        if sender is LOCAL:
            return
        self._workers.pop(route, None)
        self._workers[route] = sender.key  # the newest last
        if len(self._workers) > ROUTES_KEPT:
            del self._workers[next(iter(self._workers))]

    def is_cut_off(self, route: bytes) -> bool:
        """Return whether the key of this route was removed: it gets nothing more."""
        key = self._workers.get(route) or self._askers.get(route)
        return key is not None and not self.sender(key).roles

    def answered(self, route: bytes, size: int) -> None:
        """Count an answer: more bytes than a short answer count as extra requests."""
        key = self._askers.get(route)
        if key is not None and size > ANSWER_BYTES:
            self._requests.charge(key, size / ANSWER_BYTES, DEBT_MOST)

    def may_answer(self, sender: Sender, now: float) -> bool:
        """Whether a refused message still gets an answer."""
        return self._refusals.take(sender.key, REFUSALS, now)

    def may_log(self, sender: Sender, refusal: Refusal, now: float) -> bool:
        what = (sender.key, refusal)
        if now - self._logged.get(what, float("-inf")) < LOG_S:
            return False
        if len(self._logged) >= BUCKETS_KEPT:
            self._logged.clear()
        self._logged[what] = now
        return True


def mark(request: ClientRequest, sender: Sender) -> ClientRequest:
    """Put the key's name and role on a request, in place of what its client wrote there.

    A request that a master forwarded keeps what the first master wrote. A gateway names the user
    that it speaks for. Without keys, only the name that the client sent is known.
    """
    if sender is LOCAL or (KeyRole.MASTER in sender.roles and request.forwarded):
        return request
    if KeyRole.GATEWAY in sender.roles and request.role in PRINCIPALS and request.by:
        return msgspec.structs.replace(request, forwarded=False, via="", key=sender.name)
    role = KeyRole.ADMIN if KeyRole.MASTER in sender.roles else sender.request_role
    return msgspec.structs.replace(
        request,
        forwarded=False,
        by=sender.name,
        via="",
        role=role,
        key=sender.name,
        rights=[],
        through=f"key {sender.name}",
        address="",
    )


# ---------------------------------------------------------------- texts


def describe(refusal: Refusal, sender: Sender, channel: Channel, header: Header, size: int) -> str:
    """Describe a refusal for the master's log: sender, message, and what to do."""
    kind = MessageKind(header.kind).name
    who = sender.text()
    if refusal is Refusal.NAME:
        return worker_advice(sender, header.source)
    if refusal is Refusal.SIZE:
        return f"{who}: {kind} of {size} bytes; at most {sender.most[channel][header.kind]}"
    if refusal is Refusal.RATE:
        return f"{who} sends requests too fast"
    return f"{who}: {kind} on the {channel.value} socket"


def worker_advice(sender: Sender, worker: str) -> str:
    """Describe for a refused worker why, and how to allow it."""
    shown = repr(worker[:100])
    if sender.allowed is None:
        return f"the worker {shown} is refused: its key is no longer in the masters' list"
    if KeyRole.WORKER not in sender.roles:
        return (
            f"the worker {shown} is refused: its key {sender.name} is not one of a worker; give it "
            "a line with the role worker in the masters' list"
        )
    return (
        f"the worker {shown} is refused: its key {sender.name} may be used by "
        f"{sender.allowed.names_text()}; start the worker with --id {sender.name}, or put "
        f"names=PATTERN on the key's line in the masters' list"
    )
