"""The closed union of messages that travel over the mesh. Frozen, versioned, arrays on the wire.

A message is two frames: a `Header` and a body. The header's `subject` names the request that a
RESULT is about, so that a result whose body cannot be read can still be consumed (rule `bad
results`). docs/protocol.md explains each message and the sixteen rules.

Annotations here and in the modules that it takes types from are not strings, because msgspec would
compile each of them again in every process, which was 30 ms of a start.

The kinds of messages, as the header names them. Numbers are never used twice.

LINES: log lines of a worker or a follower, for consoles.

No decision depends on it, and it is never sent again.
"""

import enum
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from zcrawl.errors import RetryClass
from zcrawl.model.host import Address, GroupShare, Manner, Number, RobotsFile, Seconds
from zcrawl.model.reload_report import ReloadReport
from zcrawl.model.sitemap_request import block_nesting, has_sitemap_prio
from zcrawl.model.snapshot import PublishedSnapshot
from zcrawl.model.states import Outcome
from zcrawl.model.vitals import Slots, TaskSlots, Vitals, WorkerVitals


class MessageKind(enum.IntEnum):
    """The type field of the header."""

    HELLO = 1
    HEARTBEAT = 2
    ACCEPT = 3
    REJECT = 4
    RESULT = 5
    BYE = 6
    LINES = 7
    RELOADED = 8
    WELCOME = 16
    ASSIGN = 17
    ACK = 18
    CANCEL = 19
    REHELLO = 20
    STALE = 21
    NOT_LEADER = 22
    DRAIN = 23
    CONFIG = 24
    CODE = 25
    RELOAD = 26
    BEAT = 32
    EVENT = 33
    SNAPSHOT = 34
    VITALS = 35
    REQUEST = 48
    REPLY = 49


LINE_TEXT_MOST = 500
LINES_MOST = 100


class LogRecord(msgspec.Struct, frozen=True, array_like=True):
    """One event of a process's log."""

    ago_s: Annotated[float, Meta(ge=0, le=100_000)]
    level: Annotated[str, Meta(max_length=20)]
    name: Annotated[str, Meta(max_length=100)]
    text: Annotated[str, Meta(max_length=LINE_TEXT_MOST)]
    run: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0  # that it is about; 0: about none


class LogRecords(msgspec.Struct, frozen=True, array_like=True):
    lines: Annotated[list[LogRecord], Meta(max_length=LINES_MOST)]
    left_out: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


PROTOCOL_VERSION = 2
LINKS_PER_RESULT = 5_000  # more links on one page travel in parts (rule `many links`)


PageSize: TypeAlias = Annotated[int, Meta(ge=0, le=2**40)]  # sums of it stay numbers
Url: TypeAlias = Annotated[str, Meta(max_length=8_192)]
UrlKey: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
HostName: TypeAlias = Annotated[str, Meta(max_length=255)]
CookieBytes: TypeAlias = Annotated[bytes, Meta(max_length=16_384)]
CanonicalLink: TypeAlias = tuple[Url, UrlKey]  # canonical
ShortText: TypeAlias = Annotated[str, Meta(max_length=500)]
Detail: TypeAlias = Annotated[str, Meta(max_length=5_000)]
ShortName: TypeAlias = Annotated[str, Meta(max_length=100)]
Files: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=20)], Annotated[str, Meta(max_length=64)]],
    Meta(max_length=2),
]
# Requests or hosts of one worker in one message. With 10,000 slots it holds 30,000 at most; the
# leader goes through them in its event loop, and 16 MB of them took it a second.
HELD_MOST = 50_000
_Held = Meta(max_length=HELD_MOST)
Priority: TypeAlias = Annotated[int, Meta(ge=-1_000, le=1_000)]  # low goes first
Extras: TypeAlias = Annotated[bytes, Meta(max_length=60_000)]  # frontier.extra
SpiderRequest: TypeAlias = tuple[Url, UrlKey, Priority, Extras]  # a spider's request


class Header(msgspec.Struct, frozen=True, array_like=True):
    version: int
    kind: int
    shard: Number  # 0 until leadership is sharded
    epoch: Number  # stamped when sent, also on a resend
    source: str
    incarnation: Number  # random per process start
    sequence: Number  # RESULT: the result's number; leader → worker: numbered per worker
    subject: Number = 0  # RESULT: the request's seq; leader → worker: the incarnation meant


class _Body(msgspec.Struct, frozen=True, array_like=True):
    pass


# ---------------------------------------------------------------- worker → leader


