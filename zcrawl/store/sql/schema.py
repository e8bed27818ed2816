"""The tables of the store, as peewee models, and the numbered migrations.

The models are the one description of the schema; the hot statements are raw SQL in
`store.sql`, because peewee's query builder costs about 20 µs a row. What differs between
SQLite and MySQL (types, indexes) comes from the dialect; no name is a reserved word in either.
`store` calls `migrate` before anything else.

The tables of requests of people (drains, wishes, retries): each leader loads them at its takeover
and continues from there (`master.desk.actions`).

The tables that recognise pages:

`known_pages` belongs to jobs, across their runs, and only jobs with `recrawl.incremental` have rows
in it; `fingerprints` belongs to runs that look for near duplicates. No column holds text, so that
the tables are the same whichever way they were made.

The tables that prevent repeats (watermarks, answers to clients): both would grow for ever, so the
leader removes rows that are no longer needed (`master.pruning`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import peewee

from zcrawl.errors import StoreCorrupt, StoreError
from zcrawl.model.reasons.storage import SCHEMA_NEWER
from zcrawl.store.rules import MOST_DETAIL
from zcrawl.store.sql.dialects.dialect import Dialect, Session

URL_BYTES = 8_192


class IdField(peewee.Field):
    """An id given by the store. SQLite needs the word INTEGER to make it the row id."""

    field_type = "ZC_ID"


class BytesField(peewee.BlobField):
    """Bytes of bounded length: BLOB on SQLite, VARBINARY(n) on MySQL, so no collation applies."""

    def __init__(self, length: int, **options: Any) -> None:
        self.length = length
        super().__init__(**options)

    field_type = "ZC_BYTES"

    def get_modifiers(self) -> list[int]:
        return [self.length]


def default(value: str) -> dict[str, Any]:
    return {"constraints": [peewee.SQL(f"DEFAULT {value}")]}


class DrainTable(peewee.Model):
    """Workers that get no work until they are undrained, or their node is restarted."""

    worker = peewee.CharField(255, primary_key=True)
    life = peewee.BigIntegerField()
    created_at = peewee.DoubleField()

    class Meta:
        table_name = "drains"


class WishTable(peewee.Model):
    """Hosts that a person gave to a worker."""

    host = IdField(primary_key=True)
    worker = peewee.CharField(255)
    created_at = peewee.DoubleField()

    class Meta:
        table_name = "wishes"


class RetryTable(peewee.Model):
    """Unfinished retries. The last part removes its row and stores the answer."""

    request = peewee.CharField(255, primary_key=True)
    run = peewee.BigIntegerField()
    reason = peewee.CharField(255)
    host = peewee.BigIntegerField()
    after_seq = peewee.BigIntegerField()
    changed = peewee.BigIntegerField()
    created_at = peewee.DoubleField()
    what = peewee.CharField(255)
    asked_by = peewee.CharField(255)
    via = peewee.CharField(255)

    class Meta:
        table_name = "retries"


class SecretTable(peewee.Model):
    """Secrets of jobs, sealed with a key of the masters. The database has no key."""

    name = peewee.CharField(64, primary_key=True)
    sealed = peewee.BlobField()
    key_id = peewee.CharField(16)
    hosts = peewee.BlobField()  # JSON
    commands = peewee.BlobField()  # JSON
    updated_at = peewee.DoubleField()
    updated_by = peewee.CharField(255)

    class Meta:
        table_name = "secrets"


INTENTS: tuple[type[peewee.Model], ...] = (DrainTable, WishTable, RetryTable)


class KnownPageTable(peewee.Model):
    id = IdField(primary_key=True)
    job = peewee.BigIntegerField()
    url_key = BytesField(16)
    url = BytesField(URL_BYTES)
    host = peewee.BigIntegerField()
    depth = peewee.IntegerField()
    label = BytesField(400)  # the block of its request
    extra = peewee.BlobField(null=True)  # of a spider's request: frontier.extra
    content = BytesField(16)  # hash of its body
    etag = BytesField(2_000)
    last_modified = BytesField(2_000)
    reading = BytesField(8)  # what it was read by: frontier.recrawl
    checked_at = peewee.DoubleField(**default("0"))
    changed_at = peewee.DoubleField(**default("0"))
    interval_s = peewee.DoubleField(**default("0"))
    checks = peewee.IntegerField(**default("0"))
    changes = peewee.IntegerField(**default("0"))
    gone = peewee.BooleanField(**default("0"))
    fingerprint = BytesField(32, **default("''"))  # of its text

    class Meta:
        table_name = "known_pages"
        name = "knownpage"  # begins the names of its indexes
        indexes = ((("job", "url_key"), True), (("job", "id"), False))


class FingerprintTable(peewee.Model):
    """The originals of a run, a row for each band: see `near`."""

    run = peewee.BigIntegerField()
    band = peewee.BigIntegerField()
    seq = peewee.BigIntegerField()
    fingerprint = BytesField(32)

    class Meta:
        table_name = "fingerprints"
        primary_key = peewee.CompositeKey("run", "band", "seq")


class WorkerTable(peewee.Model):
    """Watermarks: results up to here are committed."""

    worker = peewee.CharField(255)
    incarnation = peewee.BigIntegerField()
    watermark = peewee.BigIntegerField()
    moved_at = peewee.DoubleField(**default("0"))  # 0: nobody noted it yet

    class Meta:
        table_name = "workers"
        primary_key = peewee.CompositeKey("worker", "incarnation")


class ClientRequestTable(peewee.Model):
    """Requests of clients that were carried out, so that a repeat only gets the answer."""

    id = peewee.CharField(255, primary_key=True)
    job = peewee.BigIntegerField()
    run = peewee.BigIntegerField()
    created_at = peewee.DoubleField()
    what = peewee.CharField(255, **default("''"))
    asked_by = peewee.CharField(255, **default("''"))
    via = peewee.CharField(255, **default("''"))  # the master that took it
    reply = peewee.BlobField(null=True)  # JSON; none: job and run say it all

    class Meta:
        table_name = "client_requests"
        name = "clientrequest"  # begins the names of its indexes
        indexes = ((("run", "created_at"), False),)


SEQUENCES = ("jobs", "runs", "requests", "hosts", "items", "known", "tokens", "audit")
PROBLEM_CHARACTERS = 1_000
PATH_BYTES = 2_000  # a part of a primary key, which MySQL limits to 3,072 bytes


class SchemaVersionTable(peewee.Model):
    version = peewee.IntegerField(primary_key=True)

    class Meta:
        table_name = "schema_version"


class SequenceTable(peewee.Model):
    """The last id given, of each kind. Ids are never used twice, also not after a delete."""

    name = peewee.CharField(32, primary_key=True)
    value = peewee.BigIntegerField()

    class Meta:
        table_name = "sequences"


class LeaderTable(peewee.Model):
    shard = peewee.IntegerField(primary_key=True)
    epoch = peewee.BigIntegerField()
    held_by = peewee.CharField(255)
    lease_until = peewee.DoubleField(**default("0"))
    taken_at = peewee.DoubleField()
    connection = peewee.BigIntegerField(**default("0"))  # of its writer; see dialects.mysql
    address = peewee.CharField(255, **default("''"))  # of that connection's client
    commits = peewee.BigIntegerField(**default("0"))  # transactions of leaders, ever

    class Meta:
        table_name = "leaders"


class JobTable(peewee.Model):
    id = IdField(primary_key=True)
    name = peewee.CharField(255, index=True)  # not unique: the name of a deleted job is free
    spec = peewee.BlobField()
    created_at = peewee.DoubleField()
    state = peewee.CharField(16, **default("'active'"))
    version = peewee.IntegerField(**default("1"))  # of `spec`
    owner = peewee.CharField(255, **default("''"))  # who submitted it first
    updated_at = peewee.DoubleField(**default("0"))
    schedule_from = peewee.DoubleField(**default("0"))  # UTC; 0: it has no [schedule]
    due_done = peewee.DoubleField(**default("0"))  # all due times up to it are dealt with
    due_held = peewee.DoubleField(null=True)  # a due time that waits for a live run
    due_note = peewee.CharField(255, **default("''"))  # why the last one started no run
    held = peewee.BlobField(null=True)  # JSON; a submission that waits for a live run

    class Meta:
        table_name = "jobs"
        name = "job"  # begins the names of its indexes


class JobVersionTable(peewee.Model):
    """Each spec that a job has had."""

    job = peewee.BigIntegerField()
    version = peewee.IntegerField()
    spec = peewee.BlobField()
    created_at = peewee.DoubleField()
    author = peewee.CharField(255)

    class Meta:
        table_name = "job_versions"
        primary_key = peewee.CompositeKey("job", "version")


class RunParentTable(peewee.Model):
    """The runs that started a run of another job: each is used once by a child, whoever leads."""

    job = peewee.BigIntegerField()  # the child
    parent = peewee.BigIntegerField()  # a run of one of its parents
    run = peewee.BigIntegerField(index=True)  # the child's run; 0: none was started

    class Meta:
        table_name = "run_parents"
        name = "runparent"  # begins the names of its indexes
        primary_key = peewee.CompositeKey("job", "parent")
        indexes = ((("parent",), False),)


class RunTable(peewee.Model):
    id = IdField(primary_key=True)
    job = peewee.BigIntegerField(index=True)
    state = peewee.CharField(16)
    reason = peewee.CharField(255, **default("''"))
    spec = peewee.BlobField()
    max_pages = peewee.BigIntegerField(null=True)
    seed_hosts = peewee.BlobField()  # JSON
    seeding = peewee.BooleanField()
    created_at = peewee.DoubleField()
    started_at = peewee.DoubleField()
    ended_at = peewee.DoubleField(**default("0"))
    admitted = peewee.BigIntegerField(**default("0"))
    pending = peewee.BigIntegerField(**default("0"))
    done = peewee.BigIntegerField(**default("0"))
    failed = peewee.BigIntegerField(**default("0"))
    skipped = peewee.BigIntegerField(**default("0"))
    items = peewee.BigIntegerField(**default("0"))
    bytes = peewee.BigIntegerField(**default("0"))
    cookies = peewee.BlobField(null=True)  # see rules.merge_cookies
    unchanged = peewee.BigIntegerField(**default("0"))
    recall = peewee.BigIntegerField(null=True)  # among the known pages of its job; see RunRow
    canonical = peewee.IntegerField(**default("1"))  # version of the canonical form of its keys
    idle_s = peewee.DoubleField(**default("0"))  # between an end and the retry that reopened it
    unfetched = peewee.BigIntegerField(**default("0"))  # requests not final when it ended
    version = peewee.IntegerField(**default("1"))  # of its job's spec
    cause = peewee.CharField(16, **default("'submitted'"))
    due_at = peewee.DoubleField(null=True)  # UTC, without jitter
    params = peewee.BlobField(null=True)  # JSON
    chain = peewee.BigIntegerField(**default("0"))  # the run that began it; 0: this one
    missing = peewee.BigIntegerField(**default("0"))  # of `failed`: answered with 404 or 410
    feed_run = peewee.BigIntegerField(**default("0"))  # whose items are its seeds
    feed_at = peewee.BigIntegerField(null=True)  # items up to it are admitted; NULL: all

    class Meta:
        table_name = "runs"
        name = "run"  # begins the names of its indexes
        # A due time starts one run, whoever leads. NULL, no due time, is never equal to NULL.
        indexes = ((("job", "due_at"), True),)


class RequestTable(peewee.Model):
    """Requests. The primary key is sequential: a random one is four times slower at 1 M rows."""

    seq = IdField(primary_key=True)
    run = peewee.BigIntegerField()
    url_key = BytesField(16)
    url = BytesField(URL_BYTES)
    host = peewee.BigIntegerField()
    prio = peewee.IntegerField()
    depth = peewee.IntegerField()
    parent = peewee.BigIntegerField(null=True)
    state = peewee.SmallIntegerField(**default("0"))
    attempts = peewee.IntegerField(**default("0"))
    crashes = peewee.IntegerField(**default("0"))
    due_at = peewee.DoubleField(**default("0"))
    reason = peewee.CharField(255, **default("''"))
    status = peewee.IntegerField(**default("0"))
    label = peewee.CharField(100, **default("''"))  # its block: the name of an old version
    extra = peewee.BlobField(null=True)  # of a spider's request: frontier.extra
    known = BytesField(4_500, null=True)  # of a page that an earlier run has met

    class Meta:
        table_name = "requests"
        name = "request"  # begins the names of its indexes
        indexes = ((("run", "url_key"), True),)


class HostTable(peewee.Model):
    id = IdField(primary_key=True)
    origin = BytesField(300, unique=True)
    owners = peewee.BlobField()  # JSON
    owned = peewee.BooleanField(**default("0"))
    next_at = peewee.DoubleField(**default("0"))
    crawl_delay = peewee.DoubleField(**default("0"))
    slow = peewee.DoubleField(**default("0"))  # seconds between requests that its answers ask for
    failures = peewee.IntegerField(**default("0"))  # in a row
    opens = peewee.IntegerField(**default("0"))  # of its breaker, since its last answer
    address = peewee.CharField(45, **default("''"))  # that it was found at

    class Meta:
        table_name = "hosts"
        name = "host"  # begins the names of its indexes


class RobotsTable(peewee.Model):
    """The newest robots.txt of a host. A separate table keeps the rows of `hosts` small."""

    host = IdField(primary_key=True)
    status = peewee.IntegerField()
    body = peewee.BlobField()  # compressed
    fresh_until = peewee.DoubleField()

    class Meta:
        table_name = "robots"


class PageTable(peewee.Model):
    seq = IdField(primary_key=True)
    final_url = BytesField(URL_BYTES)
    title = peewee.TextField(null=True)
    content_type = peewee.CharField(255)
    size = peewee.BigIntegerField()
    fetched_at = peewee.DoubleField()
    elapsed_ms = peewee.DoubleField()
    body = peewee.CharField(255, null=True)
    canonical = BytesField(URL_BYTES, null=True)
    alternates = peewee.BlobField(null=True)  # JSON: (hreflang, URL)
    files = peewee.CharField(255, null=True)  # JSON: kind → blob name

    class Meta:
        table_name = "pages"


class ItemTable(peewee.Model):
    """Items. On both backends the index also has the id, so a run's items come in order."""

    id = IdField(primary_key=True)
    run = peewee.BigIntegerField()
    seq = peewee.BigIntegerField()
    kind = peewee.SmallIntegerField(**default("0"))  # Kept
    data = peewee.BlobField()

    class Meta:
        table_name = "items"
        name = "item"  # begins the names of its indexes
        indexes = ((("run", "kind"), False),)


