"""The election machine, one transition at a time."""

from __future__ import annotations

import pytest

from zcrawl.coord import calls as c
from zcrawl.coord.election import GAP_S, LOOP_SILENCE_S, STAND_BACK_S, Election, State
from zcrawl.coord.ports import (
    Condition,
    CoordAway,
    CoordBack,
    CoordEvent,
    Deposed,
    Elected,
    LeaderSeen,
    Member,
    MemberRole,
)
from zcrawl.coord.records import write_lock_value

T = 1_000.0
AWAY = c.Trouble.AWAY


def master(role: MemberRole = MemberRole.MASTER) -> Member:
    return Member(role, "m1", "prod", "1", "host", 1, 7)


class Driver:
    """Feeds the machine; the event loop is alive unless told otherwise."""

    def __init__(self, role: MemberRole = MemberRole.MASTER) -> None:
        self.now = T
        self.alive = True
        self.election = Election(master(role), T)

    def feed(self, *events: c.ElectionEvent, after: float = 0.0) -> c.ElectionEffects:
        self.now += after
        effects: c.ElectionEffects = []
        if self.alive:
            effects += self.election.handle(c.LoopLived(self.now), self.now)
        for event in events:
            effects += self.election.handle(event, self.now)
        self.election.check()
        return effects

    def leads(self, hint: int = 5) -> Driver:
        self.feed(c.ElectionTicked())
        self.feed(c.CallDone(c.Register(False, Condition())))
        self.feed(c.SessionMade("s1"))
        assert events_in(self.feed(c.LockWon("s1", hint))) == [Elected(hint, alone=False)]
        return self


def events_in(effects: c.ElectionEffects) -> list[CoordEvent]:
    return [effect.event for effect in effects if isinstance(effect, c.Tell)]


def calls(effects: c.ElectionEffects) -> list[c.Call]:
    return [effect for effect in effects if not isinstance(effect, c.Tell)]


def entry(session: str, index: int = 5) -> c.LockRead:
    return c.LockRead(c.LockEntry(session, index, write_lock_value(master(), "")))


def test_the_way_to_the_lock_is_register_session_lock() -> None:
    """Each call follows from the answer to the one before."""
    driver = Driver()
    assert calls(driver.feed(c.ElectionTicked())) == [c.Register(False, Condition())]
    assert calls(driver.feed(c.CallDone(c.Register(False, Condition())))) == [c.CreateSession()]
    assert calls(driver.feed(c.SessionMade("s1"))) == [c.AcquireLock("s1")]
    effects = driver.feed(c.LockWon("s1", 5))
    assert events_in(effects) == [Elected(5, alone=False)]
    assert calls(effects) == [c.Register(True, Condition())]  # the tag says who leads


def test_an_old_sign_of_the_event_loop_does_not_silence_it() -> None:
    """Signs come from another thread, and may arrive in another order: the newest counts."""
    driver = Driver(MemberRole.WORKER)
    driver.feed(c.ElectionTicked())
    driver.feed(c.CallDone(c.Register(False, Condition())))
    assert calls(driver.feed(after=LOOP_SILENCE_S)) == [c.PassCheck("")]
    driver.feed(c.CallDone(c.PassCheck("")))
    driver.alive = False
    driver.feed(c.LoopLived(T))
    assert calls(driver.feed(c.ElectionTicked(), after=1.1)) == [c.PassCheck("")]


def test_a_worker_only_registers() -> None:
    """It has no session and asks for no lock."""
    driver = Driver(MemberRole.WORKER)
    driver.feed(c.ElectionTicked())
    assert calls(driver.feed(c.CallDone(c.Register(False, Condition())))) == []
    assert calls(driver.feed(c.LockRead(None))) == []
    assert calls(driver.feed(c.ElectionTicked(), after=1.1)) == [c.PassCheck("")]


def test_a_call_is_made_once_at_a_time() -> None:
    """While Consul hangs, ticks do not pile up calls."""
    driver = Driver()
    assert len(calls(driver.feed(c.ElectionTicked()))) == 1
    for _ in range(10):
        assert calls(driver.feed(c.ElectionTicked(), after=0.5)) == []


