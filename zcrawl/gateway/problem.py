"""Every error as problem+json (RFC 9457), with the field that is wrong and what to do. Pure.

`of_error` decides status, field and remedy from the error's code; the registry of reasons has the
title and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from zcrawl.errors import StoreUnavailable, UnreachableError, UsageError, ZcrawlError
from zcrawl.model.reasons import cluster as c
from zcrawl.model.reasons.failure import INTERNAL_ERROR, SHELL_NOT_ALLOWED
from zcrawl.model.reasons.reason import REASONS
from zcrawl.model.reasons.usage import (
    CODE_NOT_ALLOWED,
    PATH_NOT_ALLOWED,
    PRIVATE_NOT_ALLOWED,
)
from zcrawl.text.patterns import lazy_pattern

MEDIA_TYPE: Final = "application/problem+json"
RETRY_S: Final = 1.0
_NONE: Final[Mapping[str, str]] = MappingProxyType({})

_STATUS: Final = {
    c.UNAUTHORIZED: 401,
    c.BAD_TOKEN: 401,
    c.FORBIDDEN: 403,
    c.NOT_OWNER: 403,
    c.NO_SUCH_ROUTE: 404,
    c.NO_SUCH_JOB: 404,
    c.NO_SUCH_RUN: 404,
    c.NO_SUCH_NODE: 404,
    c.NO_SUCH_HOST: 404,
    c.NO_SUCH_TAG: 404,
    c.BODY_TOO_SLOW: 408,
    c.BODY_TOO_LARGE: 413,
    c.TOO_MANY_SEEDS: 413,
    c.BAD_REQUEST: 422,
    PRIVATE_NOT_ALLOWED: 403,
    CODE_NOT_ALLOWED: 403,
    SHELL_NOT_ALLOWED: 403,
    PATH_NOT_ALLOWED: 403,
    c.TOO_MANY_REQUESTS: 429,
    INTERNAL_ERROR: 500,
    c.UNREACHABLE: 503,
    c.NO_LEADER: 503,
    c.NO_MASTER: 503,
    c.CONSUL_AWAY: 503,
    c.VERSION: 503,
    StoreUnavailable.code: 503,
}
_QUOTED: Final = lazy_pattern(r"unknown key '([^']{1,100})'")
_KEY_BEFORE: Final = lazy_pattern(r"^[a-z]+: ([a-z_]+(?:\.[a-z_]+)*(?:\[\d+\])?): ")
_FIRST_WORD: Final = lazy_pattern(r"([a-z_]+(?:\.[a-z_]+)*(?:\[\d+\])?) (?:is|must|has|needs)\b")
_MSGSPEC_PLACE: Final = lazy_pattern(r" - at `\$\.?([^`]*)`")
_MISSING: Final = lazy_pattern(r"(?:required|unknown) field `([^`]{1,100})`")


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True):
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
        self,
        problem: ProblemBody,
        *,
        retry_after_s: float = 0.0,
        headers: Mapping[str, str] = _NONE,
    ) -> None:
        super().__init__(problem.detail)
        self.problem, self.retry_after_s, self.headers = problem, retry_after_s, dict(headers)


def problem(code: str, detail: str, *, status: int = 0, field: str = "") -> ProblemError:
    """Return the problem of a registered reason."""
    reason = REASONS.get(code)
    status = status or _STATUS.get(code, 409)
    headers = {"WWW-Authenticate": 'Bearer realm="zcrawl"'} if status == 401 else {}
    return ProblemError(
        ProblemBody(
            f"urn:zcrawl:reason:{code}",
            reason.meaning if reason is not None else code.replace("_", " "),
            status,
            detail,
            code,
            field,
            reason.remedy if reason is not None else "",
        ),
        retry_after_s=RETRY_S if status in (429, 503) else 0.0,
        headers=headers,
    )


def bad_field(field: str, detail: str) -> ProblemError:
    """Return the problem of a value that the gateway does not accept."""
    return problem(c.BAD_REQUEST, detail, field=field)


def of_error(error: ZcrawlError, prefix: str = "") -> ProblemError:
    """Return the problem of an error of the masters, or of a check here. `prefix`: the field that
    holds a job, whose keys the messages name."""
    code, text = error.code, str(error)
    if code in _STATUS:
        status = _STATUS[code]
    elif isinstance(error, UnreachableError):
        status = 503
    elif isinstance(error, UsageError):
        status = 422
    else:
        status = 503 if isinstance(error, StoreUnavailable) else 409
        if code.startswith("quota"):
            status = 429
    field = field_in(text) if status == 422 else ""
    if field and prefix and not field.startswith(f"{prefix}."):
        field = f"{prefix}.{field}"
    return problem(code, text, status=status, field=field)


def field_in(text: str) -> str:
    """Return the key that a message names, or an empty text."""
    for pattern in (_MSGSPEC_PLACE, _QUOTED, _KEY_BEFORE, _FIRST_WORD):
        match = pattern.search(text)
        if match is not None and match.group(1):
            return match.group(1)
    match = _MISSING.search(text)
    return match.group(1) if match is not None else ""


def of_body(text: str) -> ProblemError:
    """Return the problem of a body that msgspec does not accept; `text` is its message."""
    place, missing = _MSGSPEC_PLACE.search(text), _MISSING.search(text)
    parts = [match.group(1) for match in (place, missing) if match is not None and match.group(1)]
    if "JSON is malformed" in text or "was truncated" in text:
        return problem(c.BAD_REQUEST, f"the body is not valid JSON: {text}", status=400)
    return bad_field(".".join(parts), text)
