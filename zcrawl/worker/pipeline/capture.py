"""Record the exchanges of a fetch for archives: each redirect, then the last answer.

The leader keeps those of the last attempt of a request.

Made by the pipeline for runs that capture; for others this module is not even loaded. Bodies are
kept as they came, compressed if they came so, where the engine can tell. Secrets are removed
from requests, because archives are shared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from zcrawl.fetch.ports import Response
from zcrawl.mesh.messages import Assignment, PageRecord
from zcrawl.model.capture import Capture, Exchange, Form
from zcrawl.model.reasons.skip import NOINDEX
from zcrawl.model.spec import JobSpec
from zcrawl.worker.pipeline.outgoing import Sending
from zcrawl.worker.results.attempt import Attempt

REMOVED: Final = "[removed]"
_SECRET: Final = frozenset({"authorization", "proxy-authorization", "cookie"})

Keep = Callable[[bytes], Awaitable[str]]  # a body's name, after it was kept


class Recording:
    def __init__(
        self, assignment: Assignment, spec: JobSpec, headers: Mapping[str, str], keep: Keep
    ) -> None:
        """`headers` are those of the run, for engines that do not report what they sent."""
        self._assignment, self._headers, self._keep = assignment, headers, keep
        written = [
            *spec.fetch.headers.items(),
            *(x for s in spec.fetch.header_sets for x in s.items()),
        ]
        self._secret = _SECRET | {name.lower() for name, value in written if "${" in value}
        self._exchanges: list[Exchange] = []

    async def add(self, url: str, response: Response, sending: Sending | None, utc: float) -> None:
        """Add an answer as it came, even if a middleware changed it."""
        answer, method, sent = response, "GET", b""
        if sending is not None and sending.out is not None:
            method, sent = sending.out.method, sending.out.body
            answer = sending.answer or response
        extensions = answer.extensions
        headers = _pairs(extensions.get("wire_headers") or answer.headers.raw)
        wire = extensions.get("wire_body")
        body = answer.content if wire is None else wire
        self._exchanges.append(
            Exchange(
                url=url,
                status=answer.status_code,
                headers=headers,
                request=self._shown(extensions.get("sent_headers") or self._headers.items()),
                at=utc,
                body=await self._keep(body) if body else "",
                method=method,
                sent=await self._keep(sent) if sent else "",
                form=_form(answer, headers, wire is not None),
            )
        )

    def add_to(self, attempt: Attempt) -> None:
        """Add all answers to the attempt, unless the last answer forbids to keep it."""
        if self._exchanges and attempt.reason != NOINDEX:
            attempt.change_extracted(capture=self._encoded(attempt.page))

    def _encoded(self, page: PageRecord | None) -> bytes:
        *hops, last = self._exchanges
        final_url, elapsed_ms = last.url, 0.0
        if page is not None:  # a browser's page may have changed its URL
            final_url, elapsed_ms = page.final_url, page.elapsed_ms
        return msgspec.json.encode(
            Capture(
                url=self._assignment.url,
                final_url=final_url,
                status=last.status,
                headers=last.headers,
                request=last.request,
                at=last.at,
                body=last.body,
                elapsed_ms=elapsed_ms,
                depth=self._assignment.depth,
                parent=self._assignment.parent,
                method=last.method,
                sent=last.sent,
                form=last.form,
                hops=hops,
            )
        )

    def _shown(self, sent: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(name, REMOVED if name.lower() in self._secret else v) for name, v in sent]


def _form(answer: Response, headers: list[tuple[str, str]], as_it_came: bool) -> Form:
    """Return the form of the body: engines that do not report it may have decoded it."""
    if answer.extensions.get("rendered"):
        return "rendered"
    if as_it_came:
        return ""
    encoded = any(name.lower() == "content-encoding" for name, _ in headers)
    return "decoded" if encoded or "wire_headers" not in answer.extensions else ""


def _pairs(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