class Assignment(_Body, frozen=True):
    n: int  # the lease token is (header epoch, n)
    seq: int
    run: int
    host: int
    url: str
    depth: int
    attempt: int
    parent: str | None
    prio: int = 0
    crashes: int = 0  # crashes with this request alone (rule `crashes`)
    block: str = ""  # the extraction block that reads it; of a sitemap: model.sitemap_request
    verdict: str = ""  # not to be fetched: its request ends with this reason
    extra: bytes = b""  # of a spider's request: frontier.extra
    known: bytes = b""  # Traits of a page that an earlier run has met: frontier.recrawl

    @property
    def is_sitemap(self) -> bool:
        return has_sitemap_prio(self.prio)

    @property
    def nesting(self) -> int:
        """How many sitemap indexes led to this sitemap."""
        return block_nesting(self.block)


class HeldLease(_Body, frozen=True):
    """An assignment in a worker's hands, whole: a new leader can adopt it without a look-up."""

    epoch: int
    started: bool
    assignment: Assignment


class Hello(_Body, frozen=True):
    slots: Slots
    version: ShortName  # this and the next are in every SNAPSHOT
    hostname: HostName
    pid: Number
    held: Annotated[list[HeldLease], _Held]
    produced: int  # number of the newest result ever numbered by this incarnation
    acked: int  # results up to here are known to be settled
    hello: int  # counts this incarnation's HELLOs: an old one must not undo a newer one
    # (number, run, host, seq) of unsettled results
    reported: Annotated[list[tuple[int, int, int, int]], _Held]
    replaces: int = 0  # incarnation that the worker's supervisor saw die
    heard: Number = 0  # the highest message number from this leader in this epoch
    # (host, requests at a time) of hosts in `held`: in force until the WELCOME comes
    granted: Annotated[list[tuple[int, int]], _Held] = []
    life: int = 0  # number of its supervisor's life: restarting the node by hand ends its drain
    task_slots: TaskSlots = 0  # tasks without a host at a time; older workers take none
    labels: Annotated[list[ShortName], Meta(max_length=100)] = []  # by which jobs are placed


class Heartbeat(_Body, frozen=True):
    held: Annotated[list[tuple[int, int, bool]], _Held]  # (lease epoch, lease n, started)
    produced: int
    acked: int
    assigned: int  # highest ASSIGN sequence taken in
    vitals: WorkerVitals
    draining: bool
    hello: int  # the HELLO that was answered by the WELCOME in force
    sent_at: float  # the worker's own clock; BEAT echoes it, and the echo carries the permission
    heard: Number = 0  # as in Hello


class Accept(_Body, frozen=True):
    """An ASSIGN arrived; lowered grants are named once they are in force."""

    assigned: int
    grants: Annotated[list[tuple[int, int]], _Held]  # (host, revision) in force


class Rejection(_Body, frozen=True):
    """A lease that a worker does not take in."""

    epoch: int
    n: int
    reason: Detail
    lacks: Detail = ""  # of the reason LACKS: what the worker does not have


class Reject(_Body, frozen=True):
    leases: Annotated[list[Rejection], _Held]


class PageRecord(_Body, frozen=True):
    final_url: str
    title: str | None
    content_type: str
    size: PageSize
    fetched_at: float  # UTC seconds
    elapsed_ms: float
    body: str | None = None  # blob name, when bodies are kept
    canonical: str | None = None  # what it names as its canonical URL
    alternates: list[tuple[str, str]] = []  # (hreflang, URL)
    files: Files = {}  # what a browser made of it (screenshot, pdf) → blob name


class ExtractionReport(_Body, frozen=True):
    """Results of an extraction besides its items."""

    rejected: list[bytes] = []  # JSON objects: items that were set aside, with the reason
    reasons: dict[str, Number] = {}  # of what was set aside: reason → count
    problems: list[bytes] = []  # JSON objects: items that were kept, with the fields that failed
    fields: dict[str, tuple[Number, Number, Number]] = {}  # field → filled, empty, failed
    capture: bytes | None = None  # JSON: the exchange, for archives
    examples: dict[str, Detail] = {}  # of `reasons`: what is wrong with the first item
    failure: bytes | None = None  # JSON: the result of a task that failed


class Traits(_Body, frozen=True):
    """Values by which a page is recognised when it is fetched again. Only if the job needs them."""

    etag: ShortText = ""  # as the server sent it, as the next one
    last_modified: ShortText = ""
    content: Annotated[bytes, Meta(max_length=16)] = b""  # hash of the body
    unchanged: bool = False  # by a 304, or by the same hash as before
    fingerprint: Annotated[bytes, Meta(max_length=32)] = b""  # of its text; empty: none


