"""Generated pages that cost a parser far more than their size: one function for each kind.

Each takes a size in bytes (about) and a random generator, and returns markup. Used by the fuzzer of
`parse.cost`, by the integration tests and for measuring. Same seed, same page.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

Maker = Callable[[int, random.Random], bytes]


def _repeat(unit: str, size: int) -> str:
    return unit * max(1, size // len(unit))


def _numbered(unit: str, size: int, start: int = 0) -> str:
    """`unit` with a number in it, again and again."""
    parts: list[str] = []
    length, number = 0, start
    while length < size:
        part = unit.format(number)
        parts.append(part)
        length += len(part)
        number += 1
    return "".join(parts)


def attributes(size: int, chance: random.Random) -> bytes:
    """One tag with as many attributes as fit."""
    return f"<p {_numbered('{:x} ', size)}>".encode()


def attributes_with_values(size: int, chance: random.Random) -> bytes:
    return f"<p {_numbered('a{}=b ', size)}>".encode()


def attributes_with_quoted_brackets(size: int, chance: random.Random) -> bytes:
    """A `>` in a quoted value ends no tag: whoever looks for the next `>` sees short tags."""
    inside = _numbered("a{0:x} b{0:x}='>' ", size)
    return f"<p {inside}>".encode()


def attributes_hidden(size: int, chance: random.Random) -> bytes:
    """Short attributes, and now and then a quoted value that looks like ordinary markup."""
    short = _numbered("{:x} ", 900)
    unit = short + 'title="<p>An ordinary <a href=x>page</a></p>" '
    parts = [_numbered("{:x} ", 900, n * 300) + unit[len(short) :] for n in range(size // 950 + 1)]
    return f"<p {''.join(parts)}>".encode()


def attributes_behind_a_bracket(size: int, chance: random.Random) -> bytes:
    """One quoted `>` at the beginning: all that follows looks like text behind a short tag."""
    value = chance.choice(('">"', "'>'", '"<b>\'>>"', ' \n">"', '"' + "x" * 300 + '>"'))
    return f"<p title={value} {_numbered('{:x} ', size)}>".encode()


def attributes_by_slash(size: int, chance: random.Random) -> bytes:
    return f"<p/{_numbered('{:x}/', size)}>".encode()


def duplicate_attributes(size: int, chance: random.Random) -> bytes:
    return f"<p {_repeat('a ', size)}>".encode()


def many_tags_of_attributes(size: int, chance: random.Random) -> bytes:
    """Many tags, each with a few hundred attributes."""
    each = chance.choice((60, 200, 600))
    tag = f"<b {_numbered('{:x} ', each * 4)}>"
    return _repeat(tag, size).encode()


def nested_div(size: int, chance: random.Random) -> bytes:
    return _repeat("<div>", size).encode()


def nested_and_closed(size: int, chance: random.Random) -> bytes:
    n = size // 11
    return ("<div>" * n + "</div>" * n).encode()


def nested_with_false_ends(size: int, chance: random.Random) -> bytes:
    """Ends of what is not open: whoever counts starts and ends sees no depth."""
    return _repeat("<div></b>", size).encode()


def nested_spans(size: int, chance: random.Random) -> bytes:
    return _repeat("<span>", size).encode()


def nested_unknown(size: int, chance: random.Random) -> bytes:
    return _repeat("<x-y>", size).encode()


def nested_unknown_ends(size: int, chance: random.Random) -> bytes:
    """An end tag of what is not open looks through all that is."""
    n = size // 9
    return ("<x-y>" * n + "</z>" * n).encode()


def lists(size: int, chance: random.Random) -> bytes:
    return _repeat("<ul><li>", size).encode()


def definition_lists(size: int, chance: random.Random) -> bytes:
    return _repeat("<dl><dd>", size).encode()


def formatting(size: int, chance: random.Random) -> bytes:
    return _repeat("<b><i><font>", size).encode()


def adoption(size: int, chance: random.Random) -> bytes:
    """Ends of formatting elements around blocks: the adoption agency."""
    return _repeat("<b><div></b>", size).encode()


def adoption_crossed(size: int, chance: random.Random) -> bytes:
    n = size // 21
    return ("<a><b><div>" * n + "</a></b></b>" * n).encode()


def reconstruction(size: int, chance: random.Random) -> bytes:
    """Formatting elements that a paragraph's end closes are opened again in the next one."""
    share = chance.choice((0.3, 0.5, 0.7))
    begun = _numbered("<b id={:x}>", int(size * share))
    return f"<p>{begun}{_repeat('</p><p>x', int(size * (1 - share)))}".encode()


