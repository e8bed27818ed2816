"""A fake Consul in memory that behaves like the real one where it matters.

One agent and its servers: sessions that act at twice their TTL and die at once with their check,
lock-delay on invalidation but not on release, 404 on renew, "No cluster leader", a check that
expires, entries that vanish a minute after, data that is lost (then the index goes back). Readings
may be asked for at any time and prove no change. Pure: `now` comes in; the contract suite compares
it with the real server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zcrawl.coord import calls as c
from zcrawl.coord.ports import Condition, Member, MemberRole
from zcrawl.coord.records import (
    CHECK_TTL_S,
    NO_SESSION,
    SESSION_TTL_S,
    check_of,
    lock_key,
    meta_of,
    read_row,
    service_id,
    tags_of,
    write_lock_value,
)

SESSION_ACTS_AT_S: Final = 2 * SESSION_TTL_S
REMOVED_AFTER_S: Final = 60.0
NODE: Final = "node-1"
NEVER: Final = float("inf")


class _Service:
    def __init__(self, member: Member, leads: bool, condition: Condition, now: float) -> None:
        self.member = member
        self.leads = leads
        self.condition = condition
        self.passed_at = now
        self.critical_since = NEVER


class _Session:
    def __init__(self, check: str, lock_delay_s: float, now: float) -> None:
        self.check = check  # a service's id; empty: bound to no check
        self.lock_delay_s = lock_delay_s
        self.renewed_at = now


class FakeConsul:
    def __init__(self) -> None:
        self.leaderless = False  # the agent answers, the servers have no leader
        self.unreachable = False  # no agent answers
        self.index = 1
        self.on_change: list[Callable[[], None]] = []
        self.services: dict[str, _Service] = {}
        self.sessions: dict[str, _Session] = {}
        self.locks: dict[str, c.LockEntry] = {}
        self._lock_delay_until: dict[str, float] = {}
        self._serial = 0

    # ------------------------------------------------------------ time

    def advance(self, now: float) -> None:
        """Expire checks, sessions and entries that are due by now."""
        if self.leaderless or self.unreachable:
            return  # timers belong to the leader, and a stopped process has none
        for key, service in list(self.services.items()):
            if service.critical_since < NEVER:
                if now - service.critical_since >= REMOVED_AFTER_S:
                    del self.services[key]
                    self._changed()
            elif now - service.passed_at >= CHECK_TTL_S:
                service.critical_since = now
                self._kill_bound_to(key, now)
                self._changed()
        for name, session in list(self.sessions.items()):
            if now - session.renewed_at >= SESSION_ACTS_AT_S:
                self._invalidate(name, now)

    def change_leader(self, now: float) -> None:
        """Change the leader of the servers, which restarts the TTL of every session."""
        for session in self.sessions.values():
            session.renewed_at = now

    def wipe(self) -> None:
        """Lose all data; all nodes must register again, and the index starts again."""
        self.index = 1
        self.services.clear()
        self.sessions.clear()
        self.locks.clear()
        self._lock_delay_until.clear()
        self._changed()

    def scribble(self, cluster: str, value: bytes) -> None:
        """Write the key without the lock: the holder stays, LockIndex starts again."""
        before = self.locks.get(lock_key(cluster))
        session = before.session if before else NO_SESSION
        self.locks[lock_key(cluster)] = c.LockEntry(session, 0, value)
        self._changed()

    # ------------------------------------------------------------ calls

    def perform(self, me: Member, call: c.Call, now: float) -> c.CallAnswer:
        self.advance(now)
        if self.unreachable:
            return c.CallFailed(call, c.Trouble.AWAY, "connection refused")
        if self.leaderless and not isinstance(call, c.Register | c.PassCheck | c.Deregister):
            return c.CallFailed(call, c.Trouble.AWAY, "500 No cluster leader")
        match call:
            case c.Register(leads, condition):
                self.services[service_id(me)] = _Service(me, leads, condition, now)
                self._changed()
            case c.PassCheck():
                if service_id(me) not in self.services:
                    return c.CallFailed(call, c.Trouble.GONE, "does not have associated TTL")
                self._pass(self.services[service_id(me)], now)
            case c.CreateSession():
                return self._create(me, now)
            case c.RenewSession(session):
                if session not in self.sessions:
                    return c.CallFailed(call, c.Trouble.GONE, f"Session id '{session}' not found")
                self.sessions[session].renewed_at = now
            case c.AcquireLock(session):
                return self._acquire(me, session, now)
            case c.ReleaseLock(session):
                self._release(session)
            case c.DestroySession(session):
                if session in self.sessions:
                    self._invalidate(session, now)
            case c.Deregister():
                self._deregister(service_id(me), now)
            case c.DeregisterDead(_, dead):
                self._deregister(dead, now)
        return c.CallDone(call)

    def _pass(self, service: _Service, now: float) -> None:
        service.passed_at = now
        if service.critical_since < NEVER:
            service.critical_since = NEVER
            self._changed()

    def _create(self, me: Member, now: float) -> c.CallAnswer:
        service = self.services.get(service_id(me))
        if service is None or service.critical_since < NEVER:
            reason = f"500 Check 'service:{service_id(me)}' is in critical state"
            return c.CallFailed(c.CreateSession(), c.Trouble.REFUSED, reason)
        return c.SessionMade(self._new_session(service_id(me), 0.0, now))

    def _acquire(self, me: Member, session: str, now: float) -> c.CallAnswer:
        if session not in self.sessions:
            return c.CallFailed(c.AcquireLock(session), c.Trouble.GONE, "invalid session")
        key = lock_key(me.cluster)
        entry = self.locks.get(key)
        holder = entry.session if entry is not None else NO_SESSION
        if holder not in (NO_SESSION, session) or now < self._lock_delay_until.get(key, 0.0):
            return c.LockRefused(session)
        index = entry.lock_index if entry is not None else 0
        new = c.LockEntry(session, index + (holder != session), write_lock_value(me, ""))
        if new != entry:
            self.locks[key] = new
            self._changed()
        return c.LockWon(session, new.lock_index)

    def _deregister(self, key: str, now: float) -> None:
        if self.services.pop(key, None) is not None:
            self._kill_bound_to(key, now)
            self._changed()

    # ------------------------------------------------------------ sessions and locks

    def _new_session(self, check: str, lock_delay_s: float, now: float) -> str:
        self._serial += 1
        name = f"session-{self._serial}"
        self.sessions[name] = _Session(check, lock_delay_s, now)
        return name

    def _kill_bound_to(self, check: str, now: float) -> None:
        for name, session in list(self.sessions.items()):
            if session.check == check:
                self._invalidate(name, now)

    def _invalidate(self, name: str, now: float) -> None:
        session = self.sessions.pop(name)
        for key in self._release(name):
            self._lock_delay_until[key] = now + session.lock_delay_s

    def _release(self, session: str) -> list[str]:
        held = [key for key, entry in self.locks.items() if entry.session == session]
        for key in held:
            entry = self.locks[key]
            self.locks[key] = c.LockEntry(NO_SESSION, entry.lock_index, entry.value)
            self._changed()
        return held

    def _changed(self) -> None:
        self.index += 1
        for notify in self.on_change:
            notify()

    # ------------------------------------------------------------ readings

    def read_lock(self, cluster: str, now: float) -> c.LockRead | c.WatchFailed:
        self.advance(now)
        if self.unreachable or self.leaderless:
            return c.WatchFailed("lock", c.Trouble.AWAY, "500 No cluster leader")
        return c.LockRead(self.locks.get(lock_key(cluster)))

    def read_members(
        self, role: MemberRole, cluster: str, now: float
    ) -> c.MembersRead | c.WatchFailed:
        self.advance(now)
        if self.unreachable or self.leaderless:
            return c.WatchFailed(role.value, c.Trouble.AWAY, "500 No cluster leader")
        rows = [
            read_row(role, cluster, _as_json(service))
            for service in self.services.values()
            if service.member.role is role
        ]
        return c.MembersRead(role, tuple(row for row in rows if row is not None))


def _as_json(service: _Service) -> dict[str, Any]:
    """Return a service as /v1/health/service does, so that the product's own code reads it."""
    member, key = service.member, service_id(service.member)
    status = "passing" if service.critical_since == NEVER else "critical"
    check = check_of(member, service.condition)
    return {
        "Node": {"Node": NODE},
        "Service": {
            "ID": key,
            "Tags": tags_of(member, service.leads, service.condition),
            "Meta": meta_of(member, service.condition),
        },
        "Checks": [
            {"ServiceID": "", "Status": "passing", "Notes": "", "Output": "Agent alive"},
            {"ServiceID": key, "Status": status, "Notes": check["Notes"], "Output": ""},
        ],
    }
