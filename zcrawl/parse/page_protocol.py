"""The messages between a worker and the child process that parses pages, and their frames.

Used on both sides: `children.pages` sends requests, `children.page_child` answers. Pure. A message
is MessagePack with its length before it. A `Prepare` is sent before the first `ReadPage` with its
number and has no answer. The answer to a `ReadPage` is any number of `Links`, and then one
`PageParsed`, `Listed` or `Failed`: a page can have half a million links, and a single large frame
would block the event loop. The first message of the child, before any request, is `Ready`.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Literal, TypeAlias

import msgspec

from zcrawl.frontier.url import CanonicalRules
from zcrawl.parse.page import PageOptions, ParsedPage

LENGTH: Final = struct.Struct("!I")
MOST_FRAME_BYTES: Final = 64_000_000
LINKS_A_FRAME: Final = 2_000
MOST_TEXT: Final = 500

Link = tuple[str, bytes]


class PageSetup(msgspec.Struct, frozen=True):
    """The settings of a run for reading pages; `spec` is its job, if it extracts."""

    rules: CanonicalRules
    follow_nofollow: bool = False
    token: str = ""
    fingerprint: bool = False
    spec: bytes = b""


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """A serialised `extract.page_facts.PageContext`."""

    url: str
    block: str
    values: dict[str, Any]
    main: dict[str, Any] | None


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    number: int
    setup: PageSetup


class ReadPage(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """A page, or JSON, to be read with the settings of that number."""

    setup: int
    body: bytes
    content_type: str
    url: str
    facts: Facts | None = None


class ReadSitemap(msgspec.Struct, frozen=True, array_like=True, tag="sitemap"):
    body: bytes
    utc: float


PageQuestion: TypeAlias = Prepare | ReadPage | ReadSitemap


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """Everything is loaded."""


class Links(msgspec.Struct, frozen=True, array_like=True, tag="links"):
    links: list[Link]


class ExtractedData(msgspec.Struct, frozen=True, array_like=True):
    """A serialised `extract.plan.Extracted`, without its links."""

    items: list[bytes]
    rejected: list[bytes]
    problems: list[bytes]
    reasons: dict[str, int]
    fields: dict[str, list[int]]
    blocks: dict[str, list[bytes]]
    paging: list[bytes]
    size: int
    examples: dict[str, str]


class PageParsed(msgspec.Struct, frozen=True, array_like=True, tag="parsed"):
    """A `ParsedPage` without its links, which were sent before."""

    title: str | None
    encoding: str
    noindex: bool
    rejected: dict[str, int]
    extracted: ExtractedData | None
    canonical: str | None
    alternates: tuple[tuple[str, str], ...]
    fingerprint: bytes


class Listed(msgspec.Struct, frozen=True, array_like=True, tag="listed"):
    """A `sitemap.Sitemap`."""

    entries: list[tuple[str, int]]
    children: list[str]
    error: str
    lost: int
    repaired: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """A failure. `kind`: the page is unreadable (a ParseError), needs too much memory, or causes a
    bug."""

    kind: Literal["unreadable", "memory", "bug"]
    code: str
    text: str


PageAnswer: TypeAlias = Ready | Links | PageParsed | Listed | Failed

_encode = msgspec.msgpack.Encoder().encode
decode_question = msgspec.msgpack.Decoder(PageQuestion).decode
decode_answer = msgspec.msgpack.Decoder(PageAnswer).decode


def frame(message: PageQuestion | PageAnswer) -> bytes:
    data = _encode(message)
    return LENGTH.pack(len(data)) + data


def options_of(setup: PageSetup) -> PageOptions:
    """Compile the options of a run; called in the child, once per run."""
    plan = None
    if setup.spec:
        from zcrawl.model.spec import JobSpec
        from zcrawl.parse.extract.plan import ExtractionPlan  # of jobs that extract

        spec = msgspec.json.decode(setup.spec, type=JobSpec)
        plan = ExtractionPlan(spec.extract, spec.schema)
    return PageOptions(setup.follow_nofollow, plan, setup.token, setup.fingerprint)


def as_answer(page: ParsedPage) -> PageParsed:
    """Convert a page to its answer, without the links."""
    extraction = page.extracted
    extracted = None
    if extraction is not None:
        extracted = ExtractedData(
            extraction.items,
            extraction.rejected,
            extraction.problems,
            extraction.reasons,
            extraction.fields,
            extraction.blocks,
            extraction.paging,
            extraction.size,
            extraction.examples,
        )
    return PageParsed(
        page.title,
        page.encoding,
        page.noindex,
        page.rejected,
        extracted,
        page.canonical,
        page.alternates,
        page.fingerprint,
    )


def as_page(answer: PageParsed, links: list[Link]) -> ParsedPage:
    """Convert an answer and its links to the page, without `extracted.links`."""
    extracted = None
    if answer.extracted is not None:
        from zcrawl.parse.extract.plan import Extracted

        extraction = answer.extracted
        extracted = Extracted(
            items=extraction.items,
            rejected=extraction.rejected,
            problems=extraction.problems,
            reasons=extraction.reasons,
            fields=extraction.fields,
            blocks=extraction.blocks,
            paging=extraction.paging,
            size=extraction.size,
            examples=extraction.examples,
        )
    return ParsedPage(
        answer.title,
        links,
        answer.encoding,
        answer.noindex,
        answer.rejected,
        extracted,
        answer.canonical,
        answer.alternates,
        answer.fingerprint,
    )
