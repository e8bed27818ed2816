"""What an answer to an HTTP task means: its expectations, its item, the next request of a redirect.

Called by `pipeline.calls`. Pure.

A redirect is followed as RFC 9110 says, section 15.4:

| status     | method         | next request                          |
|------------|----------------|---------------------------------------|
| 301, 302   | POST           | GET without the body                  |
| 301, 302   | any other      | the same method, with the body        |
| 303        | HEAD           | HEAD                                  |
| 303        | any other      | GET without the body                  |
| 307, 308   | any            | the same method, with the body        |
| in `expect.status` | any    | none: the redirect is the answer      |
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from zcrawl.errors import FetchError, RetryClass
from zcrawl.fetch.policy import classify_status
from zcrawl.model.reasons.failure import UNMET
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.spec import HttpExpect
from zcrawl.parse.charset import decode
from zcrawl.parse.encodings import header_encoding
from zcrawl.parse.extract.selectors import compile_path
from zcrawl.parse.extract.types import FieldProblem
from zcrawl.submit.tasks import statuses
from zcrawl.text.redact import Redactor
from zcrawl.text.wildcards import matches

MOST_INLINE: Final = 65_536  # bytes of a body that are kept in its item
MOST_HEADERS: Final = 200
MOST_HEADER_BYTES: Final = 65_536  # of all headers of an item together
MOST_VALUE: Final = 120  # characters of a value in a message
MOST_NAME: Final = 80  # characters of a header or expression in a reason


class Unmet(msgspec.Struct, frozen=True):
    """An expectation that is not met: `header content-type`, and the values in words."""

    what: str
    detail: str


def onward(method: str, status: int) -> tuple[str, bool]:
    """Return the method after a redirect, and whether the body is sent again."""
    if status == 303:
        return ("HEAD" if method == "HEAD" else "GET"), False
    if status in (301, 302) and method == "POST":
        return "GET", False
    return method, True


class Expectations:
    """The expectations of a job, compiled once. JobError for an expression that is not valid."""

    def __init__(self, expect: HttpExpect) -> None:
        self._expect = expect
        self._statuses = statuses(expect)
        self._paths = [
            (expression, compile_path(expression, "http.expect.json"), value)
            for expression, value in expect.json.items()
        ]

    @property
    def reads_json(self) -> bool:
        return bool(self._paths)

    def has_status(self, status: int) -> bool:
        text = str(status)
        return any(pattern in (text, f"{text[0]}xx") for pattern in self._statuses)

    def unmet(
        self, status: int, headers: Iterable[tuple[str, str]], body: bytes, elapsed_ms: float
    ) -> list[Unmet]:
        """Return what is not met, in the order status, headers, json, latency."""
        problems = []
        if not self.has_status(status):
            wanted_statuses = ", ".join(self._statuses)
            detail = f"the status is {status}, expected {wanted_statuses}"
            problems.append(Unmet(f"status {status}", detail))
        problems += self._headers(headers)
        problems += self._json(body)
        most_ms = self._expect.latency_ms
        if most_ms and elapsed_ms > most_ms:
            detail = f"it took {elapsed_ms:.0f} ms, expected at most {most_ms:g}"
            problems.append(Unmet("latency", detail))
        return problems

    def _headers(self, headers: Iterable[tuple[str, str]]) -> list[Unmet]:
        values: dict[str, list[str]] = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(value)
        problems = []
        for name, pattern in self._expect.headers.items():
            own_values = values.get(name.lower(), [])
            if any(matches(value, pattern) for value in own_values):
                continue
            said = f"is {shown(', '.join(own_values))}" if own_values else "is missing"
            detail = f"the header {name} {said}, expected {shown(pattern)}"
            problems.append(Unmet(f"header {name.lower()[:MOST_NAME]}", detail))
        return problems

    def _json(self, body: bytes) -> list[Unmet]:
        if not self._paths:
            return []
        try:
            document = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return [Unmet("json", f"the body is not JSON: {shown(_text(body[:200]))}")]
        problems = []
        for expression, search, value in self._paths:
            name = f"json {expression[:MOST_NAME]}"
            try:
                result = search(document)
            except FieldProblem as error:
                problems.append(Unmet(name, str(error)))
                continue
            if not is_same(result, value):
                detail = f"{expression} is {as_json(result)}, expected {as_json(value)}"
                problems.append(Unmet(name, detail))
        return problems


def is_same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal. In Python `True == 1`, in JSON it is not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    return bool(left == right)


def failure_of(unmet: list[Unmet], status: int, retry_after_s: float | None) -> FetchError:
    """Return the failure of an attempt. It is named by what is not met first; the detail has all.

    It is tried again like any failure that may pass. A host that asks for fewer requests (429,
    503) is given the time that it asks for."""
    asks_for_less = classify_status(status).retry is RetryClass.THROTTLED
    return FetchError(
        "; ".join(one_unmet.detail for one_unmet in unmet),
        code=with_detail(UNMET, unmet[0].what),
        retry=RetryClass.THROTTLED if asks_for_less else RetryClass.TRANSIENT,
        retry_after_s=retry_after_s,
    )


class HttpItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of an answer. Secrets of the job are removed from headers and body."""

    url: str
    final_url: str
    method: str
    status: int
    elapsed_ms: float
    attempt: int
    bytes: int
    content_type: str
    headers: dict[str, str]
    met: bool
    unmet: list[str]
    requested_url: str | None = None  # where redirects of other hosts began
    body: str | None = None
    body_base64: str | None = None  # of a body that is not text
    body_blob: str | None = None  # of a large body: its name in the blob store
    body_error: str | None = None  # why a large body is not kept


