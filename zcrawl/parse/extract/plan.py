"""The extraction plan of a job: compiled once per run, applied to every page.

Called by the worker's pipeline (`parse.page` passes the tree that it has parsed) and by commands
that check a job file. Pure. A page is read by one block: the one named by `to` on its link,
otherwise the first whose `match` fits. Missing and invalid values are reported, never guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from selectolax.lexbor import LexborNode

from zcrawl.model.extraction import Block, Follow
from zcrawl.model.reasons.failure import TOO_LARGE
from zcrawl.model.reasons.skip import (
    FIELD_FAILED,
    NOT_STORABLE,
    TOO_MANY_ITEMS,
    required,
    schema_broken,
)
from zcrawl.parse.cost import SelectorCost, greatest, selector_cost
from zcrawl.parse.extract.fields import readers
from zcrawl.parse.extract.item_schema import MOST_EXAMPLES, Check, compile_check, describe
from zcrawl.parse.extract.page_facts import SourcePage
from zcrawl.parse.extract.selectors import check_css, compile_path
from zcrawl.parse.extract.types import FieldProblem
from zcrawl.parse.links import says_nofollow
from zcrawl.submit.extraction import block_path, walk
from zcrawl.text.expressions import compile_pattern

MAX_ITEMS: Final = 10_000  # of one page
MAX_ITEM_BYTES: Final = 1_000_000
MAX_PAGE_BYTES: Final = 4_000_000  # of all items of a page: a result must fit into the outbox
MAX_REPORTS: Final = 200  # of one page, about items that were kept

Link = tuple[str, bytes]
_encode = msgspec.json.Encoder().encode


@dataclasses.dataclass(slots=True)
class Extracted:
    """The result of a page. `links` is None if all links of the page are to be followed."""

    items: list[bytes] = dataclasses.field(default_factory=list)
    rejected: list[bytes] = dataclasses.field(default_factory=list)  # rejected items with their
    # reasons
    problems: list[bytes] = dataclasses.field(default_factory=list)  # accepted items with failed
    # fields
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)  # of `rejected`
    # Reason → description of the first item that was rejected for it.
    examples: dict[str, str] = dataclasses.field(default_factory=dict)
    fields: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    links: list[Link] | None = None
    blocks: dict[str, list[bytes]] = dataclasses.field(default_factory=dict)  # block → link keys
    paging: list[bytes] = dataclasses.field(default_factory=list)  # keys of links that add no depth
    size: int = 0  # bytes of items and reports


class ExtractionPlan:
    """All blocks of a job. Raises JobError for an invalid selector, pattern or path."""

    def __init__(self, blocks: tuple[Block, ...], schema: Mapping[str, Any] | None = None) -> None:
        """Compile the blocks. `schema` is for blocks without their own."""
        checks = compile_check(schema, "schema") if schema else None
        self._blocks = [
            _CompiledBlock(block, block_path(number, len(blocks)), len(blocks) == 1, checks)
            for number, block in enumerate(blocks, 1)
        ]
        self._named = {block.name: block for block in self._blocks if block.name}
        # Whether a block chooses links; otherwise all links of a page are followed.
        self.picks_links = any(block.follow is not None for block in blocks)
        self.cost = greatest(cost for block in blocks for cost in _costs(block))

    def wants_main(self, url: str, block: str) -> bool:
        """Return whether a page may need its main content; decided before it is read."""
        if block in self._named:
            return self._named[block].needs_main
        return any(block.needs_main and block.url_matches(url) for block in self._blocks)

    def apply(self, page: SourcePage) -> Extracted | None:
        """Apply the block of the page; None if no block fits."""
        facts = page.facts
        block = self._named.get(facts.block)
        if block is None:
            for candidate in self._blocks:
                if candidate.matches(page):
                    block = candidate
                    break
        return None if block is None else block.apply(page)


def _costs(block: Block) -> Iterator[SelectorCost]:
    fields = (field.css for _, field in walk(block.fields, ""))
    follow = (rule.css for rule in block.follow or ())
    for css in (block.match.css, block.item.css, *fields, *follow):
        yield selector_cost(css)


class _CompiledBlock:
    def __init__(self, block: Block, path: str, single: bool, check: Check | None) -> None:
        self.name = block.name
        # Names of fields in statistics: with several blocks, the name of the block comes first.
        prefix = "" if single else (block.name or path)
        self._display_name = block.name or path
        self.needs_main = any(field.main for _, field in walk(block.fields, ""))
        self._url = compile_pattern(block.match.url, f"{path}.match") if block.match.url else None
        self._css = check_css(block.match.css, f"{path}.match.css") if block.match.css else None
        self._item_css = check_css(block.item.css, f"{path}.item") if block.item.css else None
        self._item_json = (
            compile_path(block.item.json, f"{path}.item.json") if block.item.json else None
        )
        self._fields = readers(block.fields, f"{path}.fields", f"{prefix}." if prefix else "")
        self._may_lack = [reader for reader in self._fields if reader.may_lack]
        self._structured = block.structured
        self._yields = bool(block.fields or block.structured)
        self._adds_url = "url" not in block.fields
        self._check = compile_check(block.schema, f"{path}.schema") if block.schema else check
        self._follow = (
            None
            if block.follow is None
            else [_Rule(rule, f"{path}.follow[{n}]") for n, rule in enumerate(block.follow, 1)]
        )

    def url_matches(self, url: str) -> bool:
        return self._url is None or self._url.found_in(url)

    def matches(self, page: SourcePage) -> bool:
        if not self.url_matches(page.facts.url):
            return False
        if self._css is None:
            return True
        return page.tree is not None and page.tree.css_first(self._css) is not None

    def apply(self, page: SourcePage) -> Extracted:
        result = Extracted()
        if self._yields:
            self._read_items(page, result)
            result.fields = page.counts
        if self._follow is not None:
            self._read_links(page, result, self._follow)
        return result

    # ------------------------------------------------------------ items

    def _read_items(self, page: SourcePage, result: Extracted) -> None:
        for number, scope in enumerate(self._scopes(page)):
            if number == MAX_ITEMS:
                self._reject(page, result, TOO_MANY_ITEMS, {}, None)
                result.examples[TOO_MANY_ITEMS] = f"only the first {MAX_ITEMS} are kept"
                return
            errors: dict[str, str] = {}
            item: dict[str, Any] = {"url": page.facts.values["url"]} if self._adds_url else {}
            for reader in self._fields:
                page.check()
                item[reader.name] = reader.read(page, scope, errors)
            for name in self._structured:
                item[name] = page.part(name)
            why = self._rejection_reason(item, errors)
            try:
                data = _encode(item)
            except (RecursionError, ValueError) as error:  # nested too deeply, or not UTF-8
                self._reject(page, result, NOT_STORABLE, {"": str(error)}, None)
                result.examples.setdefault(NOT_STORABLE, str(error))
                continue
            if len(data) > MAX_ITEM_BYTES or result.size + len(data) > MAX_PAGE_BYTES:
                self._reject(page, result, TOO_LARGE, errors, None)
                result.examples.setdefault(TOO_LARGE, f"an item of {len(data)} bytes")
            elif why is not None:
                self._reject(page, result, why, errors, data)
                if why not in result.examples and len(result.examples) < MOST_EXAMPLES:
                    where = why.partition(": ")[2]
                    what = errors.get(where, "it has no value")
                    result.examples[why] = describe(item, where, what)
            else:
                result.items.append(data)
                result.size += len(data)
                if errors and len(result.problems) < MAX_REPORTS:
                    report = self._report(page, FIELD_FAILED, errors, None)
                    result.problems.append(report)
                    result.size += len(report)

    def _scopes(self, page: SourcePage) -> Iterator[LexborNode | Any]:
        if page.tree is not None:
            root = page.tree.root
            if self._item_json is not None or root is None:
                return
            yield from [root] if self._item_css is None else root.css(self._item_css)
            return
        if self._item_css is not None:
            return
        if self._item_json is None:
            yield page.json
            return
        try:
            result = self._item_json(page.json)
        except FieldProblem:  # not the expected list: no items on this page
            return
        yield from result if isinstance(result, list) else [result] if result is not None else []

    def _rejection_reason(self, item: dict[str, Any], errors: dict[str, str]) -> str | None:
        """Return why an item is rejected. Reasons are counted, so they contain no values of the
        page."""
        for reader in self._may_lack:
            missing = reader.missing(item[reader.name])
            if missing is not None:
                return required(missing)
        if self._check is not None and (broken := self._check(item)) is not None:
            errors.setdefault(*broken)
            return schema_broken(broken[0])
        return None

    def _reject(
        self,
        page: SourcePage,
        result: Extracted,
        reason: str,
        errors: dict[str, str],
        item: bytes | None,
    ) -> None:
        result.reasons[reason] = result.reasons.get(reason, 0) + 1
        report = self._report(page, reason, errors, item)
        if result.size + len(report) > 2 * MAX_PAGE_BYTES - MAX_ITEM_BYTES:
            return  # only counted, because a result must fit into a message
        result.rejected.append(report)
        result.size += len(report)

    def _report(
        self, page: SourcePage, reason: str, errors: dict[str, str], item: bytes | None
    ) -> bytes:
        return _encode(
            {
                "url": page.facts.values["url"],
                "block": self._display_name,
                "reason": reason,
                "errors": errors,
                "item": None if item is None else msgspec.Raw(item),
            }
        )

    # ------------------------------------------------------------ links

    def _read_links(self, page: SourcePage, result: Extracted, rules: list[_Rule]) -> None:
        links: dict[bytes, Link] = {}
        paging: dict[bytes, None] = {}  # if any rule has `paging`
        for rule in rules:
            keys = []
            for link in rule.links(page):
                if rule.paging:
                    paging[link[1]] = None
                if link[1] not in links:  # the first rule that finds a link decides
                    links[link[1]] = link
                    keys.append(link[1])
            if rule.to and keys:
                result.blocks.setdefault(rule.to, []).extend(keys)
        result.links = list(links.values())
        result.paging = list(paging)


class _Rule:
    """One entry of `follow`."""

    def __init__(self, rule: Follow, path: str) -> None:
        self.to, self.paging = rule.to, rule.paging
        self._css = check_css(rule.css, f"{path}.css") if rule.css else None
        self._json = compile_path(rule.json, f"{path}.json") if rule.json else None
        self._re = compile_pattern(rule.re, f"{path}.re") if rule.re else None

    def links(self, page: SourcePage) -> Iterator[Link]:
        for href in self._hrefs(page):
            page.check()
            link = page.resolver.resolve(page.base, href)
            if link is not None and (self._re is None or self._re.found_in(link[0])):
                yield link

    def _hrefs(self, page: SourcePage) -> Iterator[str]:
        if page.tree is None:
            yield from self._hrefs_of_json(page)
            return
        if self._json is not None:
            return
        for node in page.tree.css(self._css or "a[href]"):
            page.check()
            attributes = node.attributes
            if "href" in attributes or "src" in attributes:
                links = [attributes]
            else:  # not a link itself: the links inside it
                links = [inner.attributes for inner in node.css("a[href]")]
            for link in links:
                if page.follow_nofollow or not says_nofollow(link.get("rel")):
                    yield link.get("href") or link.get("src") or ""

    def _hrefs_of_json(self, page: SourcePage) -> Iterator[str]:
        if self._json is None:
            return
        try:
            result = self._json(page.json)
        except FieldProblem:  # the page has another structure: nothing to follow
            return
        for href in result if isinstance(result, list) else [result]:
            if isinstance(href, str):
                yield href
