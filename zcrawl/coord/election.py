"""How one member registers, stands for election and learns that it leads no more.

    state      │ means                           │ leaves it when
    ───────────┼─────────────────────────────────┼──────────────────────────────────────────────
    OUTSIDE    │ no session: start, or it died   │ a session is made ──▶ CANDIDATE (masters only)
    CANDIDATE  │ waits for the lock to be free   │ the lock is won ──▶ LEADER, tells Elected
               │                                 │ the session is gone ──▶ OUTSIDE
    LEADER     │ the lock is ours                │ the session is gone ──▶ OUTSIDE, tells Deposed
               │                                 │ another holds the lock ──▶ CANDIDATE, Deposed
               │                                 │ asked to resign ──▶ RESIGNING, tells Deposed
    RESIGNING  │ gives the lock back             │ it is back, or the session is gone ──▶ as above
    CLOSED     │ gave everything back            │ never

Beside the state: `registered` (the catalogue knows us; the check is passed every second, but only
while our event loop turns) and the needs that fail just now (`CoordAway` when the first one fails,
`CoordBack` when the last one is met again). A failure never moves the state: without Consul nobody
else can win the lock, so a leader stays leader. What moves it is an answer: 404 on renew, a lock
that another holds.

Doubt: whatever suggests that the lock is lost (a reading from a watch, which may be old; a gap in
our own time: a paused process, a sleeping machine) makes the leader acquire its lock again. To the
session that holds it Consul answers with the same number; with another number, the lock was not
ours in between. So nothing is claimed after a gap before Consul has confirmed it.

Called by `agents.consul` and by the simulated world. `now` is CLOCK_BOOTTIME; the wall clock plays
no part.
"""

from __future__ import annotations

import enum
from typing import Final, assert_never

from zcrawl.coord import calls as c
from zcrawl.coord.members import Members
from zcrawl.coord.ports import Condition, CoordAway, CoordBack, Deposed, Elected, Member, MemberRole
from zcrawl.coord.records import NO_SESSION, is_value_of, read_lock

PASS_EVERY_S: Final = 1.0  # a third of the check's TTL
LOOP_SILENCE_S: Final = 2.0  # an event loop that has not turned for longer is taken for dead
RENEW_EVERY_S: Final = 3.0  # the session lasts 20 s; this is how soon a lost one is noticed
GAP_S: Final = 1.8  # longer than a call may take, shorter than the check's TTL
STAND_BACK_S: Final = 1.0  # after resigning: another shall win
ACQUIRE_AGAIN_S: Final = 0.5  # the lock looks free and is refused: lock-delay of somebody else
RETRY_FIRST_S: Final = 0.1
RETRY_LONGEST_S: Final = 1.0
PUBLISH_EVERY_S: Final = 15.0  # each change wakes every watch of the cluster
PUBLISH_SOON_S: Final = 2.0  # after a new role, whose words follow
# A plain write to the key keeps its holder and zeroes its number. To acquire a free lock counts up
# from there, so who is given 0 has held it all the time.
OVERWRITTEN: Final = 0
QUIET_TRIES: Final = 5  # a refusal right after registering is normal: the servers hear it late
LOCK: Final = "lock"


class State(enum.Enum):
    OUTSIDE = "outside"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNING = "resigning"
    CLOSED = "closed"


class LockKnowledge(enum.Enum):
    """What we know of the lock."""

    FREE = "free"  # read from Consul: free, or ours
    HELD = "held"  # by another
    UNKNOWN = "unknown"  # nothing read yet, or Consul was away: a try costs one call


