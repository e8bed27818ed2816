"""The type of an operation: what a client can request of a master, with all that holds for it.

`operations` declares each one, once. The desk, followers, rights, idempotency, consoles and the
table in docs/protocol.md read the declarations; nobody else has a list of operations. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from zcrawl.mesh.messages import ClientRequest
from zcrawl.mesh.roles import PRINCIPALS, KeyRole

if TYPE_CHECKING:  # handlers are named here and loaded by those who call them
    from zcrawl.master.desk.arguments import Arguments
    from zcrawl.master.desk.desk import Desk
    from zcrawl.master.desk.reads import DatabaseReads, Live
    from zcrawl.master.desk.replies import Pending
    from zcrawl.master.desk.views import DeskViews
    from zcrawl.master.events import MasterEffects
    from zcrawl.master.follower import Follower
    from zcrawl.master.master import Master
    from zcrawl.store.queries import JobList, Query, QueryOutcome

Data: TypeAlias = dict[str, Any]


class Type(enum.Enum):
    """The type of an argument. The value is what docs show."""

    INTEGER = "integer"  # also one that is written as text
    NUMBER = "number"
    TEXT = "text"  # anything that has a text: references are numbers or names
    FLAG = "flag"
    LIST = "list"
    TABLE = "table"


class Argument(msgspec.Struct, frozen=True):
    """A declared argument. A `default` counts only where the argument is absent."""

    name: str
    type: Type
    required: bool = False
    default: Any = None
    about: str = ""  # limits and choices, for docs


class Right(enum.Enum):
    """The roles that may request an operation. A client without keys may request all."""

    WORKER = frozenset((KeyRole.WORKER, KeyRole.GATEWAY, *PRINCIPALS))
    VIEWER = frozenset(PRINCIPALS)
    SUBMITTER = frozenset(PRINCIPALS[1:])
    OPERATOR = frozenset(PRINCIPALS[2:])
    ADMIN = frozenset(PRINCIPALS[3:])
    GATEWAY = frozenset((KeyRole.GATEWAY,))

    @property
    def name_in_list(self) -> str:
        """The least role, as the masters' list and `zcrawl user` write it."""
        return self.name.lower()


_CHANGING: Final = (Right.SUBMITTER, Right.OPERATOR, Right.ADMIN)


class Repeat(enum.Enum):
    """Why a request that comes twice has one effect. The value is what docs show."""

    READ = "read"  # it changes nothing
    ANSWER_STORED = "stored answer"  # looked up under the request's id before anything is done
    OWN_COMMAND = "own command"  # its command looks for its own answer, which brings rows with it
    SAME_ID = "same id"  # the first one is under way or done, and nothing is done twice
    NAMES_EPOCH = "names the epoch"  # a second one finds another epoch and does nothing
    SAME_RESULT = "same result"  # it only begins what the leader does anyway, each part of it once


# ---------------------------------------------------------------- handlers: who answers, and how


class EveryMaster(msgspec.Struct, frozen=True):
    """The master that gets the request answers it, leader or not."""

    answer: Callable[[Master, ClientRequest], Data]


class FromDatabase(msgspec.Struct, frozen=True):
    """A query answers it. The leader adds what is in flight; without a leader any master answers.

    `answer` turns the store's answer into the reply, or into the next query.
    """

    question: Callable[[DatabaseReads], Callable[[Arguments], Query]]
    answer: Callable[[DatabaseReads], Callable[[Pending, QueryOutcome, Live, float], Data | Query]]


class FromMemory(msgspec.Struct, frozen=True):
    """The leader answers from its memory; a follower from what it heard of the leader."""

    leader: Callable[[Desk], Callable[[float], Data]]
    follower: Callable[[Follower], Callable[[float], Data]]


class LeaderView(msgspec.Struct, frozen=True):
    """A view of the leader's memory. The answer is kept for a moment (`DeskViews.answer`)."""

    show: Callable[[DeskViews], Callable[[Arguments, float], Data]]


class LeaderAction(msgspec.Struct, frozen=True):
    """The leader does it. `continue_with` goes on when `begin` has asked the store for a job."""

    begin: Callable[[Desk], Callable[[Pending, float, MasterEffects], None]]
    continue_with: (
        Callable[[Desk], Callable[[Pending, JobList, float, MasterEffects], None]] | None
    ) = None


OperationHandler: TypeAlias = EveryMaster | FromDatabase | FromMemory | LeaderView | LeaderAction


# ---------------------------------------------------------------- declarations


class Operation(msgspec.Struct, frozen=True):
    """A declared operation. `answer` says in docs what a client gets."""

    name: str
    right: Right
    repeat: Repeat
    handler: OperationHandler
    answer: str
    arguments: Mapping[str, Argument]
    audited: bool  # each request leaves a log line that says who sent it
    own: bool = False  # a submitter may do it to its own jobs only (`ownership`)

    @property
    def changes(self) -> bool:
        """Whether it is a write."""
        return self.repeat is not Repeat.READ

    @property
    def needs_leader(self) -> bool:
        """Whether it is refused while nobody leads."""
        return isinstance(self.handler, LeaderView | LeaderAction)


OPERATIONS: Final[dict[str, Operation]] = {}  # by name; complete once `operations` is imported


def declare(
    name: str,
    *arguments: Argument,
    right: Right,
    repeat: Repeat,
    handler: OperationHandler,
    answer: str,
    audited: bool = False,
    own: bool = False,
) -> str:
    """Declare an operation; return its name. ValueError: the declaration contradicts itself."""
    declared = {argument.name: argument for argument in arguments}
    operation = Operation(name, right, repeat, handler, answer, declared, audited, own)
    problem = _problem(operation, len(arguments))
    if problem:
        raise ValueError(f"operation {name!r}: {problem}")
    OPERATIONS[name] = operation
    return name


def _problem(operation: Operation, arguments: int) -> str:
    if not operation.name.replace("_", "").isalpha() or operation.name in OPERATIONS:
        return "the name is not a word, or is declared twice"
    if not operation.answer:
        return "its answer is not documented"
    if len(operation.arguments) != arguments:
        return "an argument is declared twice"
    if operation.changes and operation.right not in _CHANGING:
        return "what changes something needs a submitter at least"
    if not operation.changes and operation.right in (Right.SUBMITTER, Right.OPERATOR):
        return "a viewer may read it too"
    if operation.own and operation.right is not Right.SUBMITTER:
        return "only submitters are limited to their own jobs"
    if operation.changes and not isinstance(operation.handler, LeaderAction):
        return "only the leader changes something"
    if operation.audited and not operation.changes:
        return "a read leaves no line"
    for argument in operation.arguments.values():
        if argument.required and argument.default is not None:
            return f"{argument.name} is required and has a default"
    return ""