def reconstruction_of_attributes(size: int, chance: random.Random) -> bytes:
    """The same, with many attributes that are copied each time."""
    names = _numbered("{:x} ", size // 2)
    return f"<p><b {names}>{_repeat('</p><p>x', size // 2)}".encode()


def reconstruction_of_a_link(size: int, chance: random.Random) -> bytes:
    """A link counts as a formatting element too. Blocks take most of the page."""
    begin = chance.choice(("<a ", "<A/", "<a\n", "<a x='>' ", '<a href="<p>" '))
    return f"<p>{begin}{_numbered('{:x} ', size // 4)}></p>{_repeat('<p>x', size // 2)}".encode()


def tags_without_end(size: int, chance: random.Random) -> bytes:
    """Nested deep, so that tags which do not matter are taken out, and then many that never end."""
    return f"{'<div>' * 1_100}{'<x' * 2_800}{_repeat('y', size - 11_100)}".encode()


def reconstruction_by_links(size: int, chance: random.Random) -> bytes:
    """A link within a link ends the first, and all that was open in it is opened again."""
    tag = chance.choice(("a", "nobr"))
    begun = _numbered("<i id={:x}>", size // 2)
    return f"<{tag}>{begun}{_repeat(f'<{tag}>x', size // 2)}".encode()


def false_ends_of_formatting(size: int, chance: random.Random) -> bytes:
    """Elements that look closed: their ends stand in a quoted value, or where they end nothing."""
    hidden = _numbered("<b x='></b>' id={:x}>", size // 4) + _numbered(
        '<b x="></b>" id={:x}>', size // 4
    )
    return f"<p>{hidden}{_repeat('</p><p>x', size // 2)}".encode()


def reconstruction_in_cells(size: int, chance: random.Random) -> bytes:
    half = size // 2
    return (_numbered("<i a={:x}>", half) + "<table>" + _repeat("<tr><td>x", half)).encode()


def foster_parents(size: int, chance: random.Random) -> bytes:
    return _repeat("<table><b>x<i>y", size).encode()


def foster_text(size: int, chance: random.Random) -> bytes:
    return ("<table>" + _repeat("x<tr>", size)).encode()


def nested_tables(size: int, chance: random.Random) -> bytes:
    return _repeat("<table><tr><td>", size).encode()


def options(size: int, chance: random.Random) -> bytes:
    return ("<select>" + _repeat("<option>x<optgroup>", size)).encode()


def nested_selects(size: int, chance: random.Random) -> bytes:
    return _repeat("<select><option><table>", size).encode()


def svg(size: int, chance: random.Random) -> bytes:
    return _repeat("<svg><g><foreignObject><div>", size).encode()


def svg_breakouts(size: int, chance: random.Random) -> bytes:
    n = size // 10
    return ("<svg>" * n + "<p>x</g>" * (n // 2)).encode()


def math(size: int, chance: random.Random) -> bytes:
    return _repeat("<math><mi><mglyph>", size).encode()


def entities(size: int, chance: random.Random) -> bytes:
    return (
        "<p>" + _repeat("&CounterClockwiseContourIntegral;&amp;&notit;&#x1F600;", size)
    ).encode()


def broken_entities(size: int, chance: random.Random) -> bytes:
    return ("<p>" + _repeat("&", size)).encode()


def comments(size: int, chance: random.Random) -> bytes:
    return _repeat("<!---->", size).encode()


def open_comment(size: int, chance: random.Random) -> bytes:
    return ("<!--" + _repeat("--!-->-", size)).encode()


def cdata(size: int, chance: random.Random) -> bytes:
    return ("<svg>" + _repeat("<![CDATA[]]>]]", size)).encode()


def doctypes(size: int, chance: random.Random) -> bytes:
    return _repeat("<!DOCTYPE html SYSTEM 'x'>", size).encode()


def links(size: int, chance: random.Random) -> bytes:
    """An ordinary list of links, each to another page."""
    return _numbered("<a href={:x}>x</a>", size).encode()


def links_to_hosts(size: int, chance: random.Random) -> bytes:
    return _numbered("<a href=//{:x}.example/?a=%7e>x", size).encode()


def odd_links(size: int, chance: random.Random) -> bytes:
    """Links that need the slow way of the canonical form."""
    return _numbered("<a href='../{:x}?b=%41&a=%zz#x'>", size).encode()


def nested_links(size: int, chance: random.Random) -> bytes:
    return _numbered("<a href={:x}><div>", size).encode()


def templates(size: int, chance: random.Random) -> bytes:
    return _repeat("<template>", size).encode()


def framesets(size: int, chance: random.Random) -> bytes:
    return _numbered("<frameset><frame src={:x}>", size).encode()


def iframes(size: int, chance: random.Random) -> bytes:
    return _numbered("<iframe src={:x}></iframe>", size).encode()


def json_ld(size: int, chance: random.Random) -> bytes:
    inner = ",".join('{"@type":"A","a":[[[[1]]]]}' for _ in range(size // 28))
    return f'<script type="application/ld+json">[{inner}]</script>'.encode()


def json_ld_scripts(size: int, chance: random.Random) -> bytes:
    return _repeat('<script type="application/ld+json">{"@type":"A"}</script>', size).encode()


def microdata(size: int, chance: random.Random) -> bytes:
    """Properties deep below their item: each looks for it upwards."""
    half = size // 2
    return ("<p itemscope>" + _repeat("<s><q>", half) + _repeat("<i itemprop=a>", half)).encode()


def source_sets(size: int, chance: random.Random) -> bytes:
    return f"<img srcset='{_numbered('a{}.png 1x,', size)}'>".encode()


def bases(size: int, chance: random.Random) -> bytes:
    return _numbered("<base href='http://\\x{:x}:99999/'>", size).encode()


def long_base(size: int, chance: random.Random) -> bytes:
    base = "http://x.example/" + "a/" * min(4000, size // 4)
    return (f"<base href='{base}'>" + _numbered("<a href=../{:x}>", size - len(base))).encode()


def metas(size: int, chance: random.Random) -> bytes:
    return _repeat("<meta name=robots content='a,b,c'>", size).encode()


def canonicals(size: int, chance: random.Random) -> bytes:
    return _numbered("<link rel=alternate hreflang=de href={:x}>", size).encode()


def titles(size: int, chance: random.Random) -> bytes:
    return ("<title>" + _repeat("a b\n", size)).encode()


def words(size: int, chance: random.Random) -> bytes:
    """Text of words that never repeat: a fingerprint hashes each."""
    return ("<p>" + _numbered("w{:x} ", size)).encode()


def navigations(size: int, chance: random.Random) -> bytes:
    """What a fingerprint strips, nested."""
    return _repeat("<nav><aside>", size).encode()


def headings(size: int, chance: random.Random) -> bytes:
    return _repeat("<h1><h2>", size).encode()


def buttons(size: int, chance: random.Random) -> bytes:
    return _repeat("<button><p>", size).encode()


def forms(size: int, chance: random.Random) -> bytes:
    return _repeat("<form><input></form>", size).encode()


def paragraphs(size: int, chance: random.Random) -> bytes:
    return _repeat("<p>", size).encode()


def ruby(size: int, chance: random.Random) -> bytes:
    return _repeat("<ruby><rt><rp>", size).encode()


def null_bytes(size: int, chance: random.Random) -> bytes:
    return ("<p>" + _repeat("\0x", size)).encode()


def broken_utf8(size: int, chance: random.Random) -> bytes:
    return b"<p>" + b"\xff\xe0\x80" * (size // 3)


def brackets(size: int, chance: random.Random) -> bytes:
    return b"<" * size


def bodies(size: int, chance: random.Random) -> bytes:
    """Attributes of a second <body> are added to the first, each after a look for its name."""
    return _numbered("<body a{:x}>", size).encode()


MONSTERS: Final[dict[str, Maker]] = {
    maker.__name__: maker
    for maker in (
        attributes, attributes_with_values, attributes_with_quoted_brackets, attributes_hidden,
        attributes_behind_a_bracket, attributes_by_slash, duplicate_attributes,
        many_tags_of_attributes, nested_div, reconstruction_of_a_link, tags_without_end,
        nested_and_closed, nested_with_false_ends, nested_spans, nested_unknown,
        nested_unknown_ends, lists, definition_lists, formatting, adoption, adoption_crossed,
        reconstruction, reconstruction_of_attributes, reconstruction_by_links,
        false_ends_of_formatting,
        reconstruction_in_cells, foster_parents,
        foster_text, nested_tables, options, nested_selects, svg, svg_breakouts, math, entities,
        broken_entities, comments, open_comment, cdata, doctypes, links, links_to_hosts, odd_links,
        nested_links, templates, framesets, iframes, json_ld, json_ld_scripts, microdata,
        source_sets, bases, long_base, metas, canonicals, titles, words, navigations, headings,
        buttons, forms, paragraphs, ruby, null_bytes, broken_utf8, brackets, bodies,
    )
}  # fmt: skip
