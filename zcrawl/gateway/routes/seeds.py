"""`POST /v1/jobs/{ref}/seeds`: more seeds for a live run, one a line, of any number.

The body goes to the leader in requests of at most 1,000 seeds while it arrives; memory holds one
of them. If it breaks off, what has arrived is stored and the run waits for more seeds. Then the
client sends the whole body again: seeds that the run has do not count twice. With the same
`Idempotency-Key`, the requests that were done are only looked up.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, post
from litestar.datastructures import State
from litestar.params import HeaderParameter, Parameter

from zcrawl.errors import RefusedError, UsageError
from zcrawl.gateway.principals import Principal
from zcrawl.gateway.problem import ProblemBody, ProblemError
from zcrawl.gateway.seed_lines import BadLine, Chunk, SeedBody
from zcrawl.gateway.services import Services
from zcrawl.gateway.stream_types import SeedsAdded
from zcrawl.model.reasons.cluster import BAD_REQUEST, RUN_ENDED
from zcrawl.model.reasons.usage import NO_SEEDS

QUIET_S: Final = 10.0  # less than `limits.IDLE_S`, whose answer would not say how to go on
AGAIN: Final = "then send the whole body again with the same Idempotency-Key"


@post(
    "/jobs/{ref:str}/seeds",
    summary="Add seeds to a run",
    description="text/plain with one URL a line, or JSON lines: texts, or objects with `url`. "
    "The newest run of the job gets them, or the one in `run`; it must not have ended. "
    "With `last=false`, a run that was submitted with `seeding` waits for more.",
    status_code=200,
    tags=["jobs"],
    request_max_body_size=None,
)
async def add_seeds(
    request: Request[Any, Any, State],
    services: Services,
    principal: Principal,
    ref: str,
    run: Annotated[int, Parameter(ge=0, description="number of a run; 0: the newest")] = 0,
    last: Annotated[bool, Parameter(description="no more seeds follow after this body")] = True,
    key: Annotated[str, HeaderParameter(name="Idempotency-Key", max_length=200)] = "",
) -> SeedsAdded:
    """Send the body's seeds to the leader; return how many were new."""
    args: dict[str, Any] = {"ref": ref} | ({"run": run} if run else {})
    view = await services.ask(principal, "job", args)
    if not view.get("run"):
        raise RefusedError(f"job {ref!r} has no run; start one first", code=RUN_ENDED)
    sender = _Sender(services, principal, int(view["run"]), key)
    lines = SeedBody()
    try:
        async for data in _body(request):
            for chunk in lines.feed(data):
                await sender.send(chunk, last=False)
        await sender.send(lines.finish(), last=last)
    except BadLine as error:
        raise sender.problem(str(error), 422, f"line {error.line}", "correct the line") from None
    except TimeoutError:
        text = f"the body stopped for {QUIET_S:.0f} s after line {lines.line}"
        raise sender.problem(text, 408, "", "check the connection") from None
    return SeedsAdded(
        int(view["job"]), sender.run, lines.line, sender.seeds, sender.admitted, last=last
    )


async def _body(request: Request[Any, Any, State]) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. TimeoutError if nothing comes for a while."""
    stream = aiter(request.stream())
    while True:
        async with asyncio.timeout(QUIET_S):
            data = await anext(stream, None)
        if data is None:
            return
        yield data


class _Sender:
    """Sends chunks to the leader, and knows what was sent."""

    def __init__(self, services: Services, principal: Principal, run: int, key: str) -> None:
        self._services, self._principal, self.run, self._key = services, principal, run, key
        self._chunks = 0
        self.line = 0  # of the body; everything up to it is stored
        self.seeds = 0
        self.admitted = 0

    async def send(self, chunk: Chunk, *, last: bool) -> None:
        args = {"run": self.run, "seeds": chunk.seeds, "last": last}
        if not chunk.seeds and not last:
            return
        self._chunks += 1
        try:
            answer = await self._services.ask(
                self._principal, "add_seeds", args, self._request_id(chunk, last)
            )
        except UsageError as error:  # a seed that is no URL
            field = f"lines {chunk.first_line} to {chunk.last_line}"
            raise self.problem(str(error), 422, field, "correct the seed", error.code) from None
        self.line = chunk.last_line
        self.seeds += len(chunk.seeds)
        self.admitted += int(answer["admitted"])

    def _request_id(self, chunk: Chunk, last: bool) -> str:
        """The same for the same chunk of the same body, so that a repeat is only looked up."""
        if not self._key:
            return secrets.token_hex(16)
        facts = (self._principal.name, self._key, self.run, self._chunks, chunk.seeds, last)
        return blake2b(msgspec.json.encode(facts), digest_size=16).hexdigest()

    def problem(
        self, text: str, status: int, field: str, remedy: str, code: str = ""
    ) -> ProblemError:
        code = code or (NO_SEEDS if status == 422 else BAD_REQUEST)
        done = f"lines 1 to {self.line} are stored" if self.line else "nothing is stored"
        detail = f"{text}; {done}, and run {self.run} waits for more seeds if it did before"
        kind = f"urn:zcrawl:reason:{code}"
        remedy = f"{remedy}, {AGAIN}"
        problem = ProblemBody(kind, "Seeds not complete", status, detail, code, field, remedy)
        return ProblemError(problem)


ROUTES: Final = (add_seeds,)
