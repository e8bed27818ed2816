"""Messages of the right types and without any sense, to a leader: it never fails at one (G7).

What does not even decode is the codec's business (`tests/contract/test_mesh`).
"""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import msgspec.inspect as types
import pytest

from tests.unit.machine_tools import LeaderStory, header, route_of, urls
from zcrawl.master import events as m
from zcrawl.mesh.codec import decode, encode
from zcrawl.mesh.messages import BODY_TYPES, PROTOCOL_VERSION, Body, Header, MessageKind, Result

STORIES = 200
STEPS = 60
ROUTES = (b"", b"", b"x", *[route_of("w1", 1)] * 5)
FROM_OTHERS = (
    *(
        MessageKind.HELLO,
        MessageKind.HEARTBEAT,
        MessageKind.ACCEPT,
        MessageKind.REJECT,
        MessageKind.BYE,
        MessageKind.LINES,
        MessageKind.STALE,
    ),
    *(
        MessageKind.VITALS,
        MessageKind.BEAT,
        MessageKind.SNAPSHOT,
        MessageKind.REQUEST,
        *[MessageKind.RESULT] * 4,
    ),
)
NUMBERS = (0, 1, 2, 3, 5, -1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 10**6)
FLOATS = (0.0, 1.0, -1.0, 1e308, math.inf, -math.inf, math.nan, 1e-300, 3600.0)
TEXTS = ("", "a", "w1", "http://a.test/1", "x" * 3000, "\0", "\U0001f600", "//", "run 9" + "9" * 30)
BLOBS = (b"", b"\0\xff", b"{}", b'{"n":1}', b"x" * 100)
OPS = (
    *("submit", "add_seeds", "jobs", "job", "act", "nodes", "drain", "tune", "reassign", "items"),
    *("failed", "hosts", "queues", "lanes", "errors", "events", "in_flight", "role", "overview"),
    *("history", "node", "depths", "masters", "nonsense"),
)
ARGUMENTS = (
    *("ref", "action", "run", "node", "host", "seeds", "spec", "mode", "seeding", "output", "last"),
    *("tag", "rate", "concurrency", "burst", "before", "text", "limit", "reason", "after"),
    *("filter", "inverse", "sort", "desc", "offset", "by", "span_s", "worker", "vouched"),
    "opened",
)
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2**63, None, "", "1", "pause", "retry", "new", [], {}, ["http://a.test/x"], [1]),
    *([None], {"name": "x"}, {"name": "x", "scope": 1}, 1.5, math.nan, math.inf, True, b"\xff"),
)


class Unchecked(LeaderStory):
    """False messages may break assertions of `check`; the leader's own machine must not fail."""

    def handle(self, event: m.MasterEvent) -> None:
        for effect in self.master.handle(event, self.now, self.now + 1.7e9):
            self._do(effect)


def anything(rng: random.Random, kind: types.Type) -> Any:
    """A value of this type, extreme as often as not."""
    match kind:
        case types.StructType():
            given = [field for field in kind.fields if field.required or rng.random() < 0.4]
            return kind.cls(**{field.name: anything(rng, field.type) for field in given})
        case types.IntType():
            return rng.choice([n for n in NUMBERS if _within(n, kind)])
        case types.FloatType():
            return rng.choice([n for n in FLOATS if math.isnan(n) or _within(n, kind)])
        case types.StrType():
            return rng.choice(TEXTS)[: kind.max_length]
        case types.BytesType():
            return (rng.choice(BLOBS) + bytes(kind.min_length or 0))[: kind.max_length]
        case types.BoolType():
            return rng.random() < 0.5
        case types.UnionType():
            return anything(rng, rng.choice(kind.types))
        case types.ListType() | types.VarTupleType():
            return [anything(rng, kind.item_type) for _ in range(rng.choice((0, 0, 1, 3)))]
        case types.TupleType():
            return tuple(anything(rng, part_type) for part_type in kind.item_types)
        case types.DictType():
            keys = [anything(rng, kind.key_type) for _ in range(rng.choice((0, 0, 1, 2)))]
            return {key: anything(rng, kind.value_type) for key in keys}
        case types.EnumType():
            return rng.choice(list(kind.cls))
        case types.AnyType():
            return rng.choice(VALUES)
        case _:
            return None


def _within(n: float, kind: types.IntType | types.FloatType) -> bool:
    return (kind.ge is None or n >= kind.ge) and (kind.le is None or n <= kind.le)


SHAPES = {kind: types.type_info(body) for kind, body in BODY_TYPES.items()}


def message(rng: random.Random, kind: MessageKind, story: LeaderStory) -> tuple[Header, Body]:
    body = anything(rng, SHAPES[kind])
    source = (rng.choice(("w1", "w1", "w2", "x" * 200)), rng.choice((1, 1, 1, 2, 2**63 - 1)))
    epoch = rng.choice((*[story.master.epoch] * 6, 0, 0, 0, 2**40))
    number = rng.choice((0, 1, 2**63 - 1))
    if isinstance(body, Result):
        number = story.numbers[source] = story.numbers.get(source, 0) + 1
        if story.assigned() and rng.random() < 0.7:
            assignment = rng.choice(story.assigned())
            about = {
                "seq": assignment.seq,
                "run": assignment.run,
                "host": assignment.host,
                "lease_n": assignment.n,
            }
            body = msgspec.structs.replace(body, lease_epoch=epoch, **about)
    subject = body.seq if isinstance(body, Result) else 0
    return Header(PROTOCOL_VERSION, kind, 0, epoch, *source, number, subject), body


@pytest.mark.parametrize("first", range(0, STORIES, 50))
def test_a_leader_fails_at_no_message_that_has_the_right_types(first: int) -> None:
    """Whatever workers and clients say, it is handled, and all that is said in turn can be sent.
    Arguments without sense are the client's error, and never one of the leader's own."""
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        story = Unchecked().elect()
        story.submit(*urls(20))
        story.join()
        for _ in range(STEPS):
            kind = rng.choice(FROM_OTHERS)
            if kind is MessageKind.REQUEST:
                names = rng.sample(ARGUMENTS, rng.randrange(6))
                story.ask(rng.choice(OPS), **{name: rng.choice(VALUES) for name in names})
            else:
                came = decode(encode(*message(rng, kind, story)))
                story.handle(m.MessageCame(came, rng.choice(ROUTES)))
                story.tick(rng.choice((0.02, 0.3, 1.1)))
            failed = [note.detail for note in story.notes if note.name == "internal_error"]
            assert not failed, failed[0]
            for said in (
                *story.published,
                *(effect.body for effect in story.sent[-9:]),
                *story.replies,
            ):
                encode(header(said), said)
            story.published.clear()
            story.replies.clear()
