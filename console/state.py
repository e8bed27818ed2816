"""The nouns of the console: what the View is made of, and the events that change it. All frozen."""

from __future__ import annotations

import enum
from typing import Any, Final, TypeAlias

import msgspec

from console.rates import Rates
from zcrawl.master.desk.rights import may_act
from zcrawl.model.snapshot import PublishedSnapshot


class _Data(msgspec.Struct, frozen=True):
    pass


class ConsolePage(enum.StrEnum):
    """What the main screen shows: nine pages by their keys, and those one drills into."""

    OVERVIEW = "overview"
    NODES = "nodes"
    JOBS = "jobs"
    QUEUES = "queues"
    HOSTS = "hosts"
    ERRORS = "errors"
    ITEMS = "items"
    LOG = "log"
    CHARTS = "charts"
    NODE = "node"
    JOB = "job"
    TAG_QUEUES = "queues by tag"
    HOST_QUEUES = "queues by host"
    LANES = "lanes"  # the queues of one run, host by host
    HOST = "host"
    FAILED = "failed"  # the URLs of one group of errors
    ITEM = "item"
    LINE = "line"  # one line of the log, one failed URL: all of it


MAIN_PAGES: Final = tuple(ConsolePage)[:9]
GROUPED: Final = (ConsolePage.TAG_QUEUES, ConsolePage.HOST_QUEUES)  # other faces of the queues


class Place(_Data, frozen=True):
    """A page, and what it is about: a job's number, a worker's name, a host."""

    page: ConsolePage = ConsolePage.OVERVIEW
    ref: str = ""
    row: tuple[tuple[str, Any], ...] = ()  # of what was drilled into

    @property
    def key(self) -> str:
        return f"{self.page}:{self.ref}"

    @property
    def about(self) -> dict[str, Any]:
        return dict(self.row)


class LinkState(enum.StrEnum):
    CONNECTING = "connecting"  # nobody has spoken yet
    LIVE = "live"  # a snapshot came within the last seconds
    LOST = "lost"  # the leader is silent: a failover, or the end


class Link(_Data, frozen=True):
    state: LinkState = LinkState.CONNECTING
    text: str = ""  # what the console is doing about it
    since: float = 0.0


class Happening(_Data, frozen=True):
    """Something notable: said by the leader, or seen by the console itself."""

    at: float  # UTC
    name: str
    text: str = ""
    source: str = ""
    level: str = "info"
    run: int = 0  # that it is about; 0: none


def rows_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an answer, whoever sent it."""
    rows = data.get("rows", [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


class Answer(_Data, frozen=True):
    """What a master said to the newest question of one kind."""

    data: dict[str, Any]
    at: float
    error: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.data)


class Known(_Data, frozen=True):
    """What was heard of the cluster. Frozen as a whole when the view is paused."""

    snapshot: PublishedSnapshot | None = None
    rates: Rates = Rates()
    happenings: tuple[Happening, ...] = ()
    answers: dict[str, Answer] = {}  # slot → answer

    def rows(self, slot: str) -> list[dict[str, Any]]:
        answer = self.answers.get(slot)
        return answer.rows if answer is not None else []


class TableState(_Data, frozen=True):
    """How a person looks at one table. The cursor is a row's key, so it follows its row."""

    cursor: str = ""
    index: int = 0  # where it was; used when the row is gone
    sort: str = ""
    desc: bool = False
    filter: str = ""
    inverse: bool = False
    marks: dict[str, dict[str, Any]] = {}  # key → the row as it was when it was marked
    expanded: frozenset[str] = frozenset()  # keys of rows that show what is inside
    offset: int = 0  # of the page that the leader sends


class ActionMessage(_Data, frozen=True):
    """The line at the bottom: what an action did, or why not."""

    text: str = ""
    style: str = ""
    at: float = 0.0


class ReplayState(_Data, frozen=True):
    """Where a replay is, in seconds of the replay."""

    position_s: float
    length_s: float
    speed: float
    paused: bool


