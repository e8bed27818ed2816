"""What a submitter may do to which job, and what a user's quotas allow of a spec. Pure.

The role lets a request come here (`rights`); the operations with `own` then look at the job:

    role submitter ──owner of the job == by?──▶ rights for what the spec uses ──▶ quotas ──▶ store
    other roles    ────────────────────────────────────────────────────────────▶ quotas ──▶ store

Called by `submissions` and `run_actions` in the leader. They know the job of an action from the
database; no command changes an owner, so it is the same one when the action is stored. A submission
names its job only by name, and seeds only a run: the store compares their owner in the transaction
(`limit_of`, `store.access`). A request through a follower or a gateway comes here like any other.
"""

from __future__ import annotations

from typing import Final

from zcrawl.errors import RefusedError
from zcrawl.mesh.messages import ClientRequest
from zcrawl.mesh.roles import KeyRole
from zcrawl.model.people import Quotas
from zcrawl.model.reasons.cluster import FORBIDDEN, NOT_OWNER, QUOTA_EXCEEDED
from zcrawl.model.spec import SHELL, JobSpec
from zcrawl.store.access import owner_problem
from zcrawl.store.queries import JobRow
from zcrawl.submit.access import environment_secrets

CODE: Final = "code"
SHELL_RIGHT: Final = "shell"
PRIVATE: Final = "private"
FILLED: Final = ("seed", "resource")  # `${seed}` and `${resource}`: not secrets
RIGHTS: Final = {
    CODE: "jobs with code of their own",
    SHELL_RIGHT: "jobs that run commands",
    PRIVATE: "jobs that reach private addresses, or name a proxy",
}


def limit_of(request: ClientRequest) -> str | None:
    """Return the owner whose jobs this request may change; None: all jobs."""
    return request.by if request.role == KeyRole.SUBMITTER else None


def check_owner(request: ClientRequest, job: JobRow) -> None:
    """Raise RefusedError `not_owner` if the request may not change this job."""
    problem = owner_problem(limit_of(request), job.name, job.owner)
    if problem:
        raise RefusedError(problem, code=NOT_OWNER)


def needed_rights(spec: JobSpec) -> list[str]:
    """Return the rights that a job needs. A proxy is usually on the operator's own network."""
    fetch = spec.fetch
    private = fetch.allow_private or fetch.private_hosts or fetch.proxies
    needed = ((CODE, spec.code is not None), (SHELL_RIGHT, spec.kind == SHELL), (PRIVATE, private))
    return [right for right, is_needed in needed if is_needed]


def check_rights(request: ClientRequest, spec: JobSpec) -> None:
    """Raise RefusedError `forbidden` if a submitter lacks a right that the job needs.

    The masters' own `allow_*` are needed too, and checked for everybody. What typed
    URLs open is in the spec by then (`submit.private.with_right`).
    """
    if request.role != KeyRole.SUBMITTER:
        return
    missing = [right for right in needed_rights(spec) if right not in request.rights]
    if missing:
        what = " and ".join(RIGHTS[right] for right in missing)
        raise RefusedError(
            f"{request.by or 'this user'} has the role submitter without the right "
            f"{' and '.join(missing)}, which {what} need; an admin gives it with the user",
            code=FORBIDDEN,
        )


def check_secrets(request: ClientRequest, spec: bytes) -> None:
    """Raise RefusedError `forbidden` if a submitter names secrets of this machine's own user.

    In the embedded form the environment's secrets are released to the hosts of a job's seeds,
    because its jobs are those of its own user. A user of the gateway names stored secrets
    (`secret:`), which have hosts.
    """
    if request.role != KeyRole.SUBMITTER:
        return
    names = [name for name in environment_secrets(spec.decode()) if name not in FILLED]
    if names:
        raise RefusedError(
            f"${{{names[0]}}} is a secret of the user who runs this cluster; ask an admin to store "
            f"one with `zcrawl secret set`, and write ${{secret:{names[0]}}}",
            code=FORBIDDEN,
        )


def check_rate(request: ClientRequest, spec: JobSpec, quotas: Quotas | None) -> None:
    """Raise RefusedError `quota_exceeded` if the job wants a higher rate than its user may ask
    for."""
    most = quotas.most_rate if quotas is not None else None
    rate = spec.politeness.rate  # 0: unlimited
    if most is not None and not 0 < rate <= most:
        shown = f"{rate:g} requests per second and host" if rate else "an unlimited rate"
        raise RefusedError(
            f"the job wants {shown}, and the quota of {request.by} is {most:g}; set "
            f"politeness.rate = {most:g} or less",
            code=QUOTA_EXCEEDED,
        )