class OutputTable(peewee.Model):
    run = peewee.BigIntegerField()
    path = BytesField(PATH_BYTES)
    format = peewee.CharField(32)
    item_cursor = peewee.BigIntegerField(**default("0"))
    length = peewee.BigIntegerField(**default("0"))
    part = peewee.BigIntegerField(**default("0"))
    part_at = peewee.DoubleField(**default("0"))
    problem = peewee.CharField(PROBLEM_CHARACTERS, **default("''"))  # why it is not written now
    progress = peewee.BlobField(null=True)  # JSON: store.output_pieces

    class Meta:
        table_name = "outputs"
        primary_key = peewee.CompositeKey("run", "path")


class TallyTable(peewee.Model):
    run = peewee.BigIntegerField()
    kind = peewee.CharField(16)  # status, failed, skipped, link, dropped, and those of extractions
    name = peewee.CharField(255)
    n = peewee.BigIntegerField()

    class Meta:
        table_name = "tallies"
        primary_key = peewee.CompositeKey("run", "kind", "name")


class ExampleTable(peewee.Model):
    """The first requests of each reason of a tally, with what happened to them: bounded by
    `rules`, so a run with a million failures has no more rows than a run with a thousand."""

    run = peewee.BigIntegerField()
    kind = peewee.CharField(16)  # failed, skipped, rejected
    name = peewee.CharField(255)  # as in `tallies`
    seq = peewee.BigIntegerField()
    detail = peewee.CharField(MOST_DETAIL)

    class Meta:
        table_name = "examples"
        primary_key = peewee.CompositeKey("run", "kind", "name", "seq")


