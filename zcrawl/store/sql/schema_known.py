"""The tables of what pages are recognised by. A part of `schema`.

`known_pages` belongs to jobs, across their runs, and only jobs with `recrawl.incremental` have rows
in it; `fingerprints` belongs to runs that look for near duplicates. No column holds text, so that
the tables are the same whichever way they were made.
"""

from __future__ import annotations

import peewee

from zcrawl.store.sql.fields import URL_BYTES, BytesField, IdField, default


class KnownPage(peewee.Model):
    id = IdField(primary_key=True)
    job = peewee.BigIntegerField()
    url_key = BytesField(16)
    url = BytesField(URL_BYTES)
    host = peewee.BigIntegerField()
    depth = peewee.IntegerField()
    label = BytesField(400)
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
        indexes = ((("job", "url_key"), True), (("job", "id"), False))


class Fingerprint(peewee.Model):
    """The originals of a run, a row for each band: see `near`."""

    run = peewee.BigIntegerField()
    band = peewee.BigIntegerField()
    seq = peewee.BigIntegerField()
    fingerprint = BytesField(32)

    class Meta:
        table_name = "fingerprints"
        primary_key = peewee.CompositeKey("run", "band", "seq")
