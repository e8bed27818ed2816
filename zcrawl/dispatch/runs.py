"""The active runs in the leader's memory: the stored row and what is computed from it.

Filled by takeover, submissions and committed batches. Read by the planner (may this run send
requests?), by the result planner (retries, scope) and for CONFIG messages. A stored spec may come
from another version or from a master with more rights (`submit.stored`). An invalid spec is never
used; its run waits in `refused` until the leader has ended it. A run with code waits until the
masters allow code.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.dispatch.secret_book import SecretBook, stored_names
from zcrawl.errors import JobError
from zcrawl.frontier.scope import canonical_rules
from zcrawl.frontier.url import CANONICAL_VERSION, CANONICAL_VERSIONS, CanonicalRules
from zcrawl.mesh.messages import Code, RunConfig
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.reasons.usage import CODE_NOT_ALLOWED
from zcrawl.model.reasons.waiting import CANONICAL_VERSION as CANONICAL_CODE
from zcrawl.model.rows import RunRow
from zcrawl.model.spec import JobSpec, SpiderCode
from zcrawl.model.states import RunState
from zcrawl.submit.private import without_private
from zcrawl.submit.shell_rights import ALL_COMMANDS, ShellRights, waiting_for_right
from zcrawl.submit.stored import read_stored, refusal_of

NO_CODE_RIGHT: Final = with_detail(
    CODE_NOT_ALLOWED, "the masters no longer allow jobs with code; enable allow_code to continue"
)


def _unknown_version(version: int) -> str:
    """Return the wait reason of a run whose URL keys this leader cannot compute."""
    versions = ", ".join(map(str, sorted(CANONICAL_VERSIONS)))
    return with_detail(
        CANONICAL_CODE,
        f"the run has version {version} of the canonical form, and the leader "
        f"knows {versions}; it continues when a master of the version that began it leads",
    )


class ActiveRun(msgspec.Struct):
    """A run that is not ended, with its parsed spec."""

    row: RunRow
    spec: JobSpec
    revision: int = 1
    opens_private: bool = True  # this leader lets it reach private addresses (submit.private)
    runs_code: bool = True  # this leader lets it bring code (submit.code)
    shell: ShellRights = ALL_COMMANDS  # what this leader lets it run
    refusal: str = ""  # why its stored spec is not used; `spec` is an empty one then
    require: frozenset[str] = frozenset()  # labels that its workers must have
    secret_names: tuple[str, ...] = ()  # stored secrets that its spec names
    secrets_wait: str = ""  # why it waits for one of them
    secrets: SecretBook | None = None
    is_expired: bool = False  # it starts nothing more (`master.run_limits`)

    @property
    def rules(self) -> CanonicalRules:
        """The rules by which the run's URLs are made canonical."""
        return canonical_rules(self.spec.scope, self.row.canonical)

    @property
    def dispatches(self) -> bool:
        """Whether requests of the run may be sent."""
        live = self.row.state in (RunState.PENDING, RunState.RUNNING)
        return live and not self.refusal and not self.is_expired and not self.waits

    @property
    def waits(self) -> str:
        """Why the run waits although nobody paused it; empty: it does not wait."""
        if self.row.canonical not in CANONICAL_VERSIONS:
            return _unknown_version(self.row.canonical)
        if self.spec.code is not None and not self.runs_code:
            return NO_CODE_RIGHT
        return self.secrets_wait or waiting_for_right(self.spec, self.shell)

    @property
    def old_keys(self) -> str:
        """A note for a run that an older version began; empty if it is of this version."""
        version = self.row.canonical
        if version == CANONICAL_VERSION or version not in CANONICAL_VERSIONS:
            return ""
        return (
            f"run {self.row.id} continues with version {version} of the canonical form; "
            f"new runs have version {CANONICAL_VERSION}"
        )

    def may_start(self, in_flight: int) -> bool:
        """Return whether one more request keeps done and running pages within `max_pages`."""
        most = self.spec.scope.max_pages
        return self.dispatches and (most is None or self.row.counters.done + in_flight < most)

    def change_rights(self, *, private: bool, code: bool, shell: ShellRights) -> None:
        """Set what this leader lets the run do; workers get its new form with their next URL."""
        if private != self.opens_private:
            self.opens_private = private
            self.revision += 1
        self.runs_code, self.shell = code, shell

    def config(self) -> RunConfig:
        """Return the CONFIG message of the run for workers."""
        row, hosts = self.row, list(self.row.seed_hosts)
        given = self.spec if self.opens_private else without_private(self.spec)
        code = given.code
        names = self.secret_names
        secrets = self.secrets.of_run(names) if self.secrets is not None and names else {}
        if code is None:
            spec = row.spec if given is self.spec else msgspec.json.encode(given)
            return RunConfig(
                row.id,
                self.revision,
                spec,
                hosts,
                row.cookies,
                canonical=row.canonical,
                priority=self.spec.priority,
                secrets=secrets,
            )
        bare = msgspec.structs.replace(given, code=SpiderCode(code.sha256))
        spec = msgspec.json.encode(bare)
        return RunConfig(
            *(row.id, self.revision, spec, hosts, row.cookies, code.sha256, row.canonical),
            priority=self.spec.priority,
            secrets=secrets,
        )

    def code(self) -> Code | None:
        """Return the source of the run's spider for workers, which know its hash."""
        code = self.spec.code
        return None if code is None else Code(code.sha256, code.source.encode())


