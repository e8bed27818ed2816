"""The pool of proxies: who is next, who rests, and for how long."""

from __future__ import annotations

import random

import pytest

from zcrawl.errors import RetryClass
from zcrawl.fetch.proxies import COOL_DOWN_S, STRIKES, Busy, Down, ProxyPool, Take
from zcrawl.frontier.retry import Retry, decide

A, B, C = "http://a:1", "http://b:1", "socks5://c:1"


def taken(pool: ProxyPool, host: str = "http://x", now: float = 0.0) -> str:
    choice = pool.take(host, now)
    assert isinstance(choice, Take)
    return choice.proxy


def use(pool: ProxyPool, host: str, now: float = 0.0, good: bool = True) -> str:
    proxy = taken(pool, host, now)
    pool.settle(proxy, good, now)
    return proxy


def test_round_robin_goes_round() -> None:
    """One after the other, whatever the host."""
    pool = ProxyPool([A, B, C], "round_robin")
    assert [use(pool, "http://x") for _ in range(7)] == [A, B, C, A, B, C, A]


def test_round_robin_leaves_out_those_that_rest() -> None:
    """And takes them up again in their place."""
    pool = ProxyPool([A, B, C], "round_robin")
    assert use(pool, "h") == A
    assert use(pool, "h", good=False) == B
    assert [use(pool, "h") for _ in range(4)] == [C, A, C, A]
    assert B in [use(pool, "h", now=6.0) for _ in range(3)]


def test_sticky_keeps_a_hosts_proxy_and_spreads_hosts() -> None:
    """Every worker chooses the same proxy, because the choice is a hash."""
    pool, other = ProxyPool([A, B, C]), ProxyPool([C, B, A])
    hosts = [f"http://h{n}.example" for n in range(60)]
    first = {host: use(pool, host) for host in hosts}
    assert {host: use(other, host) for host in hosts} == first
    assert {host: use(pool, host) for host in hosts} == first
    assert set(first.values()) == {A, B, C}


def test_sticky_moves_only_the_hosts_of_a_proxy_that_fails() -> None:
    """And moves them back when it is well again."""
    pool = ProxyPool([A, B, C])
    hosts = [f"http://h{n}.example" for n in range(60)]
    before = {host: use(pool, host) for host in hosts}
    pool.take(next(h for h in hosts if before[h] == A), 0.0)
    pool.settle(A, False, 0.0)
    during = {host: use(pool, host) for host in hosts}
    assert all(during[h] == before[h] for h in hosts if before[h] != A)
    assert A not in during.values()
    assert {host: use(pool, host, now=10.0) for host in hosts} == before


def test_least_failures_prefers_who_fails_least() -> None:
    """A proxy that fails now and then gets less; success makes it forget."""
    pool = ProxyPool([A, B], "least_failures")
    assert use(pool, "h", good=False) == A
    assert [use(pool, "h", now=100.0) for _ in range(5)] == [B] * 5
    assert use(pool, "h", now=100.0, good=False) == B
    assert use(pool, "h", now=100.0) == A


def test_a_limit_per_proxy_holds() -> None:
    """A request waits while all proxies are busy."""
    pool = ProxyPool([A, B], "round_robin", most_each=2)
    assert [taken(pool) for _ in range(4)] == [A, B, A, B]
    assert pool.take("h", 0.0) == Busy()
    pool.settle(B, True, 0.0)
    assert taken(pool) == B
    pool.check()


def test_sticky_waits_for_its_own_proxy() -> None:
    """A host keeps its proxy also when the proxy is at its limit."""
    pool = ProxyPool([A, B, C], "sticky", most_each=1)
    mine = taken(pool, "http://x")
    assert pool.take("http://x", 0.0) == Busy()
    pool.settle(mine, True, 0.0)
    assert taken(pool, "http://x") == mine


