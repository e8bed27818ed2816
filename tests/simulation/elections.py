"""A simulated race for the lock: several masters on one fake Consul, and a seed's misfortunes."""

from __future__ import annotations

from collections.abc import Callable

from zcrawl.coord.election import GAP_S, State
from zcrawl.coord.ports import CoordEvent, Deposed, Elected, Member, MemberRole
from zcrawl.testing.coordinator import SimCoordinator, Timeline, let_run
from zcrawl.testing.lock_service import FakeConsul

CLUSTER = "prod"
LOCK = f"zcrawl/{CLUSTER}/leader"
TROUBLE_S = 60.0
# Two passes of the check, a renewal and the longest backoff: who lost the lock knows it by then.
LEARNS_WITHIN_S = 8.0
HEARS_WITHIN_S = 1.0  # of an undisturbed change: a watch tells
ELECTED_WITHIN_S = 15.0


class Candidate:
    """One process: its coordinator, its event loop, and the events that it got."""

    def __init__(self, race: Race, id: str, incarnation: int) -> None:
        self.race = race
        self.id = id
        self.coordinator = SimCoordinator(race.consul, race.time)
        self.events: list[CoordEvent] = []
        self.stalled_until = 0.0
        self.disturbed_at = race.time.now  # since when it could have learned everything
        member = Member(MemberRole.MASTER, id, CLUSTER, "1", "host", 1, incarnation)
        self.coordinator.start(member, self.on_event)
        self._beat()

    @property
    def leads(self) -> bool:
        return self.coordinator.alive and self.coordinator.election.state is State.LEADER

    def disturb(self, until: float) -> None:
        self.disturbed_at = max(self.disturbed_at, until)

    def on_event(self, event: CoordEvent) -> None:
        self.events.append(event)
        self.race.on_event(self, event)

    def _beat(self) -> None:
        if self.coordinator.alive:
            if self.race.time.now >= self.stalled_until:
                self.coordinator.loop_alive()
            self.race.time.at(0.5, self._beat)


