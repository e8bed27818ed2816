"""The tables that keep anything from being done twice. A part of `schema`.

Both would grow for ever, so the leader removes what nobody can ask about any more: `master.pruning`
says what that is.
"""

from __future__ import annotations

import peewee

from zcrawl.store.sql.fields import default


class Worker(peewee.Model):
    """Watermarks: results up to here are committed."""

    worker = peewee.CharField(255)
    incarnation = peewee.BigIntegerField()
    watermark = peewee.BigIntegerField()
    moved_at = peewee.DoubleField(**default("0"))  # 0: nobody noted it yet

    class Meta:
        table_name = "workers"
        primary_key = peewee.CompositeKey("worker", "incarnation")


class ClientRequest(peewee.Model):
    """What clients had done, so that a repeat is answered and not done again."""

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
        indexes = ((("run", "created_at"), False),)