class Result(_Body, frozen=True):
    lease_epoch: Number
    lease_n: Number
    seq: Number
    run: Number
    host: Number
    attempt: Annotated[int, Meta(ge=1, le=1_000_000)]
    outcome: Outcome
    reason: str = ""
    status: Annotated[int, Meta(ge=0, le=999)] = 0
    retry: RetryClass | None = None  # of a failure
    retry_after_s: Seconds | None = None
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    page: PageRecord | None = None
    items: list[bytes] = []  # JSON objects
    links: list[CanonicalLink] = []
    rejected: dict[str, Number] = {}  # links that cannot be crawled: reason → count
    handover: CanonicalLink | None = None  # target of a redirect to another host
    host_next_in_s: Seconds = 0.0  # until the host's next request may start
    crawl_delay_s: Seconds = 0.0  # what robots.txt asks for
    detail: str = ""  # for people: the error's text, cut
    blocks: list[tuple[ShortName, list[UrlKey]]] = []  # links that go to a certain block
    extracted: ExtractionReport | None = None  # of a job that extracts
    cookies: tuple[HostName, CookieBytes] | None = None  # a host's, when they changed
    manner: Manner | None = None  # of the host, when it has changed
    robots: RobotsFile | None = None  # of the host, when it was fetched
    trapped: list[tuple[Url, UrlKey, str]] = []  # links that are not to be crawled, with the reason
    sitemaps: list[
        CanonicalLink
    ] = []  # sitemaps that were named; of the same depth as this request
    prios: list[int] = []  # of `links`, one each, when they have any
    requests: list[SpiderRequest] = []  # new requests of a spider
    traits: Traits | None = None  # of a page of a job that asks for them
    address: Address = ""  # of the host, if it differs from the expected one
    dropped: dict[str, Number] = {}  # links outside of the crawl: reason → count
    paging: list[UrlKey] = []  # of `links`: those that add no depth
    redirected_to: CanonicalLink | None = None  # the URL that answered, if it is another one


class Bye(_Body, frozen=True):
    reason: ShortText


class Reloaded(_Body, frozen=True):
    """A node has read its configuration again. Also from masters that follow to the leader."""

    request: ShortText  # of the RELOAD that this answers
    node: HostName  # several worker processes belong to one node
    report: ReloadReport


# ---------------------------------------------------------------- leader → worker


class Grant(_Body, frozen=True):
    """The right to start requests to one host, until 7 s after the last BEAT."""

    host: int
    origin: str
    revision: int
    concurrency: int
    interval_s: float  # between two starts; 0: unlimited
    burst: int
    next_in_s: float  # not before this long from now
    manner: Manner | None = None  # its health, for a new owner
    robots: RobotsFile | None = None
    groups: list[GroupShare] = []  # limits that it shares with other hosts
    address: str | None = None  # the only one to connect to; empty: find out and report


class Welcome(_Body, frozen=True):
    """The worker is known. Whatever it holds beyond `grants` and `keep` it must not start."""

    watermark: int  # results of this incarnation up to here are committed
    heartbeat_s: float
    hello: int
    grants: list[Grant]
    keep: list[int]  # seqs of held requests that the leader adopted


class Assign(_Body, frozen=True):
    grants: list[Grant]
    urls: list[Assignment]


class Ack(_Body, frozen=True):
    upto: int  # cumulative: every result up to here is settled
    first: int  # dispositions are given for first..upto
    dispositions: bytes
    received: int  # contiguous, maybe not committed yet
    missing: list[tuple[int, int]]  # gaps to resend at once, inclusive


class Cancel(_Body, frozen=True):
    runs: list[int]
    leases: list[tuple[int, int]] = []  # (epoch, n)
    withdrawn: list[tuple[int, int]] = []  # lease tokens: what has not started goes back


class Rehello(_Body, frozen=True):
    reason: str
    hello: int  # number of the HELLO that does not count any more


class Stale(_Body, frozen=True):
    reason: str  # stale_epoch, duplicate_id, store_behind, name_not_allowed, key_not_allowed
    other: str = ""  # the process that has the id; for the last two: a text for people


class NotLeader(_Body, frozen=True):
    leader: str | None


class Drain(_Body, frozen=True):
    """Give back what has not started. The leader sends nothing more to a drained worker, so a lost
    message does no harm: the grants that end bring about the same."""

    exit: bool  # and leave when all is delivered


class RunSecret(msgspec.Struct, frozen=True):
    """A stored secret of a run, with what may get it. Its text form has no value."""

    value: str
    hosts: tuple[str, ...]
    commands: tuple[str, ...]

    def __repr__(self) -> str:
        return f"RunSecret(hosts={self.hosts}, commands={self.commands})"


