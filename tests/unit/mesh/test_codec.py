"""Frames to messages and back, and whatever else a socket may bring."""

from __future__ import annotations

import itertools
import json
import random
import sys
import time

import msgpack
import msgspec
import pytest

from tests.unit.machine_tools import assignment, grant, header, heartbeat, hello, link, result
from zcrawl.errors import DecodeError
from zcrawl.mesh import codec
from zcrawl.mesh.messages import (
    BODY_TYPES,
    HELD_MOST,
    PROTOCOL_VERSION,
    Accept,
    Ack,
    Assign,
    BadBody,
    Beat,
    Body,
    Bye,
    Cancel,
    ClientRequest,
    Code,
    Drain,
    Event,
    HeldLease,
    LogRecord,
    LogRecords,
    Message,
    MessageKind,
    NotLeader,
    Rehello,
    Reject,
    Rejection,
    Reloaded,
    ReloadNode,
    Reply,
    RunConfig,
    RunConfigs,
    Snapshot,
    Stale,
    Welcome,
)
from zcrawl.model.reload_report import ReloadReport
from zcrawl.model.snapshot import LiveRunView, PublishedSnapshot
from zcrawl.model.vitals import Vitals

BODIES: list[Body] = [
    hello(held=[HeldLease(1, True, assignment(1, 2))]),
    heartbeat(5.0, held=[(1, 2, True)]),
    Accept(3, [(1, 2)]),
    Reject([Rejection(1, 2, "no_grant"), Rejection(1, 3, "lacks", "spider 'a'")]),
    result(links=[link("http://a.test/ä"), link("http://b.test/")], handover=link("http://c.test")),
    Bye("drained"),
    LogRecords([LogRecord(0.5, "info", "exit", "ä")], 3),
    Welcome(7, 1.0, 1, [grant()], [1, 2]),
    Assign([grant()], [assignment(1, 2, parent="http://a.test/")]),
    Ack(9, 8, b"\x00\x01", 12, [(10, 11)]),
    Cancel([1], [(1, 2)]),
    Rehello("unknown", 3),
    Stale("stale_epoch"),
    NotLeader(None),
    Drain(True),
    Code("00" * 32, b"class Books: ..."),
    RunConfigs([RunConfig(1, 2, b"{}", ["a.test"])]),
    Beat("m1", 1.0, {"w1": (5, 6, 7.5)}),
    Event("x", {"a": [1, None, "b"]}),
    Snapshot(PublishedSnapshot("m1", 1, runs=(LiveRunView(1, 1, pages=1),))),
    Vitals(61_000_000, 2.5),
    ReloadNode("r1", ["m2"]),
    Reloaded("r1", "w1", ReloadReport(["log.level: info → error"], [], "")),
    ClientRequest("q", "jobs", {}),
    Reply("q", False, {"code": "x"}),
]
FUZZED_FRAMES = 110_000


def frames_of(body: Body) -> list[bytes]:
    return codec.encode(header(body, sequence=4, subject=1), body)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_message_survives_the_wire(body: Body) -> None:
    """What was encoded is decoded to an equal message, whatever its kind."""
    assert codec.decode(frames_of(body)) == Message(header(body, sequence=4, subject=1), body)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_the_bytes_are_those_that_msgpack_writes(body: Body) -> None:
    """Whoever has only msgpack, in whatever language, writes and reads the same frames."""
    parts = (header(body, sequence=4, subject=1), body)
    plain = [msgspec.to_builtins(part, builtin_types=(bytes,)) for part in parts]
    assert frames_of(body) == [msgpack.packb(part) for part in plain]


def test_every_kind_is_tried() -> None:
    """The union is closed: a new kind must come here."""
    assert {type(body) for body in BODIES} == set(BODY_TYPES.values())


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", msgpack.packb([1]), msgpack.packb({"a": 1}), b"\x91" * 5_000],
    ids=["empty", "no-msgpack", "too-short", "a-map", "deep"],
)
def test_a_bad_body_under_a_good_header_keeps_the_header(body: bytes) -> None:
    """Rule `bad results`: a numbered result can be consumed though nobody can read it."""
    head = frames_of(result())[0]
    message = codec.decode([head, body])
    assert isinstance(message, BadBody)
    assert message.header == header(MessageKind.RESULT, sequence=4, subject=1)
    assert 0 < len(message.error) <= 200


