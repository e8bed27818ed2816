"""The limits that several hosts share, as their worker keeps them."""

from __future__ import annotations

from typing import Any

from tests.unit.machine_tools import assignment, grant
from zcrawl.model.host import GroupShare, Manner
from zcrawl.worker.held_requests import Intake


def share(key: str = "domain ours.test", revision: int = 1, **changes: Any) -> GroupShare:
    fields: dict[str, Any] = {"interval_s": 0.0, "concurrency": 0, "next_in_s": 0.0}
    return GroupShare(key, revision, **{**fields, **changes})


def intake(*shares: GroupShare, hosts: int = 4, per_host: int = 3, **changes: Any) -> Intake:
    """Hosts of one group, with URLs."""
    made = Intake()
    seq = 0
    for host in range(1, hosts + 1):
        host_grant = grant(host, 9, groups=list(shares), manner=Manner(), **changes)
        made.adopt_grant(1, host_grant, 0.0)
        for _ in range(per_host):
            seq += 1
            assert made.take(1, assignment(seq, seq, host=host)) is None
    return made


def starts(made: Intake, until: float, step: float = 0.05, takes: float = 0.0) -> list[float]:
    """Moments at which requests start, each of which takes a while."""
    moments: list[float] = []
    running: list[tuple[float, int]] = []
    now = 0.0
    while now <= until:
        for ends, seq in [request for request in running if request[0] <= now]:
            made.finish(seq)
            running.remove((ends, seq))
        started, _ = made.start_due(now, 100)
        made.check()
        for held in started:
            moments.append(now)
            running.append((now + takes, held.assignment.seq))
        now = round(now + step, 6)
    return moments


def test_hosts_of_a_group_start_at_the_groups_pace() -> None:
    """One after the other, whichever host it is."""
    moments = starts(intake(share(interval_s=0.5)), 10.0)
    assert moments == [0.5 * n for n in range(12)]


def test_hosts_of_a_group_share_its_concurrency() -> None:
    """A request that ends lets another host begin."""
    made = intake(share(concurrency=2))
    moments = starts(made, 10.0, takes=1.0)
    assert moments == [float(n // 2) for n in range(12)]
    assert made.groups.groups["domain ours.test"].running == 0


def test_each_of_several_groups_holds() -> None:
    """The domain's rate and the address's number at the same time."""
    shares = (share(interval_s=0.25), share("address 192.0.2.1", concurrency=1))
    assert starts(intake(*shares), 0.9, takes=0.0) == [0.0, 0.25, 0.5, 0.75]
    assert starts(intake(*shares), 3.5, takes=1.0) == [0.0, 1.0, 2.0, 3.0]


def test_a_group_begins_when_its_grant_says() -> None:
    """Somebody else had it before."""
    assert starts(intake(share(next_in_s=1.5)), 2.0)[0] == 1.5


def test_hops_of_running_fetches_count_in_the_group() -> None:
    """A redirect on one host delays the next start on another one."""
    made = intake(share(interval_s=1.0), hosts=2, per_host=1)
    (first,), _ = made.start_due(0.0, 9)
    assert made.want_hop(first.assignment.seq)
    assert made.start_due(0.9, 9) == ([], [])
    assert made.start_due(1.0, 9) == ([], [first.assignment.seq])
    assert made.start_due(1.9, 9) == ([], [])
    assert len(made.start_due(2.0, 9)[0]) == 1


def test_a_late_request_puts_off_the_whole_group() -> None:
    """The distance counts from when it went out."""
    made = intake(share(interval_s=1.0), hosts=2, per_host=1)
    (first,), _ = made.start_due(0.0, 9)
    made.put_off(first.assignment.seq, 0.4)
    assert made.start_due(1.3, 9)[0] == []
    assert len(made.start_due(1.4, 9)[0]) == 1


def test_the_newest_word_on_a_group_counts() -> None:
    """A longer interval counts from the last start on; an older word changes nothing."""
    made = intake(share(interval_s=1.0), hosts=2, per_host=2)
    made.start_due(0.0, 9)
    newer = share(revision=2, interval_s=3.0)
    made.adopt_grant(1, grant(1, 9, groups=[newer]), 0.1)
    made.adopt_grant(1, grant(2, 9, groups=[share(interval_s=1.0)]), 0.2)
    assert made.start_due(2.9, 9)[0] == []
    assert len(made.start_due(3.0, 9)[0]) == 1
    assert made.start_due(5.9, 9)[0] == [], "the interval of the older one is not used"
    assert len(made.start_due(6.0, 9)[0]) == 1


def test_a_request_counts_in_the_group_that_it_was_started_under() -> None:
    """Its host may have moved to another address meanwhile."""
    made = intake(share("address 192.0.2.1", concurrency=1), hosts=2, per_host=2)
    ((first),), _ = made.start_due(0.0, 9)
    elsewhere = share("address 192.0.2.2", concurrency=1)
    made.adopt_grant(1, grant(1, 9, groups=[elsewhere], address="192.0.2.2"), 0.1)
    (second,), _ = made.start_due(0.2, 9)
    assert (second.assignment.host, second.address) == (1, "192.0.2.2")
    assert made.start_due(0.3, 9)[0] == [], "the first address is still in use"
    made.finish(first.assignment.seq)
    assert [held.assignment.host for held in made.start_due(0.4, 9)[0]] == [2]
    made.check()


def test_groups_without_hosts_are_forgotten_when_their_pace_has_nothing_to_tell() -> None:
    """Not before: a host of the group may come back."""
    made = intake(share(interval_s=5.0), hosts=1, per_host=1)
    (held,), _ = made.start_due(0.0, 9)
    made.finish(held.assignment.seq)
    made.adopt_grant(1, grant(1, 0, revision=2), 0.1)
    made.confirmations()
    made.forget_idle(1.0)
    assert made.hosts == {}
    assert len(made.groups.groups) == 1
    made.forget_idle(6.0)
    assert made.groups.groups == {}
