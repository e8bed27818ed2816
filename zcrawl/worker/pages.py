"""What a fetched page comes to, for jobs that extract: facts for the plan, its answer as messages.

Called by `pipeline_loop` and `outcome`. Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from zcrawl.mesh.capture import Capture
from zcrawl.mesh.messages import Assignment, Extracted, Page
from zcrawl.parse.extract_page import PageFacts

if TYPE_CHECKING:
    import httpx

    from zcrawl.parse.extract import Extracted as Found


def page_facts(
    one: Assignment,
    final_url: str,
    status: int,
    content_type: str,
    size: int,
    fetched_at: float,
    main: dict[str, Any] | None,
) -> PageFacts:
    values = {
        "url": one.url,
        "final_url": final_url,
        "status": status,
        "depth": one.depth,
        "parent": one.parent,
        "content_type": content_type,
        "bytes": size,
        "fetched_at": iso(fetched_at),
    }
    return PageFacts(final_url, one.label, values, main)


def iso(at: float) -> str:
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def capture_of(
    one: Assignment, page: Page, response: httpx.Response, sent: Mapping[str, str]
) -> bytes | None:
    """The exchange, for archives; None where its body could not be kept."""
    if page.body is None:
        return None
    wire = response.extensions.get("wire_headers")
    headers = response.headers.raw if wire is None else wire
    return msgspec.json.encode(
        Capture(
            url=one.url,
            final_url=page.final_url,
            status=response.status_code,
            headers=[(key.decode("latin-1"), value.decode("latin-1")) for key, value in headers],
            request=list(sent.items()),
            at=page.fetched_at,
            body=page.body,
            elapsed_ms=page.elapsed_ms,
            depth=one.depth,
            parent=one.parent,
        )
    )


def as_message(found: Found | None, capture: bytes | None) -> Extracted | None:
    if found is None:
        return None if capture is None else Extracted(capture=capture)
    return Extracted(
        rejected=found.rejected,
        reasons=found.reasons,
        problems=found.problems,
        fields={name: (n[0], n[1], n[2]) for name, n in found.fields.items()},
        capture=capture,
    )
