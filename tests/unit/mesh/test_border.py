"""The border of a master: what is let through, from whom, under which name, and how often."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from zcrawl.mesh.border import (
    ANSWER_BYTES,
    ANSWER_S,
    DEBT_MOST,
    LOCAL,
    REFUSALS,
    REQUESTS,
    ROUTES_KEPT,
    Allowance,
    AnswerPace,
    Border,
    Buckets,
    Refusal,
    Sender,
    describe,
    mark,
    worker_advice,
)
from zcrawl.mesh.codec import encode, peek_request_id
from zcrawl.mesh.messages import PROTOCOL_VERSION, ClientRequest, Header, MessageKind
from zcrawl.mesh.ports import stamp
from zcrawl.mesh.roles import PRINCIPALS, SMALL_REQUEST_MOST, Channel, KeyRole, kinds_on
from zcrawl.mesh.security import MASTERS, AllowedKey

SERVER, W1, ANN, BOB, OLD, POOL = ("0" * 64, "1" * 64, "2" * 64, "3" * 64, "4" * 64, "5" * 64)
ALLOWED = {
    W1: AllowedKey("w1", frozenset({KeyRole.WORKER}), has_roles=True),
    ANN: AllowedKey("ann", frozenset({KeyRole.VIEWER}), has_roles=True),
    BOB: AllowedKey("bob", frozenset({KeyRole.OPERATOR}), has_roles=True),
    OLD: AllowedKey("w7"),
    POOL: AllowedKey("pool", frozenset({KeyRole.WORKER}), ("pool-*", "x*1"), has_roles=True),
}


def border() -> Border:
    made = Border(SERVER)
    made.allow(ALLOWED)
    return made


def header(kind: MessageKind, source: str = "w1") -> Header:
    return Header(PROTOCOL_VERSION, kind, 0, 3, source, 9, 0)


@pytest.mark.parametrize("key", [W1, ANN, BOB, OLD, POOL, SERVER, "gone"])
def test_nothing_passes_that_the_table_does_not_allow(key: str) -> None:
    """Every kind on both open sockets from every kind of key."""
    at, names = border(), {OLD: "w7", POOL: "pool-3"}
    sender = at.sender(key)
    for channel in (Channel.CONTROL, Channel.REPORTS):
        for kind in MessageKind:
            refusal = at.refusal(sender, channel, header(kind, names.get(key, "w1")), 10)
            allowed = kind in kinds_on(channel, sender.roles)
            assert refusal is (None if allowed else Refusal.KIND), (channel, kind)


def test_a_key_that_was_taken_off_the_list_may_send_nothing() -> None:
    """From the next message on, connected or not; one that changed its role has the new one."""
    at = border()
    assert at.refusal(at.sender(W1), Channel.REPORTS, header(MessageKind.RESULT), 10) is None
    at.allow({BOB: AllowedKey("bob", frozenset({KeyRole.VIEWER}), has_roles=True)})
    assert (
        at.refusal(at.sender(W1), Channel.REPORTS, header(MessageKind.RESULT), 10) is Refusal.KIND
    )
    assert (
        at.refusal(at.sender(W1), Channel.CONTROL, header(MessageKind.REQUEST), 10) is Refusal.KIND
    )
    assert at.sender(BOB).request_role is KeyRole.VIEWER
    at.allow(ALLOWED)
    assert at.refusal(at.sender(W1), Channel.REPORTS, header(MessageKind.RESULT), 10) is None


@pytest.mark.parametrize(
    ("key", "own", "others"),
    [
        (W1, ["w1", "w1-1", "w1-22"], ["w2", "w11", "w1-", "w1-x", "w1-1-1", "w1-²", "", "W1"]),
        (OLD, ["w7", "w7-2"], ["w1", "w70"]),
        (POOL, ["pool-1", "pool-a-b", "x1"], ["pool", "x12", "my-pool-1"]),
    ],
)
def test_a_worker_has_its_own_names(key: str, own: list[str], others: list[str]) -> None:
    """Its key's name, that name with a number, or what its patterns say; in every worker kind."""
    at = border()
    sender = at.sender(key)
    for kind in (MessageKind.HELLO, MessageKind.RESULT, MessageKind.BYE, MessageKind.STALE):
        for name in own:
            assert at.refusal(sender, Channel.CONTROL, header(kind, name), 9) is None, name
        for name in others:
            refusal = at.refusal(sender, Channel.CONTROL, header(kind, name), 9)
            assert refusal is Refusal.NAME, name


