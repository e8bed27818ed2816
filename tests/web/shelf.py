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
    one = x.web.shelf[x.rest]
    headers = [*one.headers]
    if one.etag:
        headers.append(f"ETag: {one.etag}")
    if one.last_modified:
        headers.append(f"Last-Modified: {one.last_modified}")
    if one.location:
        return await x.reply(302, b"", *headers, f"Location: {one.location}")
    asked = x.hit.headers
    same_tag = one.etag and asked.get("if-none-match") == one.etag
    same_date = one.last_modified and asked.get("if-modified-since") == one.last_modified
    if not one.honest or same_tag or (same_date and "if-none-match" not in asked):
        await x.raw("\r\n".join(["HTTP/1.1 304 Same", *headers]).encode() + b"\r\n\r\n")
        return True
    return await x.reply(one.status, one.html(), *headers)
