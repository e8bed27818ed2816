"""Which message may arrive where, and from whom: the one table of it. Pure.

Every socket of the mesh is a channel with a purpose, and every sender has roles. With keys, the
roles stand in the masters' list (`security`). Without keys the sender is unknown and counts as
having all of them; then the channel alone says what may arrive. Only masters speak for masters:
BEAT, SNAPSHOT and VITALS arrive on the lines that masters, workers and consoles opened to a master
themselves, and never on a socket that others connect to.

`border` holds the masters' two open sockets to this table; `sockets.readers` all others. A kind
without a row would be refused everywhere; the tests want a row for each.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from zcrawl.mesh.codec import MAX_FRAME_BYTES
from zcrawl.mesh.messages import Kind


class Role(enum.StrEnum):
    """What a key may be used for."""

    WORKER = "worker"  # fetches: speaks under its own names, and asks where the masters are
    VIEWER = "viewer"  # looks, and changes nothing
    OPERATOR = "operator"  # looks, submits and steers
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


_WORKER: Final = frozenset({Role.WORKER})
_MASTER: Final = frozenset({Role.MASTER})
ANYBODY: Final = frozenset(Role)
_TO_LEADER: Final = {Channel.CONTROL: _WORKER}
_TO_WORKER: Final = {Channel.WORKER_CONTROL: _MASTER}

ARRIVALS: Final[Mapping[Kind, Mapping[Channel, frozenset[Role]]]] = {
    Kind.HELLO: _TO_LEADER,
    Kind.HEARTBEAT: {Channel.REPORTS: _WORKER},
    Kind.ACCEPT: _TO_LEADER,
    Kind.REJECT: _TO_LEADER,
    Kind.RESULT: {Channel.REPORTS: _WORKER, Channel.CONTROL: _WORKER},
    Kind.BYE: _TO_LEADER,
    Kind.LINES: {Channel.REPORTS: _WORKER, Channel.PEER_EVENTS: _MASTER},
    Kind.WELCOME: _TO_WORKER,
    Kind.ASSIGN: _TO_WORKER,
    Kind.ACK: _TO_WORKER,
    Kind.CANCEL: _TO_WORKER,
    Kind.REHELLO: _TO_WORKER,
    Kind.STALE: {**_TO_LEADER, **_TO_WORKER},
    Kind.NOT_LEADER: _TO_WORKER,
    Kind.DRAIN: _TO_WORKER,
    Kind.CONFIG: _TO_WORKER,
    Kind.CODE: _TO_WORKER,
    Kind.BEAT: {
        Channel.WORKER_EVENTS: _MASTER,
        Channel.PEER_EVENTS: _MASTER,
        Channel.WATCHER_EVENTS: _MASTER,
    },
    Kind.EVENT: {Channel.WATCHER_EVENTS: _MASTER},
    Kind.SNAPSHOT: {Channel.PEER_EVENTS: _MASTER, Channel.WATCHER_EVENTS: _MASTER},
    Kind.VITALS: {Channel.PEER_EVENTS: _MASTER},
    Kind.REQUEST: {Channel.CONTROL: ANYBODY},
    Kind.REPLY: {Channel.CLIENT_CONTROL: _MASTER, Channel.PEER_CONTROL: _MASTER},
}

# A worker says these in its own name, which `header.source` has.
WORKER_KINDS: Final = frozenset(
    kind
    for kind, channels in ARRIVALS.items()
    if _WORKER in (channels.get(Channel.CONTROL), channels.get(Channel.REPORTS))
)

HEADER_MOST: Final = 1_000  # bytes; a name has at most 255
SMALL_REQUEST_MOST: Final = 64_000  # of one who may not submit: no question is longer
REPORT_MOST: Final = 1_000_000  # of what a worker says besides its results and what it holds
_LARGE: Final = frozenset({Kind.RESULT, Kind.HELLO})


def kinds_on(channel: Channel, roles: Iterable[Role]) -> frozenset[Kind]:
    """Return what may arrive on a channel from a sender with these roles."""
    having = frozenset(roles)
    return frozenset(
        kind for kind, channels in ARRIVALS.items() if having & channels.get(channel, frozenset())
    )


def body_most(kind: Kind, roles: Iterable[Role]) -> int:
    """Return how many bytes the body of such a message may have. Compared before it is decoded."""
    if kind is Kind.REQUEST:
        may_submit = not {Role.OPERATOR, Role.MASTER}.isdisjoint(roles)
        return MAX_FRAME_BYTES if may_submit else SMALL_REQUEST_MOST
    if kind in WORKER_KINDS and kind not in _LARGE:
        return REPORT_MOST
    return MAX_FRAME_BYTES