class Runs:
    """The active runs by their ids."""

    def __init__(self) -> None:
        self.active: dict[int, ActiveRun] = {}
        self.refused: dict[
            int, str
        ] = {}  # runs with an invalid stored spec, and why; they are to be ended
        self.pending: dict[int, None] = {}  # runs of which no assignment was accepted yet
        self.open_private = True  # set by the leader before it adds runs
        self.open_code = True  # set by the leader before it adds runs
        self.shell = ALL_COMMANDS  # set by the leader before it adds runs
        self.secrets = SecretBook()

    def put(self, row: RunRow) -> ActiveRun | None:
        """Add or update a run from its stored row; return None when it has ended."""
        active_run = self.active.get(row.id)
        if row.state.ended:
            self.forget(row.id)
            return None
        if active_run is None:
            active_run = self.active[row.id] = ActiveRun(
                row,
                JobSpec(row.name),
                opens_private=self.open_private,
                runs_code=self.open_code,
                shell=self.shell,
            )
            self._read(active_run, row)
        else:
            if active_run.row.seed_hosts != row.seed_hosts:
                active_run.revision += 1
            if active_run.row.spec != row.spec:  # its pace was changed
                self._read(active_run, row)
                active_run.revision += 1
            active_run.row = row
        if row.state is RunState.PENDING:
            self.pending[row.id] = None
        else:
            self.pending.pop(row.id, None)
        return active_run

    def accepted(self, runs: set[int]) -> tuple[int, ...]:
        """Return which of these runs begin with this accepted assignment."""
        begun = tuple(run for run in self.pending if run in runs)
        for run in begun:
            del self.pending[run]
        return begun

    def _read(self, active: ActiveRun, row: RunRow) -> None:
        """Parse the stored spec, or note why it is invalid."""
        try:
            active.spec, active.refusal = read_stored(row.spec), ""
            active.require = frozenset(active.spec.placement.require)
            active.secrets = self.secrets
            active.secret_names = stored_names(row.spec)
            active.secrets_wait = self.secrets.problem(active.secret_names)
            self.refused.pop(row.id, None)
        except JobError as error:
            active.spec, active.refusal = JobSpec(row.name), refusal_of(error)
            self.refused[row.id] = active.refusal

    def forget(self, run: int) -> None:
        self.active.pop(run, None)
        self.pending.pop(run, None)
        self.refused.pop(run, None)

    def set_expired(self, run: int, is_expired: bool) -> None:
        """Set whether a run starts nothing more, because of its `expires`."""
        active = self.active.get(run)
        if active is not None:
            active.is_expired = is_expired

    def get(self, run: int) -> ActiveRun | None:
        return self.active.get(run)