class Race:
    def __init__(self, seed: int) -> None:
        self.time = Timeline(seed)
        self.rng = self.time.rng
        self.consul = FakeConsul()
        self.candidates: dict[str, Candidate] = {}
        self.trace: list[str] = []
        self.hints: list[int] = []  # of elections since the last loss of data
        self.consul_disturbed_at = self.time.now
        self._incarnation = 0
        self._holder = ""
        self._lost_at: dict[str, float] = {}
        let_run(self.consul, self.time)
        self.consul.on_change.append(self._on_change)
        for n in range(self.rng.randint(3, 5)):
            self.begin(f"m{n}")

    def begin(self, id: str) -> None:
        self._incarnation += 1
        self.candidates[id] = Candidate(self, id, self._incarnation)

    def note(self, what: str) -> None:
        self.trace.append(f"{self.time.now:.3f} {what}")

    def _on_change(self) -> None:
        entry = self.consul.locks.get(LOCK)
        holder = entry.session if entry is not None else ""
        if holder != self._holder:
            self._lost_at[self._holder] = self.time.now
            self._holder = holder

    # ------------------------------------------------------------ what must be true

    def on_event(self, who: Candidate, event: CoordEvent) -> None:
        self.note(f"{who.id} {event}"[:120])
        mine = [
            past_event for past_event in who.events if isinstance(past_event, Elected | Deposed)
        ]
        if not isinstance(event, Elected | Deposed):
            return
        kinds = [type(past_event) for past_event in mine]
        assert kinds == [Elected, Deposed] * (len(kinds) // 2) + [Elected] * (len(kinds) % 2), kinds
        if isinstance(event, Elected):
            assert not self.hints or event.hint > self.hints[-1], f"{self.hints} {self.trace}"
            self.hints.append(event.hint)
            session = who.coordinator.election.session
            ago = self.time.now - self._lost_at.get(session, self.time.now)
            assert session == self._holder or ago <= GAP_S, f"elected {ago} s too late"

    def check(self) -> None:
        """Every node that had enough time knows whether it has the lock."""
        now = self.time.now
        away = self.consul.unreachable or self.consul.leaderless
        if away or now - self.consul_disturbed_at < LEARNS_WITHIN_S:
            return  # nobody can know, and nobody else can take over
        sure = [
            candidate
            for candidate in self.candidates.values()
            if candidate.leads
            and not candidate.coordinator.paused
            and now - candidate.disturbed_at > LEARNS_WITHIN_S
            and now - self._lost_at.get(candidate.coordinator.election.session, 0.0)
            > HEARS_WITHIN_S
        ]
        for candidate in sure:
            session = candidate.coordinator.election.session
            assert session == self._holder, "\n".join(self.trace[-60:])
        assert len(sure) <= 1

    # ------------------------------------------------------------ running

    def run(self) -> None:
        deadline = self.time.now + TROUBLE_S
        self._plan_troubles()
        while self.time.now < deadline:
            self.time.run_until(lambda: False, 0.25)
            self.check()
        self._mend()
        assert self.time.run_until(self.has_leader, ELECTED_WITHIN_S), "\n".join(self.trace[-60:])
        self.time.run_until(lambda: False, LEARNS_WITHIN_S + 5.0)
        self.check()
        assert self.has_leader(), "\n".join(self.trace[-60:])
        assert sum(candidate.leads for candidate in self.candidates.values()) == 1

    def has_leader(self) -> bool:
        entry = self.consul.locks.get(LOCK)
        return entry is not None and any(
            candidate.leads and candidate.coordinator.election.session == entry.session
            for candidate in self.candidates.values()
        )

    def _plan_troubles(self) -> None:
        troubles: list[Callable[[], None]] = [
            self._pause,
            self._pause,
            self._kill,
            self._stall,
            self._cut,
            self._resign,
            self._outage,
            self._leaderless,
            self._wipe,
            self._lose_answers,
            self._scribble,
        ]
        for _ in range(self.rng.randint(3, 12)):
            self.time.at(self.rng.uniform(1.0, TROUBLE_S - 25.0), self.rng.choice(troubles))

    def _any(self) -> Candidate:
        leaders = [candidate for candidate in self.candidates.values() if candidate.leads]
        if leaders and self.rng.random() < 0.7:
            return leaders[0]
        return self.rng.choice(list(self.candidates.values()))

    def _pause(self) -> None:
        candidate, for_s = self._any(), self.rng.choice([1.0, 2.5, 4.0, 20.0])
        if candidate.coordinator.paused or not candidate.coordinator.alive:
            return
        self.note(f"{candidate.id} is paused for {for_s}")
        candidate.coordinator.pause()
        self.time.at(for_s, lambda: self._go_on(candidate))

    def _go_on(self, candidate: Candidate) -> None:
        candidate.disturb(self.time.now)
        candidate.coordinator.resume()

    def _kill(self) -> None:
        candidate = self._any()
        if not candidate.coordinator.alive:
            return
        self.note(f"{candidate.id} is killed")
        candidate.coordinator.kill()
        self.time.at(self.rng.uniform(0.2, 6.0), lambda: self.begin(candidate.id))

    def _stall(self) -> None:
        candidate = self._any()
        self.note(f"{candidate.id} stalls")
        candidate.stalled_until = self.time.now + self.rng.choice([1.0, 5.0, 9.0])

    def _cut(self) -> None:
        candidate, for_s = self._any(), self.rng.choice([1.0, 5.0, 15.0])
        self.note(f"{candidate.id} is cut off for {for_s}")
        until = self.time.now + for_s
        candidate.coordinator.cut_until = max(candidate.coordinator.cut_until, until)
        candidate.disturb(until)

    def _resign(self) -> None:
        candidate = self._any()
        if candidate.coordinator.alive:
            candidate.coordinator.resign()

    def _outage(self) -> None:
        self.note("Consul is away")
        self.consul.unreachable = True
        self.time.at(self.rng.choice([0.5, 2.0, 4.0, 20.0]), self._consul_back)

    def _leaderless(self) -> None:
        self.note("Consul has no leader")
        self.consul.leaderless = True
        self.time.at(self.rng.choice([0.5, 2.0, 8.0]), self._consul_back)

    def _consul_back(self) -> None:
        self.consul.unreachable = self.consul.leaderless = False
        self.consul.change_leader(self.time.now)
        self.consul_disturbed_at = self.time.now

    def _wipe(self) -> None:
        self.note("Consul's data is lost")
        self.hints.clear()
        self.consul.wipe()
        self.consul_disturbed_at = self.time.now

    def _scribble(self) -> None:
        self.note("somebody writes into the key")
        self.hints.clear()
        self.consul.scribble(CLUSTER, b"garbage")

    def _lose_answers(self) -> None:
        candidate = self._any()
        candidate.coordinator.lossy = 0.3

        def mend() -> None:
            candidate.coordinator.lossy = 0.0

        self.time.at(5.0, mend)
        candidate.disturb(self.time.now + 5.0)

    def _mend(self) -> None:
        self._consul_back()
        for candidate in list(self.candidates.values()):
            candidate.coordinator.lossy = candidate.coordinator.cut_until = (
                candidate.stalled_until
            ) = 0.0
            if candidate.coordinator.paused:
                self._go_on(candidate)
            candidate.disturbed_at = self.time.now