class RunConfig(_Body, frozen=True):
    run: int
    revision: int
    spec: bytes  # JSON of JobSpec
    seed_hosts: list[str]  # netlocs that the default scope allows
    cookies: bytes = b""  # JSON: host → its cookies, as results brought them
    code: str = ""  # SHA-256 of the spider's file, which CODE brings
    canonical: int = 1  # version of the canonical form by which its keys are made
    priority: int = 0  # of its job; higher goes first
    # Stored secrets that it names. Only over CURVE or a private Unix socket (dispatch.secret_book).
    secrets: dict[str, RunSecret] = {}


class RunConfigs(_Body, frozen=True):
    runs: list[RunConfig]


class Code(_Body, frozen=True):
    """A spider's file. A worker takes it only if a CONFIG named its hash."""

    sha256: str
    source: bytes


class ReloadNode(_Body, frozen=True):
    """Read the configuration again and answer with RELOADED. Sent again until that comes; the same
    request is carried out once. To masters it is published, and names them."""

    request: ShortText
    masters: list[HostName] = []  # empty: the worker that it was sent to


# ---------------------------------------------------------------- leader → all


class Beat(_Body, frozen=True):
    leader: str
    interval_s: float
    # worker → (incarnation, contiguous result number, its newest heartbeat's sent_at)
    received: dict[str, tuple[int, int, float]]


class Event(_Body, frozen=True):
    name: str
    fields: dict[str, Any]


class Snapshot(_Body, frozen=True):
    data: PublishedSnapshot


# ---------------------------------------------------------------- client → any master


class ClientRequest(_Body, frozen=True):
    id: str
    op: str
    args: dict[str, Any]
    forwarded: bool = False  # by a follower; it is not forwarded a second time
    by: str = ""  # the key's name; without keys user@host as the client sent it
    via: str = ""  # the master that took the request
    role: str = ""  # of its key, set by that master, not by the client; empty: without keys, all
    key: str = ""  # the name of the key in the masters' list; set by that master
    # A gateway sends these of the user it speaks for; that master sets them for everybody else.
    rights: list[str] = []  # beside the role: code, shell, private
    through: str = ""  # how the sender proved who it is: `key NAME`, `token PREFIX`, `jwt ISSUER`
    address: str = ""  # of a gateway's client


class Reply(_Body, frozen=True):
    id: str
    ok: bool
    data: dict[str, Any]  # the answer, or {code, message}


Body: TypeAlias = (
    Hello
    | Heartbeat
    | Accept
    | Reject
    | Result
    | Bye
    | Reloaded
    | LogRecords
    | Welcome
    | Assign
    | Ack
    | Cancel
    | Rehello
    | Stale
    | NotLeader
    | Drain
    | RunConfigs
    | Code
    | ReloadNode
    | Beat
    | Event
    | Snapshot
    | Vitals
    | ClientRequest
    | Reply
)

BODY_TYPES: dict[MessageKind, type[Body]] = {
    MessageKind.HELLO: Hello,
    MessageKind.HEARTBEAT: Heartbeat,
    MessageKind.ACCEPT: Accept,
    MessageKind.REJECT: Reject,
    MessageKind.RESULT: Result,
    MessageKind.BYE: Bye,
    MessageKind.LINES: LogRecords,
    MessageKind.RELOADED: Reloaded,
    MessageKind.WELCOME: Welcome,
    MessageKind.ASSIGN: Assign,
    MessageKind.ACK: Ack,
    MessageKind.CANCEL: Cancel,
    MessageKind.REHELLO: Rehello,
    MessageKind.STALE: Stale,
    MessageKind.NOT_LEADER: NotLeader,
    MessageKind.DRAIN: Drain,
    MessageKind.CONFIG: RunConfigs,
    MessageKind.CODE: Code,
    MessageKind.RELOAD: ReloadNode,
    MessageKind.BEAT: Beat,
    MessageKind.EVENT: Event,
    MessageKind.SNAPSHOT: Snapshot,
    MessageKind.VITALS: Vitals,
    MessageKind.REQUEST: ClientRequest,
    MessageKind.REPLY: Reply,
}

KIND_OF: dict[type[Body], MessageKind] = {body: kind for kind, body in BODY_TYPES.items()}


class Message(msgspec.Struct, frozen=True):
    header: Header
    body: Body


class BadBody(msgspec.Struct, frozen=True):
    """A message whose header can be read and whose body cannot."""

    header: Header
    error: str