def test_a_lock_that_is_held_is_waited_for() -> None:
    """Refused and read as held: no further call until it is read as free."""
    driver = Driver()
    driver.feed(c.ElectionTicked())
    driver.feed(c.CallDone(c.Register(False, Condition())))
    driver.feed(c.SessionMade("s1"), entry("other"))
    driver.feed(c.LockRefused("s1"))
    later = [call for _ in range(6) for call in calls(driver.feed(c.ElectionTicked(), after=0.4))]
    assert not any(isinstance(call, c.AcquireLock) for call in later)
    assert c.AcquireLock("s1") in calls(driver.feed(entry("")))


def test_a_free_lock_that_is_refused_is_tried_again() -> None:
    """A stranger's lock-delay: the key does not change when it ends, so no watch tells."""
    driver = Driver()
    driver.feed(c.ElectionTicked())
    driver.feed(c.CallDone(c.Register(False, Condition())))
    driver.feed(c.SessionMade("s1"), entry(""))
    assert c.AcquireLock("s1") not in calls(driver.feed(c.LockRefused("s1")))
    assert c.AcquireLock("s1") in calls(driver.feed(c.ElectionTicked(), after=0.6))


def test_a_lost_session_deposes_at_once() -> None:
    """404 on renew is certain; a new session is made by the same effects."""
    driver = Driver().leads()
    gone = c.CallFailed(c.RenewSession("s1"), c.Trouble.GONE, "not found")
    effects = driver.feed(gone)
    assert events_in(effects) == [Deposed("the session is gone")]
    assert c.CreateSession() in calls(effects)
    assert driver.election.state is State.OUTSIDE


@pytest.mark.parametrize("call", [c.RenewSession("s1"), c.PassCheck(""), c.AcquireLock("s1")])
def test_an_absent_consul_deposes_nobody(call: c.Call) -> None:
    """Told once that it is away and once that it is back; the leader leads on."""
    driver = Driver().leads()
    assert isinstance(events_in(driver.feed(c.CallFailed(call, AWAY, "refused")))[0], CoordAway)
    for _ in range(50):
        assert events_in(driver.feed(c.CallFailed(call, AWAY, "refused"), after=0.5)) == []
    assert driver.election.state is State.LEADER
    answer: c.CallAnswer = c.CallDone(call)
    if isinstance(call, c.AcquireLock):
        answer = c.LockWon("s1", 5)
    assert events_in(driver.feed(answer)) == [CoordBack()]


def test_consul_is_back_when_the_last_need_is_met() -> None:
    """An agent that answers while its servers have no leader does not flap."""
    driver = Driver().leads()
    driver.feed(c.CallFailed(c.RenewSession("s1"), AWAY, "no leader"))
    driver.feed(c.WatchFailed("lock", AWAY, "no leader"))
    assert events_in(driver.feed(c.CallDone(c.PassCheck("")))) == []
    assert CoordBack() not in events_in(driver.feed(entry("s1")))
    assert events_in(driver.feed(c.CallDone(c.RenewSession("s1")))) == [CoordBack()]


def test_a_missing_right_is_told_although_consul_was_away() -> None:
    """The second reason is one that only a person can mend."""
    driver = Driver()
    driver.feed(c.CallFailed(c.Register(False, Condition()), AWAY, "refused"))
    denied = c.CallFailed(c.Register(False, Condition()), c.Trouble.DENIED, "token abcd… lacks")
    (event,) = events_in(driver.feed(denied))
    assert isinstance(event, CoordAway)
    assert "abcd" in event.reason
    assert events_in(driver.feed(denied)) == []


def test_after_a_gap_the_lock_is_confirmed_before_anything_is_said() -> None:
    """A paused leader asks first; the same number confirms it, without a word to anybody."""
    driver = Driver().leads()
    driver.feed(c.CallDone(c.Register(True, Condition())))
    driver.feed(c.ConditionSet(Condition("x", ("new",))))
    driver.feed(c.CallDone(c.Register(True, Condition("x", ("new",)))))
    driver.feed(c.ConditionSet(Condition("y", ("newer",))), after=GAP_S + 60)
    consul_calls = calls(driver.feed(c.ElectionTicked()))
    assert driver.election.state is State.LEADER
    assert not any(isinstance(call, c.Register) for call in consul_calls)
    effects = driver.feed(c.LockWon("s1", 5))
    assert events_in(effects) == []
    assert c.Register(True, Condition("y", ("newer",))) in calls(effects)


