"""Read the structured data of a page: JSON-LD, OpenGraph and microdata.

Called by `parse.extract.page_facts` for jobs that use it. Pure. Broken pieces are left out: a page
with one bad script still has its others. JSON-LD and microdata are returned by type, so that a job
can select by type: {"Product": {...}, "all": [{...}, ...]}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from zcrawl.parse.prose import Check, words_of

MAX_OBJECTS: Final = 1_000
_MAX_SCOPES: Final = 32  # microdata within microdata
_URL_ATTRIBUTES = {
    "a": "href", "area": "href", "link": "href", "img": "src", "audio": "src", "video": "src",
    "embed": "src", "iframe": "src", "source": "src", "track": "src", "object": "data",
}  # fmt: skip


def jsonld(tree: LexborHTMLParser) -> dict[str, Any]:
    objects: list[dict[str, Any]] = []
    for script in tree.css('script[type="application/ld+json"]'):
        text = (script.text() or "").strip().removeprefix("<!--").removesuffix("-->")
        try:
            value = msgspec.json.decode(text.rstrip(" ;\n"), strict=False)
        except (msgspec.DecodeError, RecursionError):
            continue  # one broken script; the others count
        _collect(value, objects)
    return _by_type(objects, "@type")


def _collect(value: Any, objects: list[dict[str, Any]]) -> None:
    """Collect objects at the top, in lists, and in a @graph, in their order."""
    waiting = [value]
    while waiting and len(objects) < MAX_OBJECTS:
        entry = waiting.pop(0)
        if isinstance(entry, list):
            waiting[:0] = entry[:MAX_OBJECTS]
        elif isinstance(entry, dict):
            if isinstance(entry.get("@graph"), list):
                waiting[:0] = entry["@graph"][:MAX_OBJECTS]
            if "@type" in entry or "@graph" not in entry:
                objects.append(entry)


def _by_type(objects: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the first object of each type by its short name, and all objects as `all`."""
    result: dict[str, Any] = {}
    for entry in objects:
        kinds = entry.get(key)
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if isinstance(kind, str) and kind:
                result.setdefault(kind.rstrip("/").rpartition("/")[2].rpartition("#")[2], entry)
    return {**result, "all": objects} if objects else {}


def opengraph(tree: LexborHTMLParser) -> dict[str, Any]:
    """Return property → content; a list if a property occurs more than once (og:image)."""
    result: dict[str, Any] = {}
    for meta in tree.css("meta[property][content]")[:MAX_OBJECTS]:
        attributes = meta.attributes
        name = (attributes.get("property") or "").strip()
        content = attributes.get("content")
        if ":" not in name or content is None:
            continue
        if name not in result:
            result[name] = content
        elif isinstance(result[name], list):
            result[name].append(content)
        else:
            result[name] = [result[name], content]
    return result


def microdata(
    tree: LexborHTMLParser,
    absolute: Callable[[str], str],
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return the microdata. `absolute` resolves a link of the page. `check` is called for each
    property, and may stop the reading with an exception."""
    nodes = tree.css("[itemscope]")[:MAX_OBJECTS]
    if not nodes:
        return {}
    items: dict[int, dict[str, Any]] = {}
    for node in nodes:
        kind = node.attributes.get("itemtype")
        items[node.mem_id] = {"@type": (kind or "").split()[:1] or [""]}
        items[node.mem_id]["@type"] = items[node.mem_id]["@type"][0]
    for node in tree.css("[itemprop]")[: MAX_OBJECTS * 10]:
        check()
        holder = _holder(node, items)
        if holder is None:
            continue
        value: Any = items.get(node.mem_id)
        if value is None:
            value = _value(node, absolute, check)
        for name in (node.attributes.get("itemprop") or "").split():
            if name not in holder:
                holder[name] = value
            elif isinstance(holder[name], list):
                holder[name].append(value)
            else:
                holder[name] = [holder[name], value]
    tops = [items[node.mem_id] for node in nodes if "itemprop" not in node.attributes]
    return _by_type([top for top in tops if _shallow(top)], "@type")


def _holder(node: LexborNode, items: dict[int, dict[str, Any]]) -> dict[str, Any] | None:
    """Return the item of a property: the nearest one around it."""
    parent = node.parent
    while parent is not None:
        item = items.get(parent.mem_id)
        if item is not None:
            return item
        parent = parent.parent
    return None


def _shallow(item: dict[str, Any]) -> bool:
    """Return whether it is not nested too deep, because JSON encoders recurse into each level."""
    level: list[Any] = [item]
    for _ in range(_MAX_SCOPES):
        level = [
            inner
            for parent in level
            for value in parent.values()
            for inner in (value if isinstance(value, list) else [value])
            if isinstance(inner, dict)
        ]
        if not level:
            return True
    return False


def _value(node: LexborNode, absolute: Callable[[str], str], check: Check) -> str:
    attributes, tag = node.attributes, node.tag or ""
    if tag == "meta":
        return attributes.get("content") or ""
    if tag in _URL_ATTRIBUTES:
        given = attributes.get(_URL_ATTRIBUTES[tag]) or ""
        try:
            return absolute(given)
        except ValueError:
            return given
    if tag in ("data", "meter"):
        return attributes.get("value") or ""
    if tag == "time" and attributes.get("datetime"):
        return attributes["datetime"] or ""
    if attributes.get("content") is not None:  # not in the standard, but on pages of most shops
        return attributes["content"] or ""
    return words_of(node, check)
