"""Run jobs that are not crawls: their `kind` names a plugin that a worker executes.

Made by `extensions` when a run of such a job is adopted; for all other runs this module is not
even loaded. A task is a request of the frontier like a page: leased, timed, tried again, committed
once. The result of the executor becomes its item.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final

import msgspec

from zcrawl import plugins
from zcrawl.errors import FetchError, PageSkipped, RetryClass
from zcrawl.frontier.extra import is_start
from zcrawl.mesh.messages import PageRecord
from zcrawl.model.reasons.failure import EXECUTOR_ERROR, EXECUTOR_TIMEOUT
from zcrawl.model.spec import JobSpec
from zcrawl.plugins import Skip, Task
from zcrawl.submit.read import to_dict
from zcrawl.text.raised import raised_text
from zcrawl.worker.extensions.threads import Aside
from zcrawl.worker.results.attempt import Attempt

MOST_BYTES: Final = 1_000_000  # of what is kept of a task
MOST_REASON: Final = 80
JSON: Final = "application/json"


class Executing:
    """PluginError: this worker does not have the executor."""

    def __init__(self, spec: JobSpec, aside: Aside) -> None:
        self._name = spec.kind
        self._aside = aside
        self._job = to_dict(spec)
        self._executor = plugins.make_executor(spec.kind, spec.plugins.get(spec.kind, {}))

    async def do(self, attempt: Attempt, timeout_s: float, utc: Callable[[], float]) -> Attempt:
        assignment = attempt.assignment
        url = None if is_start(assignment.url) else assignment.url
        began = utc()
        try:
            async with asyncio.timeout(timeout_s):
                task = Task(self._job, assignment.run, url, assignment.attempt)
                item = _object(await self._called(task))
        except TimeoutError as error:
            raise self._failed(EXECUTOR_TIMEOUT, f"not done in {timeout_s} s") from error
        except Skip as skip:
            raise PageSkipped(f"executor {self._name}", code=skip.reason[:MOST_REASON]) from None
        except FetchError:
            raise  # the error says whether to retry
        except (Exception, SystemExit) as error:  # an exit would be the whole worker's
            raise self._failed(EXECUTOR_ERROR, raised_text(error)) from error
        page = PageRecord(
            final_url=assignment.url,
            title=None,
            content_type=JSON if item else "",
            size=len(item),
            fetched_at=began,
            elapsed_ms=(utc() - began) * 1000,
        )
        return attempt.done(page, 0, [item] if item else [])

    def leave(self) -> None:
        """Let the tasks go on: a plugin cannot be ended, and the worker waits for it."""

    async def close(self) -> None:
        """A plugin has no end of its own."""

    async def _called(self, task: Task) -> Any:
        execute = self._executor.execute
        if inspect.iscoroutinefunction(execute):
            return await execute(task)
        result = await self._aside.call(lambda: execute(task))  # plain: it may take its time
        return await result if inspect.isawaitable(result) else result

    def _failed(self, code: str, text: str) -> FetchError:
        return FetchError(f"{self._name}: {text}", code=code, retry=RetryClass.TRANSIENT)


def _object(result: Any) -> bytes:
    if result is None:
        return b""
    data = msgspec.json.encode(result)
    if not data.startswith(b"{"):
        raise TypeError(f"an executor gives a JSON object or None, not {type(result).__name__}")
    if len(data) > MOST_BYTES:
        raise ValueError(f"{len(data)} bytes of result; at most {MOST_BYTES}")
    return data