def item_of(
    *,
    requested_url: str,
    url: str,
    final_url: str,
    method: str,
    status: int,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    elapsed_ms: float,
    attempt: int,
    unmet: list[Unmet],
    redactor: Redactor,
    blob: str = "",
    blob_error: str = "",
) -> bytes:
    """Return the item as JSON. `blob` is the name of a body that is too large for an item."""
    joined = _joined(headers, redactor)
    text = encoded = None
    if not blob and not blob_error:
        text = _decoded(body, joined.get("content-type", ""))
        encoded = None if text is not None else base64.b64encode(redactor.data(body)).decode()
    item = HttpItem(
        url=url,
        final_url=final_url,
        method=method,
        status=status,
        elapsed_ms=round(elapsed_ms, 1),
        attempt=attempt,
        bytes=len(body),
        content_type=joined.get("content-type", ""),
        headers=joined,
        met=not unmet,
        unmet=[redactor.text(one_unmet.detail) for one_unmet in unmet],
        requested_url=requested_url if requested_url != url else None,
        body=None if text is None else redactor.text(text),
        body_base64=encoded,
        body_blob=blob or None,
        body_error=blob_error or None,
    )
    return msgspec.json.encode(item)


def _joined(headers: Iterable[tuple[str, str]], redactor: Redactor) -> dict[str, str]:
    """Return the headers by name, in lower case; several of one name are joined as HTTP does."""
    joined: dict[str, str] = {}
    size = 0
    for name, value in headers:
        key = clean_text(name.lower())
        shown_value = redactor.text(clean_text(value))
        size += len(key) + len(shown_value)
        if size > MOST_HEADER_BYTES or len(joined) >= MOST_HEADERS:
            break
        joined[key] = f"{joined[key]}, {shown_value}" if key in joined else shown_value
    return joined


def clean_text(text: str) -> str:
    """Return a text that can be encoded as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _decoded(body: bytes, content_type: str) -> str | None:
    """Return the body as text; None if it is not text in the charset that it names, or in UTF-8.

    Names of charsets are those of the web: Python's codecs include some that take quadratic time.
    """
    if (header_encoding(content_type) or "utf-8") == "utf-8":
        try:
            return body.decode()
        except UnicodeDecodeError:
            return None
    text = decode(body, content_type)[0]
    return None if "\ufffd" in text else text


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def as_json(value: Any) -> str:
    return shown(_text(msgspec.json.encode(value)))


def shown(text: str) -> str:
    """Return a value for a message, on one line and cut."""
    text = " ".join(text.split())
    return text if len(text) <= MOST_VALUE else text[: MOST_VALUE - 1] + "…"