def test_the_call_after_a_gap_is_the_confirmation() -> None:
    """It comes before the check is passed again."""
    driver = Driver().leads()
    driver.alive = False
    driver.now += 60
    first = calls(driver.election.handle(c.LoopLived(driver.now), driver.now))[0]
    assert first == c.AcquireLock("s1")


def test_another_number_means_that_the_lock_was_lost_in_between() -> None:
    """Somebody else may have led meanwhile: deposed, and elected with the new number."""
    driver = Driver().leads(5)
    driver.feed(c.ElectionTicked(), after=GAP_S + 1)
    effects = driver.feed(c.LockWon("s1", 9))
    assert [type(event) for event in events_in(effects)] == [Deposed, Elected]
    assert driver.election.hint == 9


def test_an_old_reading_deposes_nobody() -> None:
    """A watch may tell what was true before we won: Consul is asked, and confirms."""
    driver = Driver().leads()
    effects = driver.feed(entry("other"))
    assert c.AcquireLock("s1") in calls(effects)
    assert driver.election.state is State.LEADER
    assert not any(
        isinstance(event, Deposed) for event in events_in(driver.feed(c.LockWon("s1", 5)))
    )


def test_a_spoilt_value_is_written_again() -> None:
    """Anybody with the right can write into a locked key; acquiring writes our value."""
    driver = Driver().leads()
    effects = driver.feed(c.LockRead(c.LockEntry("s1", 5, b"garbage")))
    assert c.AcquireLock("s1") in calls(effects)
    assert events_in(driver.feed(c.LockWon("s1", 0))) == []  # a plain write zeroes LockIndex
    assert c.AcquireLock("s1") not in calls(driver.feed(entry("s1")))


def test_a_lock_held_by_another_deposes() -> None:
    """The session lives, the lock went elsewhere (an operator, a deleted key)."""
    driver = Driver().leads()
    driver.feed(entry("other"))
    effects = driver.feed(c.LockRefused("s1"))
    assert events_in(effects) == [Deposed("another holds the lock")]
    assert driver.election.state is State.CANDIDATE


def test_a_victory_that_is_told_late_is_no_victory() -> None:
    """The answer waited in the socket of a paused process: the session may be dead by now."""
    driver = Driver()
    driver.feed(c.ElectionTicked())
    driver.feed(c.CallDone(c.Register(False, Condition())))
    driver.feed(c.SessionMade("s1"))
    effects = driver.feed(c.LockWon("s1", 5), after=GAP_S + 1)
    assert events_in(effects) == []
    assert c.AcquireLock("s1") in calls(effects)
    assert events_in(driver.feed(c.LockWon("s1", 5))) == [Elected(5, alone=False)]


def test_answers_for_an_old_session_are_void() -> None:
    """The session died while the lock was asked for."""
    driver = Driver().leads()
    driver.feed(c.CallFailed(c.RenewSession("s1"), c.Trouble.GONE, ""))
    driver.feed(c.SessionMade("s2"))
    assert events_in(driver.feed(c.LockWon("s1", 6))) == []
    assert driver.election.state is State.CANDIDATE


def test_a_dead_event_loop_is_not_vouched_for() -> None:
    """The thread lives, the loop does not: the check is left to run out."""
    driver = Driver().leads()
    driver.alive = False
    passed: list[float] = []
    for _ in range(20):
        for call in calls(driver.feed(c.ElectionTicked(), after=0.5)):
            if isinstance(call, c.PassCheck):
                passed.append(driver.now)
                driver.feed(c.CallDone(call))
    assert passed
    assert max(passed) <= T + LOOP_SILENCE_S
    driver.alive = True
    assert c.PassCheck("") in calls(driver.feed(c.ElectionTicked()))


def test_a_dead_event_loop_seeks_no_lock() -> None:
    """It could not lead."""
    driver = Driver()
    driver.feed(c.ElectionTicked())
    driver.feed(c.CallDone(c.Register(False, Condition())))
    driver.feed(c.SessionMade("s1"), entry("other"), c.LockRefused("s1"))
    driver.alive = False
    driver.feed(c.ElectionTicked(), after=LOOP_SILENCE_S + 1)
    assert c.AcquireLock("s1") not in calls(driver.feed(entry("")))
    driver.alive = True
    assert c.AcquireLock("s1") in calls(driver.feed(c.ElectionTicked()))