def test_a_number_of_one_key_is_not_the_name_of_another() -> None:
    """The key of `node` could otherwise send results as the worker `node-1`, which has its own."""
    worker = frozenset({KeyRole.WORKER})
    made = Border(SERVER)
    made.allow(
        {
            W1: AllowedKey("node", worker, has_roles=True),
            POOL: AllowedKey("node-1", worker, has_roles=True),
            ANN: AllowedKey("node-3", frozenset({KeyRole.VIEWER}), has_roles=True),
            BOB: AllowedKey("many", worker, ("node-*",), has_roles=True),
        }
    )
    names = ("node", "node-1", "node-2", "node-3", "node-1-1")
    owned = {
        key: [name for name in names if made.sender(key).owns(name)] for key in (W1, POOL, BOB)
    }
    assert owned[W1] == ["node", "node-2", "node-3"]
    assert owned[POOL] == ["node-1", "node-1-1"]
    assert owned[BOB] == ["node-1", "node-2", "node-3", "node-1-1"]  # the list says so itself


def test_names_are_remembered_within_bounds() -> None:
    """A worker that makes names up fills no memory, and no long name is matched."""
    at = border()
    sender = at.sender(POOL)
    for number in range(5_000):
        assert sender.owns(f"pool-{number}")
    assert len(sender._names) <= 1_000
    assert not sender.owns("pool-" + "x" * 1_000)


def test_lengths_are_compared_with_the_senders_role() -> None:
    """A viewer's long request is refused by its length; an operator's is not."""
    at, long = border(), SMALL_REQUEST_MOST + 1
    request = header(MessageKind.REQUEST, "client")
    for key in (ANN, W1):
        assert at.refusal(at.sender(key), Channel.CONTROL, request, long) is Refusal.SIZE
        assert at.refusal(at.sender(key), Channel.CONTROL, request, long - 1) is None
    for key in (BOB, OLD, SERVER):
        assert at.refusal(at.sender(key), Channel.CONTROL, request, long) is None
    assert (
        at.refusal(at.sender(W1), Channel.REPORTS, header(MessageKind.RESULT), 15_000_000) is None
    )
    heavy = at.refusal(at.sender(W1), Channel.REPORTS, header(MessageKind.HEARTBEAT), 15_000_000)
    assert heavy is Refusal.SIZE


def test_without_keys_the_socket_still_says_what_may_arrive() -> None:
    """Everybody has all roles and all names; a BEAT on an open socket is nobody's."""
    at = Border()
    for channel in (Channel.CONTROL, Channel.REPORTS):
        assert at.refusal(LOCAL, channel, header(MessageKind.RESULT, "any"), 10) is None
        for kind in (
            MessageKind.BEAT,
            MessageKind.SNAPSHOT,
            MessageKind.VITALS,
            MessageKind.EVENT,
            MessageKind.REPLY,
            MessageKind.ASSIGN,
        ):
            assert at.refusal(LOCAL, channel, header(kind), 10) is Refusal.KIND


# ---------------------------------------------------------------- requests

FORGED = ClientRequest(
    "r",
    "submit",
    {},
    True,
    "root@leader",
    "m9",
    "operator",
    "boss",
    ["shell"],
    "jwt x",
    "10.0.0.1",
)


@pytest.mark.parametrize(
    ("key", "name", "role"),
    [
        (ANN, "ann", KeyRole.VIEWER),
        (BOB, "bob", KeyRole.OPERATOR),
        (W1, "w1", KeyRole.WORKER),
        (OLD, "w7", KeyRole.OPERATOR),
    ],
)
def test_a_request_is_marked_with_its_key(key: str, name: str, role: KeyRole) -> None:
    """Whatever the client says of itself: name, role, way, and that a master had forwarded it."""
    marked = mark(FORGED, border().sender(key))
    through = f"key {name}"
    assert marked == ClientRequest("r", "submit", {}, False, name, "", role, name, [], through)


def test_only_a_master_forwards() -> None:
    """What the first master established stays; a request of the masters' own key is its own."""
    masters = border().sender(SERVER)
    assert mark(FORGED, masters) == FORGED
    own = mark(ClientRequest("r", "submit", {}, by="x", role="viewer"), masters)
    assert (own.by, own.role, own.key) == (MASTERS, KeyRole.ADMIN, MASTERS)
    assert mark(FORGED, LOCAL) == FORGED


