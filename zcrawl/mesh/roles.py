"""The table of which message may arrive on which socket, from which sender. Pure.

Every socket of the mesh is a channel with a purpose, and every sender has roles. With keys, the
roles are in the masters' list (`security`). Without keys, every sender has all roles, and only the
channel decides what may arrive. Only masters send messages of masters:
BEAT, SNAPSHOT and VITALS arrive on the lines that masters, workers and consoles opened to a master
themselves, and never on a socket that others connect to.

`border` applies this table to the masters' two open sockets, `sockets.readers` to all others. A
kind without a row would be refused everywhere; a test requires a row for each kind.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from zcrawl.mesh.codec import MAX_FRAME_BYTES
from zcrawl.mesh.messages import MessageKind


class KeyRole(enum.StrEnum):
    """What a key may be used for."""

    WORKER = "worker"  # fetches under its own names, and requests the list of masters
    VIEWER = "viewer"  # looks, and changes nothing
    SUBMITTER = "submitter"  # looks, submits, and steers the jobs that it owns
    OPERATOR = "operator"  # looks, submits and steers all jobs and nodes
    ADMIN = "admin"  # also users, tokens, secrets and the audit
    GATEWAY = "gateway"  # speaks for others: it has checked who they are (`PRINCIPALS`)
    MASTER = "master"  # by the pair that all masters share; no line of the list gives it


class Channel(enum.Enum):
    """A socket by what it is for, seen from the side that receives."""

    CONTROL = "control"  # a master's ROUTER, open to all
    REPORTS = "reports"  # a master's SUB, open to workers
    PEER_CONTROL = "peer control"  # a master's line to another master's control socket
    PEER_EVENTS = "peer events"  # what a master hears from the other masters
    WORKER_CONTROL = "worker control"  # a worker's line to a master
    WORKER_EVENTS = "worker events"
    CLIENT_CONTROL = "client control"  # a command's or console's line to a master
    WATCHER_EVENTS = "watcher events"  # what a console hears


_WORKER: Final = frozenset({KeyRole.WORKER})
_MASTER: Final = frozenset({KeyRole.MASTER})
ANYBODY: Final = frozenset(KeyRole)
# Roles of people and programs, each with the rights of those before it.
PRINCIPALS: Final = (KeyRole.VIEWER, KeyRole.SUBMITTER, KeyRole.OPERATOR, KeyRole.ADMIN)
_SUBMITTING: Final = frozenset((*PRINCIPALS[1:], KeyRole.GATEWAY, KeyRole.MASTER))
_TO_LEADER: Final = {Channel.CONTROL: _WORKER}
_TO_WORKER: Final = {Channel.WORKER_CONTROL: _MASTER}

ARRIVALS: Final[Mapping[MessageKind, Mapping[Channel, frozenset[KeyRole]]]] = {
    MessageKind.HELLO: _TO_LEADER,
    MessageKind.HEARTBEAT: {Channel.REPORTS: _WORKER},
    MessageKind.ACCEPT: _TO_LEADER,
    MessageKind.REJECT: _TO_LEADER,
    MessageKind.RESULT: {Channel.REPORTS: _WORKER, Channel.CONTROL: _WORKER},
    MessageKind.BYE: _TO_LEADER,
    MessageKind.LINES: {Channel.REPORTS: _WORKER, Channel.PEER_EVENTS: _MASTER},
    MessageKind.RELOADED: {**_TO_LEADER, Channel.PEER_EVENTS: _MASTER},
    MessageKind.WELCOME: _TO_WORKER,
    MessageKind.ASSIGN: _TO_WORKER,
    MessageKind.ACK: _TO_WORKER,
    MessageKind.CANCEL: _TO_WORKER,
    MessageKind.REHELLO: _TO_WORKER,
    MessageKind.STALE: {**_TO_LEADER, **_TO_WORKER},
    MessageKind.NOT_LEADER: _TO_WORKER,
    MessageKind.DRAIN: _TO_WORKER,
    MessageKind.CONFIG: _TO_WORKER,
    MessageKind.CODE: _TO_WORKER,
    MessageKind.RELOAD: {**_TO_WORKER, Channel.PEER_EVENTS: _MASTER},
    MessageKind.BEAT: {
        Channel.WORKER_EVENTS: _MASTER,
        Channel.PEER_EVENTS: _MASTER,
        Channel.WATCHER_EVENTS: _MASTER,
    },
    MessageKind.EVENT: {Channel.WATCHER_EVENTS: _MASTER},
    MessageKind.SNAPSHOT: {Channel.PEER_EVENTS: _MASTER, Channel.WATCHER_EVENTS: _MASTER},
    MessageKind.VITALS: {Channel.PEER_EVENTS: _MASTER},
    MessageKind.REQUEST: {Channel.CONTROL: ANYBODY},
    MessageKind.REPLY: {Channel.CLIENT_CONTROL: _MASTER, Channel.PEER_CONTROL: _MASTER},
}

# Messages that a worker sends under the name in `header.source`.
WORKER_KINDS: Final = frozenset(
    kind
    for kind, channels in ARRIVALS.items()
    if _WORKER in (channels.get(Channel.CONTROL), channels.get(Channel.REPORTS))
)

HEADER_MOST: Final = 1_000  # bytes; a name has at most 255
SMALL_REQUEST_MOST: Final = 64_000  # for keys that may not submit jobs
REPORT_MOST: Final = 1_000_000  # messages of a worker other than RESULT and HELLO
_LARGE: Final = frozenset({MessageKind.RESULT, MessageKind.HELLO})


def kinds_on(channel: Channel, roles: Iterable[KeyRole]) -> frozenset[MessageKind]:
    """Return what may arrive on a channel from a sender with these roles."""
    having = frozenset(roles)
    return frozenset(
        kind for kind, channels in ARRIVALS.items() if having & channels.get(channel, frozenset())
    )


def body_most(kind: MessageKind, roles: Iterable[KeyRole]) -> int:
    """Return how many bytes the body of such a message may have. Compared before it is decoded."""
    if kind is MessageKind.REQUEST:
        may_submit = not _SUBMITTING.isdisjoint(roles)
        return MAX_FRAME_BYTES if may_submit else SMALL_REQUEST_MOST
    if kind in WORKER_KINDS and kind not in _LARGE:
        return REPORT_MOST
    return MAX_FRAME_BYTES