class HistoryTable(peewee.Model):
    """What the charts show: one row for ten seconds or a minute of the whole cluster.

    The leader removes old rows with every write, so the table has at most 1,900 of them.
    """

    step = peewee.IntegerField()  # seconds
    at = peewee.BigIntegerField()  # its beginning, UTC, a multiple of `step`
    seconds = peewee.DoubleField()  # of it that were counted
    cluster = peewee.BlobField()  # see model.history
    runs = peewee.BlobField()
    hosts = peewee.BlobField()

    class Meta:
        table_name = "history"
        primary_key = peewee.CompositeKey("step", "at")


class UserTable(peewee.Model):
    name = peewee.CharField(255, primary_key=True)
    role = peewee.CharField(16)
    rights = peewee.CharField(255)  # names, with commas
    disabled = peewee.BooleanField(**default("0"))
    most_live_runs = peewee.BigIntegerField(null=True)  # NULL: no limit
    most_queued = peewee.BigIntegerField(null=True)
    most_rate = peewee.DoubleField(null=True)
    created_at = peewee.DoubleField()
    created_by = peewee.CharField(255)

    class Meta:
        table_name = "users"


class TokenTable(peewee.Model):
    """API tokens. `digest` is made with the key of `hash_keys`; the token itself is nowhere."""

    id = IdField(primary_key=True)
    prefix = peewee.CharField(32, unique=True)
    digest = peewee.CharField(64)
    user = peewee.CharField(255, index=True)
    role = peewee.CharField(16)
    scopes = peewee.CharField(255, null=True)  # rights, with commas; NULL: all of its user
    created_at = peewee.DoubleField()
    created_by = peewee.CharField(255)
    expires_at = peewee.DoubleField(**default("0"))  # 0: never
    revoked_at = peewee.DoubleField(**default("0"))  # 0: it is not
    last_used_at = peewee.DoubleField(**default("0"))

    class Meta:
        table_name = "tokens"
        name = "token"  # begins the names of its indexes