def test_the_rest_doubles_and_has_an_end() -> None:
    """5, 10, 20 … 300 s; one success resets it."""
    pool = ProxyPool([A])
    now, rests = 0.0, []
    for _ in range(9):
        assert use(pool, "h", now, good=False) == A
        choice = pool.take("h", now)
        assert isinstance(choice, Down)
        rests.append(choice.until - now)
        now = choice.until
    assert rests == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    use(pool, "h", now)
    use(pool, "h", now, good=False)
    choice = pool.take("h", now)
    assert isinstance(choice, Down)
    assert choice.until - now == 5


def test_after_its_rest_a_proxy_is_tried_by_one() -> None:
    """The others wait for the verdict, or take another proxy."""
    pool = ProxyPool([A])
    use(pool, "h", 0.0, good=False)
    assert taken(pool, now=5.0) == A
    assert pool.take("h", 5.0) == Busy()
    pool.settle(A, True, 5.0)
    assert [taken(pool, now=5.0) for _ in range(3)] == [A] * 3


def test_a_proxy_is_blamed_when_others_do_what_it_cannot_several_times_in_a_row() -> None:
    """Servers fail too: a success in between wipes it out, and a rest is counted once."""
    pool = ProxyPool(["a", "b"])
    for _ in range(STRIKES - 1):
        pool.blame("a", 0.0)
    pool.take("h", 0.0, frozenset({"b"}))
    pool.settle("a", True, 0.0)
    for _ in range(STRIKES - 1):
        pool.blame("a", 0.0)
    assert pool.statistics()["a"].failures == 0
    for _ in range(10):
        pool.blame("a", 0.0)
    assert pool.statistics()["a"].failures == 1
    assert pool.statistics()["a"].cool_until == COOL_DOWN_S


def test_those_that_failed_a_request_are_not_asked_again_for_it() -> None:
    """Even if they are on trial."""
    pool = ProxyPool([A, B], "round_robin")
    assert pool.take("h", 0.0, frozenset({A})) == Take(B)
    assert pool.take("h", 0.0, frozenset({A, B})) in (Busy(), Down(0.0))


def test_what_nobody_saw_changes_nothing() -> None:
    """A cancelled request counts neither for nor against its proxy."""
    pool = ProxyPool([A])
    before = pool.statistics()
    pool.take("h", 0.0)
    pool.settle(A, None, 0.0)
    assert pool.statistics() == before


@pytest.mark.parametrize("rotation", ["round_robin", "sticky", "least_failures"])
def test_whatever_happens_the_invariants_hold(rotation: str) -> None:
    """After a thousand random steps limits hold, nothing is lost, and requests are served again."""
    chance = random.Random(rotation)
    pool = ProxyPool([A, B, C], rotation, most_each=3)
    running: list[str] = []
    now = 0.0
    for _ in range(1000):
        now += chance.random()
        choice = pool.take(f"http://h{chance.randrange(9)}", now)
        if isinstance(choice, Take):
            running.append(choice.proxy)
        if isinstance(choice, Down):
            assert choice.until >= now or running
        if running and chance.random() < 0.6:
            done = running.pop(chance.randrange(len(running)))
            pool.settle(done, chance.choice([True, True, False, None]), now)
        pool.check()
    for proxy in running:
        pool.settle(proxy, None, now)
    assert isinstance(pool.take("h", now + 301), Take)


@pytest.mark.parametrize("bad", [([], "sticky"), ([A], "random")])
def test_a_pool_needs_proxies_and_a_known_rotation(bad: tuple[list[str], str]) -> None:
    """Which validation has seen to."""
    with pytest.raises(ValueError, match="rotation"):
        ProxyPool(*bad)


def test_a_postponed_request_is_never_given_up() -> None:
    """The page was not requested, so no number of retries ends it, and it waits for the given
    time."""
    for attempt in (1, 50):
        verdict = decide(attempt, 0, RetryClass.POSTPONED, 7.0, 0.5)
        assert verdict == Retry(7.5)
    assert decide(1, 0, RetryClass.POSTPONED, None, 0.0) == Retry(1.0)
