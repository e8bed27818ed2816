"""The names of tables and indexes are stored: they do not follow the names of classes."""

from __future__ import annotations

import peewee

from zcrawl.store.sql.schema import MODELS

TABLES = {
    "audit",
    "hash_keys",
    "tokens",
    "users",
    "client_requests",
    "drains",
    "examples",
    "fingerprints",
    "history",
    "hosts",
    "items",
    "job_versions",
    "jobs",
    "known_pages",
    "leaders",
    "outputs",
    "pages",
    "requests",
    "retries",
    "robots",
    "run_parents",
    "secrets",
    "runs",
    "schema_version",
    "sequences",
    "tallies",
    "wishes",
    "workers",
}
INDEXES = {
    "audit_user_id",
    "token_prefix",
    "token_user",
    "clientrequest_run_created_at",
    "host_origin",
    "item_run_kind",
    "job_name",
    "knownpage_job_id",
    "knownpage_job_url_key",
    "request_run_url_key",
    "run_job",
    "run_job_due_at",
    "runparent_parent",
    "runparent_run",
}


def test_tables_have_the_names_that_databases_have() -> None:
    """A class of the schema may be renamed; its table keeps its name."""
    assert {model._meta.table_name for model in MODELS} == TABLES


def test_indexes_have_the_names_that_databases_have() -> None:
    """peewee begins the name of an index with the name of the class, unless Meta has a `name`.
    Migrations look for indexes by their names."""
    database = peewee.SqliteDatabase(":memory:")
    names = set()
    with database.bind_ctx(MODELS):
        database.create_tables(MODELS)
        for model in MODELS:
            names |= {index.name for index in database.get_indexes(model._meta.table_name)}
    database.close()
    assert {name for name in names if not name.startswith("sqlite_")} == INDEXES