class View(_Data, frozen=True):
    cluster: str = ""  # its name, or its data folder
    clusters: tuple[str, ...] = ()  # all that can be watched, by name
    keys: dict[str, str] = {}  # that the user has changed: a binding's name → its key
    place: Place = Place()
    trail: tuple[Place, ...] = ()  # where escape goes back to
    tables: dict[str, TableState] = {}  # place → how it is looked at
    link: Link = Link()
    live: Known = Known()
    held: Known | None = None  # what the screen shows while the view is paused
    clock: float = 0.0  # the time of the newest event
    span_s: int = 900  # of the charts
    message: ActionMessage = ActionMessage()
    bad_messages: int = 0
    replay: ReplayState | None = None  # a recording is shown, no live cluster
    readonly: bool = False
    role: str = ""  # of the key; empty: there are no keys

    @property
    def may_act(self) -> bool:
        return not self.readonly and may_act(self.role)

    @property
    def page(self) -> ConsolePage:
        return self.place.page

    @property
    def content(self) -> Known:
        """What is on the screen."""
        return self.held or self.live

    @property
    def paused(self) -> bool:
        return self.held is not None

    @property
    def table(self) -> TableState:
        return self.tables.get(self.place.key, TableState())


# ---------------------------------------------------------------- events of the feed


class SnapshotCame(_Data, frozen=True, tag=True):
    data: PublishedSnapshot
    at: float


class MessageUnreadable(_Data, frozen=True, tag=True):
    """A master sent what is not a message of this version."""

    at: float


class HappeningCame(_Data, frozen=True, tag=True):
    name: str
    fields: dict[str, Any]
    at: float


class LinkChanged(_Data, frozen=True, tag=True):
    state: LinkState
    text: str
    at: float


class Answered(_Data, frozen=True, tag=True):
    """A master answered what the console asked for by itself."""

    slot: str
    data: dict[str, Any]
    at: float
    error: str = ""


ARROW: Final = "  →  "  # between a command line and its result


class Acted(_Data, frozen=True, tag=True):
    """What became of an action."""

    command: str  # the command line that does the same
    result: str
    ok: bool
    at: float
    utc: float = 0.0


class Rewound(_Data, frozen=True):
    """A replay goes to another position: what was heard before does not count any more."""


class ReplayMoved(_Data, frozen=True):
    replay: ReplayState


class Ticked(_Data, frozen=True, tag=True):
    at: float


# ---------------------------------------------------------------- commands of a person


class GoTo(_Data, frozen=True):
    place: Place


class Back(_Data, frozen=True):
    pass


class Drill(_Data, frozen=True):
    pass


class Move(_Data, frozen=True):
    """The cursor, by so many rows."""

    by: int


class MoveTo(_Data, frozen=True):
    index: int  # in the whole table; -1: the last


class LoadAround(_Data, frozen=True):
    """Rows of a remote table are scrolled to: load those around this one. The cursor stays."""

    index: int  # in the whole table


class ToggleRow(_Data, frozen=True):
    """Show or hide what is inside of the row at the cursor: the runs of a job."""


class Mark(_Data, frozen=True):
    """The row at the cursor, and on to the next one."""


class MarkAll(_Data, frozen=True):
    """All rows on the screen's list, or none if all are."""


class SortBy(_Data, frozen=True):
    letter: str


class SetFilter(_Data, frozen=True):
    text: str  # a leading ! shows what does not match


class TogglePause(_Data, frozen=True):
    pass


class SetSpan(_Data, frozen=True):
    """The time span of the charts."""

    span_s: int = 0  # 0: the next one


class NextLevel(_Data, frozen=True):
    """Of the log: all, warnings, errors."""


class Say(_Data, frozen=True):
    text: str
    style: str = ""


Heard: TypeAlias = (
    SnapshotCame
    | MessageUnreadable
    | HappeningCame
    | LinkChanged
    | Answered
    | Acted
    | Ticked
    | Rewound
    | ReplayMoved
)
ConsoleCommand: TypeAlias = (
    GoTo
    | Back
    | Drill
    | Move
    | MoveTo
    | LoadAround
    | ToggleRow
    | Mark
    | MarkAll
    | SortBy
    | SetFilter
    | TogglePause
    | SetSpan
    | NextLevel
    | Say
)
ConsoleEvent: TypeAlias = Heard | ConsoleCommand