def test_only_a_gateway_speaks_for_others() -> None:
    """It names a user with a role of people; without a name, or with a role of the mesh, it asks
    for itself. Nobody else's word for a user counts, an admin's neither."""
    gateway = Sender(BOB, "gw", frozenset({KeyRole.GATEWAY}))
    for role in PRINCIPALS:
        request = ClientRequest(
            "r", "submit", {}, True, "ann", "m9", role, "boss", ["code"], "jwt x"
        )
        marked = mark(request, gateway)
        assert marked == msgspec.structs.replace(request, forwarded=False, via="", key="gw")
        for other in set(KeyRole) - {KeyRole.GATEWAY, KeyRole.MASTER}:
            own = mark(request, Sender(BOB, "bob", frozenset({other})))
            assert (own.by, own.role, own.rights) == ("bob", other, [])
    for by, name in (("", "admin"), ("ann", "master"), ("ann", "worker"), ("ann", "gateway")):
        own = mark(ClientRequest("r", "submit", {}, by=by, role=name, rights=["code"]), gateway)
        assert (own.by, own.role, own.rights) == ("gw", KeyRole.GATEWAY, [])


def test_requests_are_limited_by_key() -> None:
    """A burst, then a rate; another key is not touched by it, a master's forwards never."""
    at = border()
    ann, bob, masters = at.sender(ANN), at.sender(BOB), at.sender(SERVER)
    burst, rate = REQUESTS[KeyRole.VIEWER].burst, REQUESTS[KeyRole.VIEWER].per_s
    assert sum(at.may_ask(ann, 5.0) for _ in range(10_000)) == burst
    assert sum(at.may_ask(ann, 6.0) for _ in range(10_000)) == rate
    assert sum(at.may_ask(bob, 6.0) for _ in range(10_000)) == REQUESTS[KeyRole.OPERATOR].burst
    assert all(at.may_ask(masters, 6.0) for _ in range(10_000))
    assert all(at.may_ask(LOCAL, 6.0) for _ in range(10_000))


def test_answers_and_log_lines_about_refusals_are_limited_by_key() -> None:
    """One who floods gets few of them, and hides nobody else's."""
    at = border()
    ann, w1 = at.sender(ANN), at.sender(W1)
    assert sum(at.may_answer(ann, 5.0) for _ in range(10_000)) == REFUSALS.burst
    assert at.may_answer(w1, 5.0)
    assert sum(at.may_log(ann, Refusal.KIND, 5.0 + n / 10_000) for n in range(10_000)) == 1
    assert at.may_log(ann, Refusal.SIZE, 5.0)
    assert at.may_log(w1, Refusal.KIND, 5.0)
    assert at.may_log(ann, Refusal.KIND, 6.5)


def test_long_answers_count_as_many_requests() -> None:
    """A viewer that asks for megabytes as often as it may costs a leader its epoch. What a master
    forwards, and who asks for little, is not touched by it."""
    at = border()
    ann, bob, masters = at.sender(ANN), at.sender(BOB), at.sender(SERVER)
    for sender, route in ((ann, b"a"), (bob, b"b"), (masters, b"m")):
        assert at.may_ask(sender, 5.0)
        at.expect_answer(sender, route)
    at.answered(b"a", 1_000)
    at.answered(b"m", 10**9)
    at.answered(b"nobody", 10**9)
    assert at.may_ask(ann, 5.0), "a short answer is free"
    at.answered(b"a", 2_000_000)
    assert not at.may_ask(ann, 5.0)
    assert at.may_ask(bob, 5.0)
    assert at.may_ask(masters, 5.0)
    owed = 2_000_000 / ANSWER_BYTES
    assert not at.may_ask(ann, 5.0 + (owed - 60) / REQUESTS[KeyRole.VIEWER].per_s)
    assert at.may_ask(ann, 6.0 + owed / REQUESTS[KeyRole.VIEWER].per_s)
    at.answered(b"a", 10**12)
    assert at.may_ask(ann, 100.0 + DEBT_MOST / REQUESTS[KeyRole.VIEWER].per_s), "it ends some time"


