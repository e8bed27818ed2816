"""Every error as problem+json (RFC 9457), with the field that is wrong and what to do. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

MEDIA_TYPE: Final = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every answer that is not a success."""

    type: str  # urn:zcrawl:reason:CODE
    title: str
    status: int
    detail: str
    code: str  # `zcrawl reasons` lists all
    field: str = ""  # what is wrong: a key of the body, a parameter, a header
    remedy: str = ""


class ProblemError(Exception):
    """Raised by a route for an answer that is no success."""

    def __init__(
        self, problem: Problem, *, retry_after_s: float = 0.0, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(problem.detail)
        self.problem, self.retry_after_s, self.headers = problem, retry_after_s, headers or {}
