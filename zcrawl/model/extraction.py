"""The `[extract]` part of a job spec: which pages, which fields, which links. Types only.

`submit.extraction` checks the keys and the values; docs/extraction.md explains each key.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FieldType = Literal["str", "int", "float", "bool", "date", "url", "html", "markdown", "text"]
PageFact = Literal[
    "url", "final_url", "status", "depth", "parent", "content_type", "bytes", "fetched_at", "title"
]
Structured = Literal["jsonld", "opengraph", "microdata"]


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One value of an item: where it stands, what it is, what to do without it."""

    css: str = ""
    attr: str = ""  # of the element; empty: its text
    json: str = ""  # JMESPath, on JSON pages
    jsonld: str = ""  # JMESPath on {type: first object of that type, "all": every object}
    opengraph: str = ""  # a property's name
    microdata: str = ""  # JMESPath, like jsonld
    page: PageFact | None = None
    main: bool = False  # the page's main content, without navigation and the like
    re: str = ""  # the first group, or the whole match, becomes the value
    type: FieldType = "str"
    decimal: Literal["", ".", ","] = ""  # what separates decimals; empty: found out
    format: str = ""  # of a date, as strptime reads it
    list: bool = False
    default: Any = None
    required: bool = False
    fields: dict[str, Field] = {}  # makes it an object


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which pages a block is for: both conditions hold, where both are given."""

    url: str = ""  # a pattern that is found in the page's URL
    css: str = ""  # a selector that finds something


class ItemRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One item per match; neither: one per page."""

    css: str = ""
    json: str = ""


class Follow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which links of a page are followed, and which block reads what is behind them."""

    css: str = ""
    json: str = ""
    re: str = ""  # a pattern that is found in the link's URL
    to: str = ""
    paging: bool = False  # the next page of a list: it adds no depth


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str = ""
    match: Match = Match()
    item: ItemRule = ItemRule()
    fields: dict[str, Field] = {}
    structured: tuple[Structured, ...] = ()  # whole, as fields of these names
    follow: tuple[Follow, ...] | None = None  # None: every link in scope
    schema: dict[str, Any] = {}  # what an item must satisfy; a part of JSON Schema