def test_the_routes_of_those_who_asked_are_bounded() -> None:
    """A key may open as many lines as it likes."""
    at = border()
    for n in range(ROUTES_KEPT + 100):
        at.expect_answer(at.sender(ANN), n.to_bytes(4))
    at.may_ask(at.sender(ANN), 5.0)
    at.answered((0).to_bytes(4), 10**9)
    assert at.may_ask(at.sender(ANN), 5.0), "the oldest is forgotten"
    at.answered((ROUTES_KEPT + 99).to_bytes(4), 10**9)
    assert not at.may_ask(at.sender(ANN), 5.0)


def test_buckets_never_give_more_than_their_rate_and_hold_few_keys() -> None:
    """For any order of moments, also when a clock goes back; the oldest keys are forgotten."""
    rng, allowance = random.Random(7), Allowance(10.0, 5.0)
    buckets, now, taken, highest = Buckets(most=100), 0.0, 0, 0.0
    for _ in range(5_000):
        now += rng.uniform(-0.05, 0.1)
        highest = max(highest, now)
        taken += buckets.take("a", allowance, highest)
        assert taken <= allowance.burst + allowance.per_s * highest + 1e-6
    for number in range(1_000):
        buckets.take(str(number), allowance, now)
    assert len(buckets) == 100


def test_a_bucket_that_rested_holds_one_burst() -> None:
    """A key that asked for nothing in an hour may not ask for an hour's worth at once."""
    buckets, allowance = Buckets(), Allowance(10.0, 5.0)
    assert buckets.take("a", allowance, 0.0)
    assert sum(buckets.take("a", allowance, 3600.0) for _ in range(1_000)) == 5


def test_the_id_of_a_request_is_read_without_the_rest() -> None:
    """Whoever is refused for the length is told so by name; noise has no id and raises nothing."""
    body = ClientRequest("id-1", "submit", {"fill": "x" * 100_000})
    frame = encode(stamp("c", 1, 0, body, 0, 0), body)[1]
    assert peek_request_id(frame[:300]) == "id-1"
    rng = random.Random(3)
    for _ in range(5_000):
        assert isinstance(peek_request_id(rng.randbytes(rng.randrange(400))), str)
    for noise in (b"", b"\xc1", b"\x91" * 300, b"\xdd\xff\xff\xff\xff\xdb\xff\xff\xff\xff"):
        assert peek_request_id(noise) == ""


# ---------------------------------------------------------------- words


def test_refusals_name_the_key_and_what_to_do() -> None:
    """For the master's log and for the worker's."""
    at = border()
    text = worker_advice(at.sender(W1), "w2")
    assert "'w2'" in text
    assert "its key w1" in text
    assert "names=" in text
    assert "--id w1" in text
    assert "role worker" in worker_advice(at.sender(ANN), "ann")
    assert "no longer in the masters' list" in worker_advice(at.sender("gone"), "w1")
    said = describe(Refusal.KIND, at.sender(ANN), Channel.CONTROL, header(MessageKind.BEAT), 5)
    assert said == "viewer ann: BEAT on the control socket"
    assert "w1" in describe(
        Refusal.NAME, at.sender(W1), Channel.REPORTS, header(MessageKind.BYE, "z"), 5
    )
    long = describe(
        Refusal.SIZE, at.sender(ANN), Channel.CONTROL, header(MessageKind.REQUEST), 99_999
    )
    assert "99999" in long
    assert str(SMALL_REQUEST_MOST) in long
    assert "ann" in describe(
        Refusal.RATE, at.sender(ANN), Channel.CONTROL, header(MessageKind.REQUEST), 5
    )
    assert Sender("k", "x", frozenset()).request_role is KeyRole.VIEWER


# ---------------------------------------------------------------- subscriptions


def test_subscriptions_are_answered_together() -> None:
    """The first at once, all that follow within 100 ms by one answer; none is forgotten."""
    rng, pace = random.Random(11), AnswerPace()
    sent: list[float] = []
    now, planned_at = 0.0, float("inf")
    last_wanted = 0.0
    for _ in range(20_000):
        now += rng.expovariate(20_000)
        if planned_at <= now:
            pace.sent(planned_at)
            sent.append(planned_at)
            planned_at = float("inf")
        last_wanted = now
        wait_s = pace.want(now)
        if wait_s is not None:
            assert planned_at == float("inf"), "one plan at a time"
            planned_at = now + wait_s
    assert sent[0] < 0.01
    assert all(b - a >= ANSWER_S - 1e-9 for a, b in itertools.pairwise(sent))
    assert planned_at < float("inf") or sent[-1] >= last_wanted
