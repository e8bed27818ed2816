"""Find the form for a login: the first one with all the named fields.

Called by `worker.pipeline.login`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from selectolax.lexbor import LexborHTMLParser

MAX_FORM_BYTES = 1_000_000


class HtmlForm(msgspec.Struct, frozen=True):
    action: str  # as written; empty: the page itself
    hidden: dict[str, str]  # values that the server wants back, such as a token


def find_form(body: bytes, fields: Iterable[str]) -> HtmlForm | None:
    field_names = set(fields)
    for form in LexborHTMLParser(body[:MAX_FORM_BYTES]).css("form"):
        inputs = {
            name: (node.attributes.get("type") or "text", node.attributes.get("value") or "")
            for node in form.css("input, select, textarea")
            if (name := node.attributes.get("name"))
        }
        if field_names <= inputs.keys():
            hidden = {name: value for name, (kind, value) in inputs.items() if kind == "hidden"}
            return HtmlForm((form.attributes.get("action") or "").strip(), hidden)
    return None