@pytest.mark.parametrize(
    ("field", "value"),
    [("attempt", 0), ("status", 1_000), ("retry_after_s", -1.0), ("depth", -1), ("seq", 2**63)],
)
def test_a_result_out_of_bounds_is_a_bad_body(field: str, value: object) -> None:
    """A number that the store could not take does not get as far as the store."""
    good = result()
    raw = msgpack.unpackb(frames_of(good)[1])
    raw[good.__struct_fields__.index(field)] = value
    message = codec.decode([frames_of(good)[0], msgpack.packb(raw)])
    assert isinstance(message, BadBody)


@pytest.mark.parametrize("field", ["version", "hostname"])
def test_a_worker_cannot_fill_the_snapshots_by_its_name(field: str) -> None:
    """They are in each SNAPSHOT, once a second to everybody: 14 MB of host name were sent on."""
    good = hello()
    raw = msgpack.unpackb(frames_of(good)[1])
    raw[good.__struct_fields__.index(field)] = "x" * 1_000
    assert isinstance(codec.decode([frames_of(good)[0], msgpack.packb(raw)]), BadBody)


@pytest.mark.parametrize("begin", [b"\x91", b"\x81\xa1a"], ids=["lists", "maps"])
@pytest.mark.parametrize("depth", [codec.MAX_DEPTH, 500, 980, 1_010])
def test_a_request_that_nests_deep_is_a_bad_body(begin: bytes, depth: int) -> None:
    """Whatever encodes or shows its arguments would raise RecursionError, inside the leader."""
    head, body = frames_of(ClientRequest("r", "overview", {"run": 0}))
    before, zero, after = body.partition(b"run\x00")
    message = codec.decode([head, before + zero[:-1] + begin * depth + b"\x00" + after])
    assert isinstance(message, BadBody)
    assert "more than 64 deep" in message.error


def request_with(value: bytes) -> Message | BadBody:
    """A request whose argument is this MessagePack, decoded."""
    head, body = frames_of(ClientRequest("r", "overview", {"run": 0}))
    before, zero, after = body.partition(b"run\x00")
    return codec.decode([head, before + zero[:-1] + value + after])


@pytest.mark.parametrize("depth", [1, 100, 900, 990, 1_010])
def test_a_request_with_lists_as_keys_is_a_bad_body(depth: int) -> None:
    """Lists in a key are not seen by a check of the values, and nest as deep."""
    message = request_with(b"\x81" + b"\x91" * depth + b"\x00" + b"\x00")
    assert isinstance(message, BadBody)


def test_keys_of_equal_hash_are_refused_before_a_map_is_built() -> None:
    """Each key is compared with all before it: 20,000 of them held a leader for 5 s."""
    equal_hashes = [5 + n * sys.hash_info.modulus for n in range(8)]
    keys = list(itertools.islice(itertools.product(equal_hashes, repeat=5), 20_000))
    assert len(set(map(hash, keys[:100]))) == 1
    pairs = b"".join(msgpack.packb(key) + b"\x00" for key in keys)
    began = time.process_time()
    message = request_with(b"\xdf" + len(keys).to_bytes(4, "big") + pairs)
    assert isinstance(message, BadBody)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "value",
    [b"\xd4\x05\x00", b"\xd6\xff\x00\x00\x00\x00", b"\x91\xd4\x05\x00", b"\x81\x01\x00"],
    ids=["extension", "timestamp", "extension-in-a-list", "number-as-key"],
)
def test_a_request_with_other_types_than_json_is_a_bad_body(value: bytes) -> None:
    """No client sends them, and nothing that reads arguments expects them."""
    assert isinstance(request_with(value), BadBody)


ENTRIES = HELD_MOST + 1


@pytest.mark.parametrize(
    "body",
    [
        hello(reported=[(1, 1, 1, 1)] * ENTRIES),
        hello(granted=[(1, 1)] * ENTRIES),
        hello(held=[HeldLease(1, True, assignment(1, 2))] * ENTRIES),
        heartbeat(held=[(1, 1, True)] * ENTRIES),
        Accept(1, [(1, 1)] * ENTRIES),
        Reject([Rejection(1, 1, "x")] * ENTRIES),
    ],
    ids=["reported", "granted", "held", "heartbeat", "accept", "reject"],
)
def test_a_worker_holds_no_more_than_a_worker_can(body: Body) -> None:
    """The leader goes through such a list in its event loop. 16 MB took it a second, and a worker
    may send any number of messages."""
    assert isinstance(codec.decode(frames_of(body)), BadBody)


LISTS = 1_500_000


