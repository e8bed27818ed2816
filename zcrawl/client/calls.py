"""The calls of the REST API, for both clients: what to send, and the type of the answer. Pure.

`RestCall` is one request with the type of its answer. `CallRetries` decides whether a failed call
is sent again: after connection errors, 429 and 503, always with the same Idempotency-Key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from zcrawl.client.errors import ApiError, BadRequest, TooMany, Unavailable
from zcrawl.gateway.problem import ProblemBody, field_in
from zcrawl.gateway.stream_types import SeedsAdded
from zcrawl.gateway.types import (
    Accepted,
    Changed,
    JobChange,
    JobsPage,
    JobSubmission,
    JobView,
    RetryWish,
)
from zcrawl.model.reasons.cluster import BAD_REQUEST

T = TypeVar("T")
FIRST_PAUSE_S: Final = 0.2
MOST_PAUSE_S: Final = 5.0


class RestCall(msgspec.Struct, Generic[T], frozen=True):
    """One request of the API."""

    method: str
    path: str
    answer: Any  # the type: type[T]
    params: Mapping[str, str] = {}
    body: Any = None

    def read(self, body: bytes) -> T:
        """Return the answer. msgspec ignores fields that a newer gateway adds."""
        value: T = msgspec.json.decode(body, type=self.answer)
        return value


class CallRetries:
    """When a call is sent again."""

    def __init__(self, patience_s: float, now: float) -> None:
        self._until = now + patience_s
        self._pause_s = FIRST_PAUSE_S

    def pause(self, error: ApiError, now: float) -> float:
        """Return the seconds until the next try; raises the error if there is none."""
        if not isinstance(error, TooMany | Unavailable) or error.status not in (429, 502, 503, 504):
            raise error
        pause_s = max(error.retry_after_s, self._pause_s)
        if now + pause_s > self._until:
            raise error
        self._pause_s = min(MOST_PAUSE_S, self._pause_s * 2)
        return pause_s


def body_of(values: dict[str, Any], type_: type[T]) -> T:
    """Return the body of a call; BadRequest if a name or a value is wrong."""
    try:
        return msgspec.convert(values, type_)
    except msgspec.ValidationError as error:
        kind = f"urn:zcrawl:reason:{BAD_REQUEST}"
        problem = ProblemBody(
            kind, "Bad request", 422, str(error), BAD_REQUEST, field_in(str(error))
        )
        raise BadRequest(problem) from None


def part(text: str | int) -> str:
    """A name as a part of a path."""
    return quote(str(text), safe="")


def params_of(**values: Any) -> dict[str, str]:
    """Parameters without those that are not set."""
    shown: dict[str, str] = {}
    for name, value in values.items():
        if value is None or value == "":
            continue
        shown[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return shown


# ---------------------------------------------------------------- the calls


def submit(body: JobSubmission) -> RestCall[Accepted]:
    return RestCall("POST", "/v1/jobs", Accepted, body=body)


def job(ref: str | int, run: int | None) -> RestCall[JobView]:
    return RestCall("GET", f"/v1/jobs/{part(ref)}", JobView, params_of(run=run))


def run(number: int) -> RestCall[JobView]:
    return RestCall("GET", f"/v1/runs/{number}", JobView)


def jobs(**filters: Any) -> RestCall[JobsPage]:
    return RestCall("GET", "/v1/jobs", JobsPage, params_of(**filters))


def act(
    ref: str | int, action: str, run: int | None, wish: RetryWish | None = None
) -> RestCall[Changed]:
    path = f"/v1/jobs/{part(ref)}/{action}"
    return RestCall("POST", path, Changed, params_of(run=run), wish)


def change(ref: str | int, body: JobChange) -> RestCall[Changed]:
    return RestCall("PATCH", f"/v1/jobs/{part(ref)}", Changed, body=body)


def delete(ref: str | int, run: int | None) -> RestCall[Changed]:
    return RestCall("DELETE", f"/v1/jobs/{part(ref)}", Changed, params_of(run=run))


def add_seeds(ref: str | int, run: int | None, *, last: bool) -> RestCall[SeedsAdded]:
    path = f"/v1/jobs/{part(ref)}/seeds"
    return RestCall("POST", path, SeedsAdded, params_of(run=run, last=last))