class AuditTable(peewee.Model):
    """Who did what. Rows are only added, and removed by `zcrawl audit --archive` alone."""

    id = IdField(primary_key=True)
    at = peewee.DoubleField()
    user = peewee.CharField(255)
    role = peewee.CharField(16)
    through = peewee.CharField(255)
    address = peewee.CharField(255)
    via = peewee.CharField(255)
    op = peewee.CharField(255)
    target = peewee.CharField(255)
    result = peewee.CharField(255)
    detail = peewee.TextField()
    job = peewee.BigIntegerField(**default("0"))
    run = peewee.BigIntegerField(**default("0"))

    class Meta:
        table_name = "audit"
        name = "audit"  # begins the names of its indexes
        indexes = ((("user", "id"), False),)


class HashKeyTable(peewee.Model):
    """One row: the key of the digests in `tokens`, made with the table."""

    id = peewee.IntegerField(primary_key=True)
    value = BytesField(32)

    class Meta:
        table_name = "hash_keys"


MODELS: tuple[type[peewee.Model], ...] = (
    SchemaVersionTable,
    SequenceTable,
    LeaderTable,
    JobTable,
    JobVersionTable,
    RunParentTable,
    SecretTable,
    RunTable,
    RequestTable,
    HostTable,
    RobotsTable,
    PageTable,
    ItemTable,
    WorkerTable,
    ClientRequestTable,
    OutputTable,
    TallyTable,
    ExampleTable,
    KnownPageTable,
    FingerprintTable,
    *INTENTS,
    HistoryTable,
    UserTable,
    TokenTable,
    AuditTable,
    HashKeyTable,
)


