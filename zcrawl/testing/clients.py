"""The users of a simulated world: one submits until answered, one pauses and resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from zcrawl.master import events as m
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.model.formats import JSONL
from zcrawl.model.spec import Fetch, JobSpec, Scope
from zcrawl.model.states import RunState

if TYPE_CHECKING:
    from zcrawl.testing.world import World

CLIENT_AGAIN_S = 2.0


class Clients:
    def __init__(self, world: World, runs: int) -> None:
        self.runs_wanted = runs
        self.answered: list[tuple[int, int]] = []
        self._world = world
        self._actions = 0
        self._acted: set[str] = set()
        # A master that slept may carry out an old request this long after the faults' end.
        self._calm_at = world.began + world.faults.until_s + 30.0

    def begin(self) -> None:
        self._world.at(0.1, lambda: self._submit(1))

    def _submit(self, number: int) -> None:
        spec = JobSpec(
            name="sim",
            seeds=(self._world.web.seed,),
            scope=Scope(hosts=tuple(self._world.web.hosts), max_pages=self._world.faults.max_pages),
            politeness=self._world.politeness,
            fetch=Fetch(retries=4, timeout=10.0),
            recrawl=self._world.recrawl,
        )
        request = ClientRequest(
            f"submit-{number}",
            "submit",
            {
                "spec": msgspec.to_builtins(spec),
                "mode": "new" if number == 1 else "again",
                "seeds": [self._world.web.seed],
                "seeding": False,
                "output": ["sim-{run}.jsonl", JSONL],
            },
        )
        self._ask(request, number)

    def _ask(self, request: ClientRequest, number: int) -> None:
        if len(self.answered) >= number:
            return
        master = self._world.rng.choice(list(self._world.masters.values()))
        if self._world.copies():
            self._world.tell_master(master, m.ClientAsked(request.id.encode(), request))
        self._world.at(CLIENT_AGAIN_S, lambda: self._ask(request, number))

    def take(self, reply: Reply) -> None:
        kind, _, digits = reply.id.partition("-")
        if kind not in ("submit", "act"):
            return
        if not self._world.copies() or not reply.ok:
            return
        if kind == "act":
            self._acted.add(reply.id)
            return
        number = int(digits)
        if len(self.answered) >= number:
            return

        def note() -> None:
            if len(self.answered) < number:
                self.answered.append((reply.data["job"], reply.data["run"]))
                if number < self.runs_wanted:
                    self._world.at(
                        self._world.rng.uniform(0.5, 20), lambda: self._submit(number + 1)
                    )

        self._world.at(self._world.latency(), note)

    def pause_run(self) -> None:
        """Pause the newest run and resume it, with as many tries as necessary."""
        if not self.answered:
            return
        self._actions += 2
        pause, resume, run = self._actions, self._actions + 1, self.answered[-1][1]
        self._act(pause, "pause", run, tries=1)
        self._world.at(
            self._world.rng.uniform(1, 8), lambda: self._act(resume, "resume", run, tries=1_000)
        )

    def _act(self, number: int, action: str, run: int, tries: int) -> None:
        args = {"ref": "sim", "action": action, "run": run}
        # A pause may be carried out late, by a master that slept: the operator looks again.
        state = self._world.store.tables.runs[run].state
        done = f"act-{number}" in self._acted
        content = done and state is not RunState.PAUSED
        if tries == 0 or state.ended or (content and self._world.now > self._calm_at):
            return
        if done and not content:  # under the same id it would be answered, and nothing done
            self._actions += 2
            number = self._actions + 1
        request = ClientRequest(f"act-{number}", "act", args)
        for master in self._world.masters.values():
            self._world.tell_master(master, m.ClientAsked(request.id.encode(), request))
        self._world.at(CLIENT_AGAIN_S, lambda: self._act(number, action, run, tries - 1))
