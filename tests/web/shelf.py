"""A site whose pages a test puts there and changes: /shelf/NAME answers with `web.shelf[NAME]`.

Imported by `server`, so that it stands in the same table as the other behaviours.
"""

from __future__ import annotations

import dataclasses

from tests.web.behaviours import Exchange, behaviour


@dataclasses.dataclass(slots=True)
class Document:
    """One page and its manners."""

    body: str = ""
    links: tuple[str, ...] = ()  # names on the shelf
    etag: str = ""
    last_modified: str = ""
    status: int = 200
    location: str = ""
    honest: bool = True  # compares what it is asked with; False: always 304
    headers: tuple[str, ...] = ()
    encoding: str = "utf-8"

    def html(self) -> bytes:
        links = "".join(f'<a href="/shelf/{name}">{name}</a>' for name in self.links)
        return f"<html><title>t</title><body>{self.body}{links}</body></html>".encode(self.encoding)


@behaviour
async def shelf(x: Exchange) -> bool:
    page = x.web.shelf[x.rest]
    headers = [*page.headers]
    if page.etag:
        headers.append(f"ETag: {page.etag}")
    if page.last_modified:
        headers.append(f"Last-Modified: {page.last_modified}")
    if page.location:
        return await x.reply(302, b"", *headers, f"Location: {page.location}")
    request_headers = x.hit.headers
    same_tag = page.etag and request_headers.get("if-none-match") == page.etag
    same_date = (
        page.last_modified and request_headers.get("if-modified-since") == page.last_modified
    )
    if not page.honest or same_tag or (same_date and "if-none-match" not in request_headers):
        await x.raw("\r\n".join(["HTTP/1.1 304 Same", *headers]).encode() + b"\r\n\r\n")
        return True
    return await x.reply(page.status, page.html(), *headers)
