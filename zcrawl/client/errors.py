"""The errors that a client of the REST gateway raises, from the problem+json of an answer.

    ApiError              status, code, field, remedy
    ├── BadRequest        what was sent is wrong (400, 408, 413, 422)
    ├── NotAuthenticated  no valid token (401)
    ├── Forbidden         this user may not do it (403)
    ├── NotFound          no such job, run or node (404)
    ├── Conflict          the cluster refused it as things are (409)
    ├── TooMany           a quota or rate limit (429); it has `retry_after_s`
    └── Unavailable       no leader, no gateway, or no answer (5xx, connection errors)

All are ZcrawlErrors. `zcrawl reasons` explains each code.
"""

from __future__ import annotations

import msgspec

from zcrawl.errors import ZcrawlError
from zcrawl.gateway.problem import ProblemBody
from zcrawl.model.reasons.cluster import REFUSED, UNREACHABLE


class ApiError(ZcrawlError):
    """Any answer that is no success."""

    def __init__(self, problem: ProblemBody, retry_after_s: float = 0.0) -> None:
        super().__init__(problem.detail or problem.title, code=problem.code)
        self.status, self.field, self.remedy = problem.status, problem.field, problem.remedy
        self.retry_after_s = retry_after_s


class BadRequest(ApiError):
    exit_code = 2


class NotAuthenticated(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class TooMany(ApiError):
    pass


class Unavailable(ApiError):
    exit_code = 3


_BY_STATUS: dict[int, type[ApiError]] = {
    401: NotAuthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: TooMany,
}


def error_of(status: int, body: bytes, retry_after: str = "") -> ApiError:
    """Return the error that an answer stands for."""
    try:
        problem = msgspec.json.decode(body, type=ProblemBody)
    except (msgspec.DecodeError, RecursionError):  # not from a gateway: a proxy, for example
        text = body[:200].decode(errors="replace").strip()
        detail = f"HTTP {status}" + (f": {text}" if text else "")
        problem = ProblemBody("about:blank", f"HTTP {status}", status, detail, REFUSED)
    wait_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    if status >= 500:
        return Unavailable(problem, wait_s)
    return _BY_STATUS.get(status, BadRequest)(problem, wait_s)


def unreachable(url: str, why: str) -> Unavailable:
    """Return the error for a gateway that does not answer."""
    detail = f"no answer from {url}: {why}"
    return Unavailable(ProblemBody("about:blank", "No answer", 503, detail, UNREACHABLE))
