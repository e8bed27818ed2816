"""What a worker reports: results cut into parts or made without any fetch, and itself by HELLO.

Called by the worker machine. Pure.
"""

from __future__ import annotations

import msgspec

from zcrawl.errors import RetryClass
from zcrawl.mesh.messages import LINKS_PER_RESULT, Assignment, Hello, Result
from zcrawl.model.reasons.failure import ATTEMPT_OVERDUE, HOST_DOWN, RESULT_UNSENDABLE
from zcrawl.model.states import Outcome
from zcrawl.worker.held_requests import Intake
from zcrawl.worker.outbox import Outbox

MOST_DETAIL = 200


def parts(result: Result) -> list[Result]:
    """Many links travel in parts that are admitted before the page counts as done (rule 4)."""
    longest = max(len(result.links), len(result.requests), len(result.sitemaps))
    if longest <= LINKS_PER_RESULT:
        return [result]
    starts = range(0, longest, LINKS_PER_RESULT)
    bare = msgspec.structs.replace(
        result,
        outcome=Outcome.PART,
        page=None,
        items=[],
        links=[],
        prios=[],
        requests=[],
        trapped=[],
        dropped={},
        redirected_to=None,
        robots=None,
        extracted=None,
    )
    chunks = [
        {
            "links": result.links[start : start + LINKS_PER_RESULT],
            "prios": result.prios[start : start + LINKS_PER_RESULT],
            "requests": result.requests[start : start + LINKS_PER_RESULT],
            "sitemaps": result.sitemaps[start : start + LINKS_PER_RESULT],
        }
        for start in starts
    ]
    first = [msgspec.structs.replace(bare, **chunk) for chunk in chunks[:-1]]
    return [*first, msgspec.structs.replace(result, **chunks[-1])]


def by_verdict(one: Assignment, epoch: int) -> Result:
    """The leader has decided: the request ends without being fetched."""
    failed = one.verdict in (HOST_DOWN, ATTEMPT_OVERDUE)
    return Result(
        lease_epoch=epoch,
        lease_n=one.n,
        seq=one.seq,
        run=one.run,
        host=one.host,
        attempt=one.attempt,
        outcome=Outcome.FAILED if failed else Outcome.SKIPPED,
        reason=one.verdict,
        retry=RetryClass.PERMANENT if failed else None,
        depth=one.depth,
    )


def unsendable(result: Result, detail: str) -> Result:
    """The end of a request whose result no message can carry: a second attempt would have the
    same one. It takes the place and the number of that result."""
    return Result(
        lease_epoch=result.lease_epoch,
        lease_n=result.lease_n,
        seq=result.seq,
        run=result.run,
        host=result.host,
        attempt=result.attempt,
        outcome=Outcome.FAILED,
        reason=RESULT_UNSENDABLE,
        retry=RetryClass.PERMANENT,
        depth=result.depth,
        detail=detail[:MOST_DETAIL].encode("ascii", "backslashreplace").decode(),
    )


class About(msgspec.Struct, frozen=True):
    """What a worker process is, for those who look at it."""

    slots: int
    version: str
    hostname: str
    pid: int
    replaces: int  # incarnation of the process before it
    life: int = 0  # of its supervisor


def hello_of(intake: Intake, outbox: Outbox, about: About, number: int, heard: int) -> Hello:
    """Who greets, with all that it holds and has not delivered yet."""
    return Hello(
        slots=about.slots,
        version=about.version,
        hostname=about.hostname,
        pid=about.pid,
        held=[held.as_message() for held in intake.held.values()],
        produced=outbox.produced,
        acked=outbox.acked,
        hello=number,
        reported=outbox.reported(),
        replaces=about.replaces,
        heard=heard,
        granted=intake.granted(),
        life=about.life,
    )
