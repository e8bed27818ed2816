"""The tables of what people asked for and what outlives a transaction. A part of `schema`.

Whoever leads loads them at its takeover and goes on from there: `master.desk.actions`.
"""

from __future__ import annotations

import peewee

from zcrawl.store.sql.fields import IdField


class Drain(peewee.Model):
    """Workers that get no work until they are undrained, or their node is started anew."""

    worker = peewee.CharField(255, primary_key=True)
    life = peewee.BigIntegerField()
    created_at = peewee.DoubleField()

    class Meta:
        table_name = "drains"


class Wish(peewee.Model):
    """Hosts that a person gave to a worker."""

    host = IdField(primary_key=True)
    worker = peewee.CharField(255)
    created_at = peewee.DoubleField()

    class Meta:
        table_name = "wishes"


class Retry(peewee.Model):
    """Retries that are under way. The last part removes its row and stores the answer."""

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


INTENTS: tuple[type[peewee.Model], ...] = (Drain, Wish, Retry)