def _create(session: Session, dialect: Dialect) -> None:
    database = session.database
    options = dialect.table_options(session)
    with database.bind_ctx(MODELS):
        if database.get_tables():  # an interrupted creation: on MySQL, DDL has no transaction
            database.drop_tables([model for model in MODELS if model is not SchemaVersionTable])
        else:
            _create_table(session, SchemaVersionTable, options)
            session.run("INSERT INTO schema_version (version) VALUES (0)")
        for model in MODELS:
            if model is not SchemaVersionTable:
                _create_table(session, model, options)
    for statement in dialect.index_statements:
        session.run(statement)
    for name in SEQUENCES:
        session.run("INSERT INTO sequences (name, value) VALUES (?, 0)", (name,))
    _add_hash_key(session)


def _add_hash_key(session: Session) -> None:
    if session.fetch_row("SELECT 1 FROM hash_keys") is None:
        key = secrets.token_bytes(32)
        session.run("INSERT INTO hash_keys (id, value) VALUES (1, ?)", (key,))


def _create_table(session: Session, model: type[peewee.Model], options: str) -> None:
    schema = model._schema  # type: ignore[attr-defined]
    sql, _ = schema._create_table(safe=False).query()
    session.run(sql + options)
    schema.create_indexes(safe=False)


def add_column(session: Session, table: str, column: str, definition: str) -> None:
    """Add a column unless it exists, because a migration may have been interrupted."""
    names = [metadata.name for metadata in session.database.get_columns(table)]
    if column not in names:
        session.run(f"ALTER TABLE {table} ADD COLUMN {column} {definition}")


