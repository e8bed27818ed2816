"""The facts of a page that was answered, as messages have them. Called by the pipeline. Pure."""

from __future__ import annotations

from typing import Final

from zcrawl.mesh.messages import PageRecord
from zcrawl.parse.page import ParsedPage

MAX_DETAIL: Final = 500  # characters
MAX_CONTENT_TYPE: Final = 200


def page_of(
    url: str,
    parsed: ParsedPage,
    content_type: str,
    body: bytes,
    fetched_at: float,
    took_s: float,
    kept: str | None,
    files: dict[str, str],
) -> PageRecord:
    return PageRecord(
        final_url=url,
        title=parsed.title,
        content_type=clean(content_type)[:MAX_CONTENT_TYPE],
        size=len(body),
        fetched_at=fetched_at,
        elapsed_ms=took_s * 1000,
        body=kept,
        canonical=parsed.canonical,
        alternates=list(parsed.alternates),
        files=files,
    )


def bare_page(url: str, size: int, fetched_at: float, took_s: float) -> PageRecord:
    """Return the record of an answer that was not read."""
    return PageRecord(url, None, "", size, fetched_at, took_s * 1000)


def clean(text: str) -> str:
    """Return a text that every codec and terminal accepts."""
    text = text[:MAX_DETAIL]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
