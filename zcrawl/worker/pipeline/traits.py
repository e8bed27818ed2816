"""The traits of a page: taken from its answer, and sent as conditions with the next request.

Called by the pipeline for jobs that remember their pages. A condition is sent to the very URL whose
answer gave it, never to where that redirects. A validator that could not be sent back as it came is
not kept; a page without any is still recognised by the hash of its body.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from zcrawl.fetch.headers import header_of
from zcrawl.fetch.ports import Response
from zcrawl.mesh.messages import Assignment, Traits
from zcrawl.text.patterns import lazy_pattern

if TYPE_CHECKING:
    from zcrawl.worker.pipeline.outgoing import Sending
    from zcrawl.worker.results.context import RunContext

_USUAL_DATE: Final = lazy_pattern(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?:0[1-9]|1\d|2[0-8]) "
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) (?:19|20)\d\d "
    r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d GMT"
)

NOT_MODIFIED: Final = 304
HASH_BYTES: Final = 16
MOST_ETAG: Final = 500  # characters
NO_CONDITION: Final[dict[str, str]] = {}


def decoded(encoded_traits: bytes) -> Traits | None:
    from zcrawl.frontier.recrawl import decode  # few runs know anything

    return decode(encoded_traits)


def condition_of(
    traits: Traits | None, context: RunContext, sending: Sending | None
) -> dict[str, str]:
    """Return the headers that request the page only if it has changed."""
    if traits is None or context.spec.fetch.engine == "browser":
        return NO_CONDITION  # a browser shows what it is given: an empty page
    if sending is not None and sending.extra.method != "GET":
        return NO_CONDITION
    headers = {}
    if traits.etag:
        headers["If-None-Match"] = traits.etag
    if traits.last_modified:
        headers["If-Modified-Since"] = traits.last_modified
    return headers


def traits_of(
    assignment: Assignment, earlier_traits: Traits | None, url: str, response: Response
) -> Traits:
    """Return the traits of a complete page; `url` is where it came from after redirects."""
    content = blake2b(response.content, digest_size=HASH_BYTES).digest()
    unchanged = earlier_traits is not None and earlier_traits.content == content
    prints = earlier_traits.fingerprint if earlier_traits is not None and unchanged else b""
    if url != assignment.url:  # its validators are the target's
        return Traits(content=content, unchanged=unchanged, fingerprint=prints)
    return Traits(_etag(response), _last_modified(response), content, unchanged, prints)


def confirmed(traits: Traits, response: Response) -> Traits:
    """Return the traits of a page that its server calls unchanged, with newer validators."""
    return msgspec.structs.replace(
        traits,
        etag=_etag(response) or traits.etag,
        last_modified=_last_modified(response) or traits.last_modified,
        unchanged=True,
    )


def _etag(response: Response) -> str:
    """Return the ETag as it came: strong or weak, quoted or not.

    Never `*`, which matches any page: the answer would be 304 forever.
    """
    value = (header_of(response, b"etag") or "").strip()
    if value == "*":
        return ""
    return value if len(value) <= MOST_ETAG and value.isascii() and value.isprintable() else ""


def _last_modified(response: Response) -> str:
    """Return the date if it can be parsed; servers treat other texts in different ways."""
    value = (header_of(response, b"last-modified") or "").strip()
    if not value or not value.isascii() or not value.isprintable():
        return ""
    if _USUAL_DATE.fullmatch(value):
        return value
    from email.utils import parsedate_to_datetime  # 5 ms of a start; servers write the usual form

    try:
        parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError, IndexError):
        return ""
    return value[:MOST_ETAG]