def _add_fields(session: Session, model: type[peewee.Model], *names: str) -> None:
    """Add columns as their model defines them, so that old and new databases are equal."""
    for name in names:
        context: Any = session.database.get_sql_context()
        ddl, _ = context.sql(model._meta.fields[name].ddl(context)).query()
        add_column(session, model._meta.table_name, name, ddl.partition(" ")[2])


def _tell_the_leaders_connection(session: Session) -> None:
    add_column(session, "leaders", "connection", "BIGINT NOT NULL DEFAULT 0")
    add_column(session, "leaders", "address", "VARCHAR(255) NOT NULL DEFAULT ''")
    add_column(session, "leaders", "commits", "BIGINT NOT NULL DEFAULT 0")


def _add_labels_and_kinds(session: Session) -> None:
    """Add columns for extraction (block of a request, kind of a record) and for output parts."""
    add_column(session, "requests", "label", "VARCHAR(100) NOT NULL DEFAULT ''")
    add_column(session, "items", "kind", "SMALLINT NOT NULL DEFAULT 0")
    add_column(session, "outputs", "part", "BIGINT NOT NULL DEFAULT 0")
    add_column(session, "outputs", "part_at", "DOUBLE NOT NULL DEFAULT 0")
    indexes = [index.name for index in session.database.get_indexes("items")]
    if "item_run_kind" not in indexes:
        session.run("CREATE INDEX item_run_kind ON items (run, kind)")
    if "item_run" in indexes:
        mysql = isinstance(session.database, peewee.MySQLDatabase)
        session.run("DROP INDEX item_run" + (" ON items" if mysql else ""))


def _keep_cookies(session: Session) -> None:
    add_column(session, "runs", "cookies", "BLOB")


def _add_manners(session: Session) -> None:
    """Add columns for the health of hosts, and for canonical links of pages."""
    _add_fields(session, HostTable, "slow", "failures", "opens")
    _add_fields(session, PageTable, "canonical", "alternates")
    if "robots" not in session.database.get_tables():
        with session.database.bind_ctx((RobotsTable,)):
            _create_table(session, RobotsTable, "")  # it holds no text: no collation to choose