def test_a_confirmation_that_is_told_late_confirms_nothing() -> None:
    """A leader that was paused twice asks twice."""
    driver = Driver().leads()
    driver.feed(c.ElectionTicked(), after=GAP_S + 1)
    assert c.AcquireLock("s1") in calls(driver.feed(c.LockWon("s1", 5), after=GAP_S + 1))
    assert c.AcquireLock("s1") not in calls(driver.feed(c.LockWon("s1", 5)))


def test_a_candidate_tries_when_consul_is_back() -> None:
    """The holder may have died meanwhile, and the watch's connection with it."""
    driver = Driver()
    driver.feed(c.ElectionTicked())
    driver.feed(c.CallDone(c.Register(False, Condition())))
    driver.feed(c.SessionMade("s1"), entry("other"), c.LockRefused("s1"))
    driver.feed(c.CallFailed(c.PassCheck(""), AWAY, "refused"), after=1.0)
    assert c.AcquireLock("s1") in calls(driver.feed(c.CallDone(c.PassCheck(""))))


def test_resigning_tells_before_it_releases_and_stands_back() -> None:
    """Nobody can be elected before we know that we lead no more; then others have a second."""
    driver = Driver().leads()
    effects = driver.feed(c.ResignAsked())
    assert effects.index(c.Tell(Deposed("resigned"))) < effects.index(c.ReleaseLock("s1"))
    driver.feed(c.CallDone(c.ReleaseLock("s1")))
    soon = calls(driver.feed(entry(""), after=STAND_BACK_S / 2))
    assert c.AcquireLock("s1") not in soon
    assert c.AcquireLock("s1") in calls(driver.feed(c.ElectionTicked(), after=STAND_BACK_S))


def test_a_release_is_repeated_until_it_is_done() -> None:
    """Consul may be away just then; without a release nobody else could lead."""
    driver = Driver().leads()
    driver.feed(c.ResignAsked())
    driver.feed(c.CallFailed(c.ReleaseLock("s1"), AWAY, "refused"))
    again = [call for _ in range(4) for call in calls(driver.feed(c.ElectionTicked(), after=0.5))]
    assert c.ReleaseLock("s1") in again


def test_closing_releases_destroys_deregisters() -> None:
    """In this order: destroying first would keep others out for the lock-delay."""
    driver = Driver().leads()
    driver.feed(c.CallDone(c.Register(True, Condition())))
    assert driver.feed(c.CloseAsked()) == [
        c.ReleaseLock("s1"),
        c.DestroySession("s1"),
        c.Deregister(),
    ]
    assert driver.feed(c.ElectionTicked(), after=10) == []


def test_a_forgotten_check_is_registered_again() -> None:
    """The agent was restarted without its data."""
    driver = Driver().leads()
    driver.feed(c.CallDone(c.Register(True, Condition())))
    effects = driver.feed(c.CallFailed(c.PassCheck(""), c.Trouble.GONE, "unknown check"))
    assert c.Register(True, Condition()) in calls(effects)


def test_a_condition_is_published_now_and_then_and_tags_at_once() -> None:
    """Each change wakes every watch of the cluster: notes wait, who leads and who drains not."""
    driver = Driver(MemberRole.WORKER)
    driver.feed(c.ElectionTicked())
    driver.feed(c.CallDone(c.Register(False, Condition())))
    assert calls(driver.feed(c.ConditionSet(Condition("1 page")))) == []
    urgent = Condition("1 page", ("draining",))
    assert calls(driver.feed(c.ConditionSet(urgent))) == [c.Register(False, urgent)]
    driver.feed(c.CallDone(c.Register(False, urgent)))
    patient = Condition("2 pages", ("draining",))
    driver.feed(c.ConditionSet(patient))
    later = [call for _ in range(40) for call in calls(driver.feed(c.ElectionTicked(), after=0.5))]
    assert c.Register(False, patient) in later


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (b"garbage", "garbage"),
        (b"\xff", "not a zcrawl master"),
        (b"[" * 10_000, "not a zcrawl master"),
    ],
)
def test_a_holder_that_is_none_of_us_is_described(value: bytes, detail: str) -> None:
    """Nobody is named as leader, and the reason can be read."""
    driver = Driver()
    (event,) = events_in(driver.feed(c.LockRead(c.LockEntry("abc", 3, value))))
    assert isinstance(event, LeaderSeen)
    assert event.master_id is None
    assert "abc" in event.detail
    assert detail in event.detail