@pytest.mark.parametrize(
    "value",
    [
        b"\xdd" + LISTS.to_bytes(4, "big") + b"\x90" * LISTS,
        b"\xdc\xff\xff" + (b"\xdc\x00\x10" + b"\x80" * 16) * 0xFFFF,
        b"\xdf" + LISTS.to_bytes(4, "big") + b"".join(b"\xa7%07d\x01" % n for n in range(LISTS)),
    ],
    ids=["lists", "tables", "keys"],
)
def test_a_request_with_very_many_values_is_refused_at_once(value: bytes) -> None:
    """The leader decodes requests in its event loop: 16 MB of empty lists took it 5 s."""
    message = request_with(value)
    assert isinstance(message, BadBody)
    assert "100000" in message.error

    def step_s() -> float:
        began = time.process_time()
        request_with(value)
        return time.process_time() - began

    assert min(step_s() for _ in range(3)) < 0.25


def test_a_request_that_nests_as_jobs_do_is_read() -> None:
    """A schema of a job nests ten deep or twenty."""
    value = json.loads('{"a":[' * 25 + "0" + "]}" * 25)
    message = codec.decode(frames_of(ClientRequest("r", "submit", {"spec": value})))
    assert isinstance(message, Message)
    assert isinstance(message.body, ClientRequest)
    assert message.body.args["spec"] == value


def test_a_key_of_another_length_is_a_bad_body() -> None:
    """Keys are 128 bits, always."""
    frames = frames_of(result(links=[("http://a.test/", b"short")]))
    assert isinstance(codec.decode(frames), BadBody)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([], "bad_frame"),
        ([b"", b""], "bad_frame"),
        ([b"x"] * 3, "bad_frame"),
        ([msgpack.packb([1, 5, 0, 1, "w", 1, 1]), b""], "version"),
        ([msgpack.packb([PROTOCOL_VERSION, 99, 0, 1, "w", 1, 1]), b""], "unknown_type"),
        ([msgpack.packb([PROTOCOL_VERSION, 5, 0, -1, "w", 1, 1]), b""], "bad_frame"),
        ([msgpack.packb([PROTOCOL_VERSION, 5]), b""], "bad_frame"),
        ([msgpack.packb("x"), b""], "bad_frame"),
        ([b"\xc4" + b"x" * codec.MAX_FRAME_BYTES, b""], "bad_frame"),
    ],
)
def test_a_bad_header_has_one_error_with_a_code(frames: list[bytes], code: str) -> None:
    """Everything that is no message at all raises DecodeError, and its code tells why."""
    with pytest.raises(DecodeError) as caught:
        codec.decode(frames)
    assert caught.value.code == code


def mutated(rng: random.Random, frame: bytes) -> bytes:
    """The frame with a few bytes changed, cut, doubled or put in."""
    raw = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 9))):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(6):
            case 0 if at < len(raw):
                raw[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(raw):
                raw[at] = rng.choice((0x00, 0x7F, 0x80, 0xC0, 0xC1, 0xCA, 0xCF, 0xD9, 0xDF, 0xFF))
            case 2:
                del raw[at:]
            case 3:
                del raw[at : at + rng.randrange(1, 5)]
            case 4:
                raw[at:at] = raw[at : at + rng.randrange(1, 9)]
            case _:
                raw[at:at] = rng.randbytes(rng.randrange(1, 4))
    return bytes(raw)


def test_a_hundred_thousand_fuzzed_frames_stop_nothing() -> None:
    """G7: decode returns a Message or a BadBody, or raises DecodeError; nothing else, ever."""
    rng = random.Random(20)
    valid = [frames_of(body) for body in BODIES]
    fates = {"message": 0, "bad_body": 0, "refused": 0}
    for n in range(FUZZED_FRAMES):
        head, body = valid[n % len(valid)]
        if n % 10 == 0:
            body = rng.randbytes(rng.randrange(60))
        elif n % 10 == 1:
            head = rng.randbytes(rng.randrange(30))
        elif n % 10 < 7:
            body = mutated(rng, body)
        else:
            head = mutated(rng, head)
        try:
            decoded = codec.decode([head, body])
        except DecodeError as error:
            assert error.code in ("bad_frame", "version", "unknown_type")
            fates["refused"] += 1
        else:
            assert isinstance(decoded, Message | BadBody)
            fates["message" if isinstance(decoded, Message) else "bad_body"] += 1
    assert sum(fates.values()) == FUZZED_FRAMES
    assert min(fates.values()) > 5_000, f"the fuzzer reaches every way out: {fates}"