def _name_pictures(session: Session) -> None:
    add_column(session, "pages", "files", "VARCHAR(255)")


def _add_extras(session: Session) -> None:
    mysql = isinstance(session.database, peewee.MySQLDatabase)
    add_column(session, "requests", "extra", "LONGBLOB" if mysql else "BLOB")


def _remember_pages(session: Session) -> None:
    """Add the table of pages that jobs know across their runs."""
    _add_fields(session, RunTable, "unchanged", "recall")
    _add_fields(session, RequestTable, "known")
    if "known_pages" not in session.database.get_tables():
        with session.database.bind_ctx((KnownPageTable,)):
            _create_table(session, KnownPageTable, "")
    if session.fetch_row("SELECT 1 FROM sequences WHERE name = 'known'") is None:
        session.run("INSERT INTO sequences (name, value) VALUES ('known', 0)")


def _find_duplicates(session: Session) -> None:
    _add_fields(session, KnownPageTable, "fingerprint")
    if "fingerprints" not in session.database.get_tables():
        with session.database.bind_ctx((FingerprintTable,)):
            _create_table(session, FingerprintTable, "")


def _keep_addresses(session: Session) -> None:
    _add_fields(session, HostTable, "address")


def _tell_ages_and_askers(session: Session) -> None:
    """Add times of watermarks, stored answers to clients, and who sent the requests."""
    _add_fields(session, WorkerTable, "moved_at")
    _add_fields(session, ClientRequestTable, "what", "asked_by", "via", "reply")
    indexes = [index.name for index in session.database.get_indexes("client_requests")]
    if "clientrequest_run_created_at" not in indexes:
        columns = "client_requests (run, created_at)"
        session.run(f"CREATE INDEX clientrequest_run_created_at ON {columns}")


def _tell_what_hinders_outputs(session: Session) -> None:
    _add_fields(session, OutputTable, "problem")


def _keep_pieces_of_outputs(session: Session) -> None:
    _add_fields(session, OutputTable, "progress")


def _tell_canonical_versions(session: Session) -> None:
    """Add the version of the canonical form of a run's keys; existing runs have version 1."""
    _add_fields(session, RunTable, "canonical")


def _count_what_runs_left(session: Session) -> None:
    """How long a run rested before a retry, and what it had not fetched when it ended."""
    _add_fields(session, RunTable, "idle_s", "unfetched")


def _shut_out_older_masters(session: Session) -> None:
    """Rename a column that every takeover writes, so that a master of an older version, which has
    opened the database before, fails to take over. It would not see pending runs."""
    columns = [metadata.name for metadata in session.database.get_columns("leaders")]
    if "held_by" not in columns:
        session.run("ALTER TABLE leaders RENAME COLUMN holder TO held_by")


def _let_jobs_live_without_runs(session: Session) -> None:
    """Add states, versions and owners of jobs, and what runs store about their start.

    Until now a job was deleted when all its runs were."""
    _shut_out_older_masters(session)
    _add_fields(session, JobTable, "state", "version", "owner", "updated_at")
    _add_fields(session, RunTable, "version", "cause", "due_at", "params", "chain", "missing")
    indexes = [index.name for index in session.database.get_indexes("runs")]
    if "run_job_due_at" not in indexes:
        session.run("CREATE UNIQUE INDEX run_job_due_at ON runs (job, due_at)")
    session.run("UPDATE jobs SET updated_at = created_at WHERE updated_at = 0")
    session.run(
        "UPDATE jobs SET state = 'deleted' WHERE NOT EXISTS "
        "(SELECT 1 FROM runs WHERE runs.job = jobs.id AND runs.state <> 'deleted')"
    )


def _fire_jobs(session: Session) -> None:
    """Add how far the due times of jobs are dealt with, and runs whose seeds are items."""
    _add_fields(session, JobTable, "schedule_from", "due_done", "due_held", "due_note")
    _add_fields(session, RunTable, "feed_run", "feed_at")


def _hold_submissions(session: Session) -> None:
    """Add the submission that waits until no run of its job is alive."""
    _add_fields(session, JobTable, "held")


