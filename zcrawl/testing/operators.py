"""The operators of a simulated world: they drain and undrain workers, move hosts and retry runs.

They check the answers of leaders and their effects, and fail at once (AssertionError):

- An answered drain is respected: from then on no leader assigns anything to that worker, whatever
  process has its name, until it is undrained or its node is restarted.
- A refused request has no effect.
- A retry queues each dead request once, however many leaders work on it, and its answer counts all
  of them (`check`, at the end).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from zcrawl.master import events as m
from zcrawl.mesh.messages import Assign, Body, ClientRequest, Reply
from zcrawl.model.reasons.cluster import NO_LEADER
from zcrawl.model.reasons.storage import COMMIT_UNKNOWN, STORE_UNAVAILABLE
from zcrawl.model.states import RequestState
from zcrawl.store.commands import Command, RetryDead
from zcrawl.testing.processes import SimMaster

if TYPE_CHECKING:
    from zcrawl.testing.world import World

AGAIN_S = 2.0
TRY_AGAIN = (NO_LEADER, STORE_UNAVAILABLE, COMMIT_UNKNOWN)


class Operators:
    def __init__(self, world: World) -> None:
        self._world = world
        self._requests: dict[str, ClientRequest] = {}
        self._answers: dict[str, Reply] = {}  # what leaders said first, by request
        self._open: set[str] = set()  # requests that are repeated until they are answered
        self._under_way: set[str] = set()  # workers that somebody drains or undrains
        self._over: set[str] = set()  # drains that were followed by an undrain
        self._drained: dict[str, int] = {}  # worker → epoch that has answered so
        self._requeued: dict[str, list[int]] = {}  # retry → requests that it queued
        self._calm_at = world.began + world.faults.until_s + 30.0

    # ------------------------------------------------------------ what they do

    def drain(self) -> None:
        """Drain a worker, and undrain it a little later, with as many tries as necessary."""
        world = self._world
        free = [name for name in world.workers if name not in self._under_way]
        if free:
            worker = world.rng.choice(free)
            self._under_way.add(worker)
            number = self._ask("drain", {"node": worker})
            world.at(world.rng.uniform(2.0, 15.0), lambda: self._undrain(worker, number))

    def _undrain(self, worker: str, drain: str = "") -> None:
        self._over.add(drain)
        self._open.discard(drain)
        self._drained.pop(worker, None)
        undrain = self._ask("undrain", {"node": worker})
        self._look_again(worker, undrain, sure=drain in self._answers)

    def _look_again(self, worker: str, undrain: str, sure: bool) -> None:
        """Check again after an undrain, because a master that slept may carry out an unanswered
        drain later. An answered one (`sure`) is carried out only once."""
        world = self._world
        if undrain not in self._open and worker in world.store.tables.drains:
            self._undrain(worker)
        elif undrain in self._open or (world.now < self._calm_at and not sure):
            world.at(AGAIN_S, lambda: self._look_again(worker, undrain, sure))
        else:
            self._under_way.discard(worker)

    def move_host(self) -> None:
        hosts = list(self._world.store.tables.hosts.values())
        if hosts:
            host = self._world.rng.choice(hosts).origin
            node = self._world.rng.choice(list(self._world.workers))
            self._ask("reassign", {"host": host, "node": node}, tries=3)

    def retry(self) -> None:
        """Retry a run. Some clients give up at once, and the leaders must still finish it."""
        world = self._world
        if world.answered:
            run = world.rng.choice(world.answered)[1]
            args = {"ref": "sim", "action": "retry", "run": run}
            self._ask("act", args, "retry", tries=world.rng.choice([1, 1_000]))

    def _ask(self, op: str, args: dict[str, Any], kind: str = "", tries: int = 1_000) -> str:
        request = ClientRequest(f"{kind or op}-{len(self._requests)}", op, args)
        self._requests[request.id] = request
        self._open.add(request.id)
        self._send(request, tries)
        return request.id

    def _send(self, request: ClientRequest, tries: int) -> None:
        if tries == 0:
            self._open.discard(request.id)
        if request.id not in self._open:
            return
        world = self._world
        master = world.rng.choice(list(world.masters.values()))
        if world.copies():
            world.tell_master(master, m.ClientAsked(request.id.encode(), request))
        world.at(AGAIN_S, lambda: self._send(request, tries - 1))

    @property
    def content(self) -> bool:
        """Return whether all requests are answered and completely carried out."""
        tables = self._world.store.tables
        return not (self._open or self._under_way or tables.retries)

    @property
    def answered(self) -> int:
        """Return how many requests were answered."""
        return len(self._answers)

    # ------------------------------------------------------------ what they see

    def said(self, master: SimMaster, reply: Reply) -> None:
        """Note the answer of a master to an operator; the answer itself may get lost."""
        request = self._requests.get(reply.id)
        if request is None:
            return
        if reply.ok:
            first = self._answers.setdefault(reply.id, reply)
            assert first.data == reply.data, f"two answers to {reply.id}: {first}, {reply}"
            if request.op == "drain" and first is reply and self._holds(request):
                # A follower may have passed it on: no leader before this epoch counts any more.
                self._drained[request.args["node"]] = self._world.store.tables.epoch
        else:
            self._refused(master, request, reply)
        if self._world.copies() and (reply.ok or reply.data["code"] not in TRY_AGAIN):
            self._open.discard(reply.id)

    def _holds(self, request: ClientRequest) -> bool:
        """Return whether the drain must be respected from now on: it has not ended, and no earlier
        restart of a node is still unknown to the leader."""
        worker = request.args["node"]
        row = self._world.store.tables.drains.get(worker)
        heard = row is not None and row.life in (0, self._world.workers[worker].node_life)
        return heard and request.id not in self._over

    def _refused(self, master: SimMaster, request: ClientRequest, reply: Reply) -> None:
        leader, tables = master.machine.leader, self._world.store.tables
        if leader is None or leader.state.epoch != tables.epoch:
            return  # another one may do it
        state = leader.state
        if request.op == "drain":
            worker = request.args["node"]
            info = state.roster.workers.get(worker)
            assert worker in tables.drains or info is None or not info.drained, (
                f"the drain of {worker} is refused ({reply.data['code']}), and carried out"
            )
        elif request.op == "reassign":
            stored = [tables.hosts[id].origin for id in tables.wishes]
            for host in state.planner.hosts.values():
                moved = host.origin == request.args["host"] and host.wanted_owner
                assert not moved or host.origin in stored, f"{request} is refused and carried out"
        elif request.id.startswith("retry"):
            done = self._requeued.get(request.id)
            assert not done or reply.data["code"] in TRY_AGAIN, f"{request}: refused, did {done}"

    def sent(self, master: SimMaster, worker: str, body: Body) -> None:
        """Check a message from a master to a worker."""
        epoch = self._drained.get(worker)
        if epoch is not None and isinstance(body, Assign) and body.urls:
            assert master.machine.epoch < epoch, (
                f"{master.name} gives work to {worker}, whose drain epoch {epoch} has answered"
            )

    def started_anew(self, worker: str) -> None:
        """Note that a person restarted a node, which ends its drain."""
        self._drained.pop(worker, None)

    def watch(self, command: Command, done: Any) -> Any:
        """Note which requests a part of a retry has queued."""
        if not isinstance(command, RetryDead):
            return done()
        requests = self._world.store.tables.requests
        dead = [row.seq for row in requests.values() if row.state is RequestState.DEAD]
        try:
            return done()
        finally:
            again = [seq for seq in dead if requests[seq].state is RequestState.QUEUED]
            self._requeued.setdefault(command.client_action.request, []).extend(again)

    # ------------------------------------------------------------ at the end

    def check(self) -> None:
        for id, seqs in self._requeued.items():
            twice = [seq for seq, count in Counter(seqs).items() if count > 1]
            assert not twice, f"{id} queued the requests {twice} more than once"
            reply = self._answers.get(id)
            if reply is not None:
                changed = reply.data["changed"]
                assert changed == len(seqs), (
                    f"{id} queued {len(seqs)} requests, and tells {changed}"
                )
        for id, reply in self._answers.items():
            if id.startswith("retry"):
                assert id in self._requeued or not reply.data["changed"], f"{id} did nothing"
        live = {run.id for run in self._world.store.tables.runs.values()}
        states = {run.state for run in self._world.store.tables.runs.values()}
        assert live and all(state.ended for state in states), states