class Election:
    def __init__(self, me: Member, now: float) -> None:
        self.me = me
        self.state = State.OUTSIDE
        self.registered = False
        self.session = NO_SESSION
        self.hint = 0
        self.members = Members(me)
        self._condition = Condition()
        self._published: c.Register | None = None
        self._publish_at = 0.0
        self._lived_at = now  # of the event loop: it has just started us
        self._last_at = now
        self._lock = LockKnowledge.UNKNOWN
        self._stand_at = now  # not before; moved on by resigning
        self._doubt = False
        self._seen: object = None
        self._asked_at: dict[type, float] = {}  # calls under way
        self._due: dict[type, float] = {}  # not before; absent: at once
        self._tries: dict[type, int] = {}
        self._failing: dict[str, str] = {}
        self._told_denied = False
        # Members that lost Consul at the same moment shall not come back at the same moment.
        self._spread = 0.75 + (me.incarnation % 1000) / 2000

    # ------------------------------------------------------------ in and out

    def handle(self, event: c.ElectionEvent, now: float) -> c.ElectionEffects:
        if self.state is State.CLOSED:
            return []
        if now - self._last_at > GAP_S and self.state is State.LEADER:
            self._doubt = True
        self._last_at = now
        effects: c.ElectionEffects = []
        match event:
            case c.ElectionTicked():
                pass
            case c.LoopLived(at):
                self._lived_at = max(self._lived_at, at)
            case c.ConditionSet(condition):
                self._condition = condition
            case c.ResignAsked():
                effects += self._on_resign()
            case c.CloseAsked():
                return self._on_close()
            case c.LockRead(entry):
                effects += self._on_lock_read(entry)
            case c.MembersRead(role, rows):
                effects += self._met(f"watch {role.value}")
                effects += self.members.read(role, rows, now)
            case c.WatchFailed(what, trouble, reason):
                effects += self._failed(f"watch {what}", trouble, reason)
            case c.CallDone(call):
                effects += self._on_done(call, now)
            case c.SessionMade(session):
                effects += self._on_session(session, now)
            case c.LockWon(session, hint):
                effects += self._on_won(session, hint, now)
            case c.LockRefused(session):
                effects += self._on_refused(session, now)
            case c.CallFailed(call, trouble, reason):
                effects += self._on_failed(call, trouble, reason, now)
            case _:
                assert_never(event)
        effects += self._lock_not_needed()
        return effects + self.members.doubles(now) + self._calls_due(now)

    def next_wakeup(self, now: float) -> float:
        moments = [at for at in (*self._due.values(), self._stand_at) if at > now]
        return min([*moments, now + PASS_EVERY_S / 2])

    @property
    def away(self) -> str:
        """What fails just now; empty when nothing does."""
        return "; ".join(f"{need}: {reason}" for need, reason in sorted(self._failing.items()))

    # ------------------------------------------------------------ what is to be called

    def _calls_due(self, now: float) -> c.ElectionEffects:
        """In the order in which they are to be made; each kind only once at a time."""
        if self.state is State.CLOSED:
            return []
        effects: c.ElectionEffects = []
        for call in self._wanted(now):
            kind = type(call)
            if kind in self._asked_at or now < self._due.get(kind, 0.0):
                continue
            self._asked_at[kind] = now
            effects.append(call)
        return effects

    def _wanted(self, now: float) -> list[c.Call]:
        alive = now - self._lived_at <= LOOP_SILENCE_S
        calls: list[c.Call] = []
        # A doubt comes first: what it finds decides what we say of ourselves.
        if self.state is State.LEADER and self._doubt:
            calls.append(c.AcquireLock(self.session))
        if self.state is State.RESIGNING:
            calls.append(c.ReleaseLock(self.session))
        stands = self.state is State.CANDIDATE and alive and now >= self._stand_at
        if stands and self._lock is not LockKnowledge.HELD:
            calls.append(c.AcquireLock(self.session))
        if alive:
            calls.append(c.PassCheck(self._condition.note) if self.registered else self._entry())
            if self.registered and not self._doubt and self._entry_is_old(now):
                calls.append(self._entry())
        if self.session:
            calls.append(c.RenewSession(self.session))
        elif self.registered and alive and self.me.role is MemberRole.MASTER:
            calls.append(c.CreateSession())
        if self.state is State.LEADER and not self._doubt:
            calls += self.members.dead(now)
        return calls

    def _entry(self) -> c.Register:
        return c.Register(self.state is State.LEADER, self._condition)

    def _entry_is_old(self, now: float) -> bool:
        """Who leads is shown at once, the rest now and then."""
        entry = self._entry()
        if entry == self._published:
            return False
        return self._is_urgent(entry) or now >= self._publish_at

    def _is_urgent(self, entry: c.Register) -> bool:
        shown = self._published
        return (
            shown is None
            or entry.leads != shown.leads
            or entry.condition.tags != shown.condition.tags
        )

    # ------------------------------------------------------------ answers

    def _on_done(self, call: c.Call, now: float) -> c.ElectionEffects:
        self._succeeded(call, now)
        effects = self._met(need_of(call))
        match call:
            case c.Register():
                self.registered = True
                urgent = self._is_urgent(call)
                self._published = call
                self._publish_at = now + (PUBLISH_SOON_S if urgent else PUBLISH_EVERY_S)
                self._due[c.PassCheck] = now + PASS_EVERY_S
            case c.PassCheck():
                self._due[c.PassCheck] = now + PASS_EVERY_S
            case c.RenewSession():
                self._due[c.RenewSession] = now + RENEW_EVERY_S
            case c.ReleaseLock(session):
                if session == self.session and self.state is State.RESIGNING:
                    self.state = State.CANDIDATE
                    self._stand_at = now + STAND_BACK_S
            case c.DeregisterDead(node, service_id):
                self.members.removed(node, service_id)
            case _:
                pass
        return effects

    def _on_session(self, session: str, now: float) -> c.ElectionEffects:
        self._succeeded(c.CreateSession(), now)
        effects = self._met(need_of(c.CreateSession()))
        if self.state is State.OUTSIDE:
            self.state, self.session = State.CANDIDATE, session
            self._due[c.RenewSession] = now + RENEW_EVERY_S
            self._lock = LockKnowledge.UNKNOWN
        return effects

    def _on_won(self, session: str, hint: int, now: float) -> c.ElectionEffects:
        asked_at = self._succeeded(c.AcquireLock(session), now)
        effects = self._met(LOCK)
        if session != self.session:
            return effects  # of a session that is gone by now
        late = now - asked_at > GAP_S
        if self.state is State.LEADER:
            self._doubt = late  # the answer is older than the gap: ask again
            if hint not in (self.hint, OVERWRITTEN):
                effects += self._lose("the lock was not ours for a while")
                effects += self._lead(hint)
        elif self.state is State.CANDIDATE and not late:
            effects += self._lead(hint)
        return effects

    def _on_refused(self, session: str, now: float) -> c.ElectionEffects:
        self._succeeded(c.AcquireLock(session), now)
        effects = self._met(LOCK)
        if session != self.session:
            return effects
        if self.state is State.LEADER:
            self.state = State.CANDIDATE
            effects += self._lose("another holds the lock")
        if self._lock is LockKnowledge.UNKNOWN:
            self._lock = LockKnowledge.HELD  # until the watch reads otherwise
        self._due[c.AcquireLock] = now + ACQUIRE_AGAIN_S
        return effects

    def _on_failed(
        self, call: c.Call, trouble: c.Trouble, reason: str, now: float
    ) -> c.ElectionEffects:
        kind = type(call)
        self._asked_at.pop(kind, None)
        if trouble is c.Trouble.GONE:
            match call:
                case c.PassCheck():
                    self.registered, self._published = False, None
                    return []  # the agent was restarted without its data: register again
                case c.RenewSession(session) | c.AcquireLock(session) | c.ReleaseLock(session):
                    return self._session_gone(session)
                case _:
                    pass
        if isinstance(call, c.DeregisterDead):
            self.members.removed(call.node, call.service_id)
            return []  # a courtesy: it is tried again if it stays dead
        if isinstance(call, c.CreateSession):
            self._due.pop(c.PassCheck, None)  # it may be critical just now
        tries = self._tries[kind] = self._tries.get(kind, 0) + 1
        pause = min(RETRY_FIRST_S * 2 ** min(tries - 1, 10), RETRY_LONGEST_S)
        self._due[kind] = now + pause * self._spread
        if trouble is c.Trouble.REFUSED and tries < QUIET_TRIES:
            return []
        return self._failed(need_of(call), trouble, reason)

    def _succeeded(self, call: c.Call, now: float) -> float:
        """The call is no longer under way; when it was asked."""
        kind = type(call)
        self._due.pop(kind, None)
        self._tries.pop(kind, None)
        return self._asked_at.pop(kind, now)

    # ------------------------------------------------------------ the lock

    def _on_lock_read(self, entry: c.LockEntry | None) -> c.ElectionEffects:
        effects = self._met(f"watch {LOCK}")
        holder = entry.session if entry is not None else NO_SESSION
        self._lock = (
            LockKnowledge.FREE if holder in (NO_SESSION, self.session) else LockKnowledge.HELD
        )
        spoilt = entry is not None and not is_value_of(self.me, entry.value)
        if self.state is State.LEADER and (holder != self.session or spoilt):
            self._doubt = True  # acquiring again also writes the value again
        elif self._lock is LockKnowledge.FREE:
            self._due.pop(c.AcquireLock, None)
        seen = read_lock(self.me, self.session, entry)
        if seen != self._seen and not (self._doubt and holder == self.session):
            self._seen = seen
            effects.append(c.Tell(seen))
        return effects

    def _lead(self, hint: int) -> c.ElectionEffects:
        self.state, self.hint = State.LEADER, hint
        self._doubt = False
        return [c.Tell(Elected(hint, alone=False))]

    def _lose(self, reason: str) -> c.ElectionEffects:
        self._doubt = False
        return [c.Tell(Deposed(reason))]

    def _session_gone(self, session: str) -> c.ElectionEffects:
        if session != self.session:
            return []
        led = self.state is State.LEADER
        self.state, self.session = State.OUTSIDE, NO_SESSION
        self._lock = LockKnowledge.UNKNOWN
        effects = self._lose("the session is gone") if led else []
        for call in (c.AcquireLock(session), c.RenewSession(session)):
            effects += self._met(need_of(call))  # or given up: there is nothing to renew
        return effects

    def _on_resign(self) -> c.ElectionEffects:
        if self.state is not State.LEADER:
            return []  # it was deposed before it asked
        self.state = State.RESIGNING
        # Told before the lock is free: nobody else can be elected earlier.
        return self._lose("resigned")

    def _on_close(self) -> c.ElectionEffects:
        held = self.state in (State.LEADER, State.RESIGNING)
        self.state = State.CLOSED
        # Released first: a destroyed session would keep others out for its lock-delay.
        effects: c.ElectionEffects = [c.ReleaseLock(self.session)] if held else []
        if self.session:
            effects.append(c.DestroySession(self.session))
        return [*effects, c.Deregister()]

    # ------------------------------------------------------------ away and back

    def _failed(self, need: str, trouble: c.Trouble, reason: str) -> c.ElectionEffects:
        first = not self._failing
        self._failing[need] = reason
        # A missing right is told although Consul was away before: only a person can mend it.
        news = trouble is c.Trouble.DENIED and not self._told_denied
        self._told_denied = self._told_denied or news
        return [c.Tell(CoordAway(f"{need}: {reason}"))] if first or news else []

    def _met(self, need: str) -> c.ElectionEffects:
        if self._failing.pop(need, None) is None or self._failing:
            return []
        self._told_denied = False
        if self._lock is LockKnowledge.HELD:
            self._lock = LockKnowledge.UNKNOWN  # the watch may learn late what happened meanwhile
        return [c.Tell(CoordBack())]

    def _lock_not_needed(self) -> c.ElectionEffects:
        """A failed try for the lock does not count once another is known to hold it: a candidate
        waits then, and no later call would show that Consul is back."""
        waits = self.state is State.CANDIDATE and self._lock is LockKnowledge.HELD
        return self._met(LOCK) if waits else []

    def check(self) -> None:
        leads = self.state in (State.LEADER, State.RESIGNING)
        assert not leads or self.session, "who leads has a session"
        assert self.me.role is MemberRole.MASTER or not self.session, "only masters have sessions"
        assert not self._doubt or self.state is State.LEADER, "only a leader can doubt"
        assert (self.state is State.CANDIDATE) <= bool(self.session), "no candidate without session"


def need_of(call: c.Call) -> str:
    """What fails when this call fails, in words for people."""
    match call:
        case c.Register():
            return "register"
        case c.PassCheck():
            return "pass the check"
        case c.CreateSession():
            return "create a session"
        case c.RenewSession():
            return "renew the session"
        case c.AcquireLock() | c.ReleaseLock():
            return LOCK
        case c.DestroySession():
            return "destroy the session"
        case c.Deregister():
            return "deregister"
        case c.DeregisterDead():
            return "remove a dead member"
        case _:
            assert_never(call)