def _know_users(session: Session) -> None:
    """Make the key that the digests of tokens need, and the sequences of tokens and the audit."""
    if "hash_keys" not in session.database.get_tables():
        with session.database.bind_ctx((HashKeyTable,)):
            _create_table(session, HashKeyTable, "")  # it holds no text: no collation to choose
    _add_hash_key(session)
    for name in ("tokens", "audit"):
        if session.fetch_row("SELECT 1 FROM sequences WHERE name = ?", (name,)) is None:
            session.run("INSERT INTO sequences (name, value) VALUES (?, 0)", (name,))


# Migration n leads from version n - 1 to n. A new database is made from the models as they are,
# with the newest version at once; a test compares both ways. Each step can be repeated.
MIGRATIONS: dict[int, Callable[[Session], None]] = {
    2: _tell_the_leaders_connection,
    3: _add_labels_and_kinds,
    4: _keep_cookies,
    5: _add_manners,
    6: _name_pictures,
    7: _add_extras,
    8: _remember_pages,
    9: _find_duplicates,
    10: _keep_addresses,
    11: _tell_ages_and_askers,
    12: _tell_what_hinders_outputs,
    13: _keep_pieces_of_outputs,
    14: _tell_canonical_versions,
    16: _count_what_runs_left,
    17: _let_jobs_live_without_runs,
    18: _fire_jobs,
    19: _hold_submissions,
    20: _know_users,
}
NEW_TABLES: dict[int, tuple[type[peewee.Model], ...]] = {
    14: INTENTS,  # drains, wishes and retries outlive their leader
    15: (ExampleTable,),  # what happened to the first requests of each reason
    16: (HistoryTable,),  # charts that outlive their leader
    17: (JobVersionTable,),  # what changed in a job, when and by whom
    21: (SecretTable,),  # sealed secrets of jobs
    18: (RunParentTable,),  # which runs started runs of other jobs
    20: (UserTable, TokenTable, AuditTable),  # who may do what, and who did what
}
VERSION = max(*MIGRATIONS, *NEW_TABLES)


# From this version on a takeover migrates, not the first process that opens the database: until
# then a leader of the older version goes on. Databases before it were never released.
MIGRATED_BY_LEADERS = 16


def migrate(session: Session, dialect: Dialect) -> None:
    """Bring the schema to VERSION. The caller holds the lock and the transaction."""
    stored = read_version(session, dialect.where)
    if stored == VERSION:
        return
    if stored == 0:
        _create(session, dialect)
    else:
        for version in range(stored + 1, VERSION + 1):
            if version in MIGRATIONS:
                MIGRATIONS[version](session)
            _create_missing(session, dialect, NEW_TABLES.get(version, ()))
    session.run("UPDATE schema_version SET version = ?", (VERSION,))


def _create_missing(
    session: Session, dialect: Dialect, models: tuple[type[peewee.Model], ...]
) -> None:
    tables = session.database.get_tables()
    with session.database.bind_ctx(models):
        for model in models:
            if model._meta.table_name not in tables:
                _create_table(session, model, dialect.table_options(session))


def read_version(session: Session, where: str) -> int:
    """Return the schema version; 0: empty database. Refuse foreign and newer databases."""
    tables = session.database.get_tables()
    if not tables:
        return 0
    if "schema_version" not in tables:
        raise StoreCorrupt(
            f"{where} is a database of another program (its tables: {', '.join(tables[:5])}); "
            "choose another place"
        )
    return stored_version(session, where)


def stored_version(session: Session, where: str) -> int:
    """Return the schema version of a database of zcrawl. Refuse newer ones."""
    row = session.fetch_row("SELECT version FROM schema_version")
    version = int(row[0]) if row else 0
    if version > VERSION:
        raise StoreError(
            f"{where} has schema version {version}, this zcrawl knows {VERSION}: "
            "it was written by a newer zcrawl; upgrade this one",
            code=SCHEMA_NEWER,
        )
    return version
