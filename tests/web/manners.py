"""Behaviours that try a crawler's manners: how it treats hosts that are slow, busy, or traps.

Imported by `server`, so that they stand in the same table as the others.
"""

from __future__ import annotations

import asyncio
import gzip
from urllib.parse import unquote

from tests.web.behaviours import Exchange, behaviour


@behaviour
async def fan(x: Exchange) -> bool:
    """/fan/N: a page that links to N pages without links; /fan/N/i is one of those."""
    return await _fan(x) if "/" not in x.rest else await _leaf(x)


async def _fan(x: Exchange) -> bool:
    """/NAME/N: links to /NAME/N/i (default 10)."""
    name, total = x.hit.path.split("/")[1], int(x.rest or 10)
    return await x.reply(200, _page("fan", *(f"/{name}/{total}/{i}" for i in range(total))))


async def _leaf(x: Exchange) -> bool:
    return await x.reply(200, _page(f"leaf {x.rest.partition('/')[2]}"))


def _asked(x: Exchange) -> int:
    """How often leaves of this fan were asked for, this time included."""
    fan = x.hit.path.rpartition("/")[0]
    return sum(hit.path.startswith(f"{fan}/") for hit in x.web.log)


@behaviour
async def moods(x: Exchange) -> bool:
    """/moods/N links to N pages; the server is well, then busy (429), then away (503), then well
    again, by how many of its pages were asked for: see `MOODS`."""
    if "/" not in x.rest:
        return await _fan(x)
    for until, status, headers in MOODS:
        if _asked(x) <= until:
            return await x.reply(status, b"<html>busy</html>", *headers)
    return await _leaf(x)


MOODS = ((20, 200, ()), (22, 429, ("Retry-After: 1",)), (24, 503, ()))


@behaviour
async def faints(x: Exchange) -> bool:
    """/faints/N links to N pages; from the tenth request for one on, it hangs up on seven."""
    if "/" not in x.rest:
        return await _fan(x)
    if FAINTS <= _asked(x) < FAINTS + FAINTED:
        return False
    return await _leaf(x)


FAINTS, FAINTED = 10, 7


@behaviour
async def tires(x: Exchange) -> bool:
    """/tires/N links to N pages; the 15th to the 20th of them take two seconds, the others none."""
    if "/" not in x.rest:
        return await _fan(x)
    if 15 <= _asked(x) <= 20:
        await asyncio.sleep(2.0)
    return await _leaf(x)


# ---------------------------------------------------------------- traps


def _page(title: str, *hrefs: str, head: str = "") -> bytes:
    links = "".join(f'<a href="{href}">x</a>' for href in hrefs)
    return f"<html><head><title>{title}</title>{head}</head><body>{links}</body></html>".encode()


@behaviour
async def calendar(x: Exchange) -> bool:
    """/calendar/Y/M: a month that links to the next one, for ever."""
    year, _, month = x.rest.partition("/")
    months = int(year or 2024) * 12 + int(month or 1)
    return await x.reply(200, _page("a month", f"/calendar/{months // 12}/{months % 12 + 1}"))


MONTHS = "January February March April May June July August September October November December"


@behaviour
async def almanac(x: Exchange) -> bool:
    """/almanac/Y/M: a month with its days and its name, that links to its neighbours and to the
    next year, for ever. Where the first day stands changes from month to month."""
    year, _, month = x.rest.partition("/")
    months = int(year or 2031) * 12 + int(month or 1) - 1
    name = MONTHS.split()[months % 12]
    days = "".join(f"<td>{'' if day < months % 7 else day}</td>" for day in range(35))
    near = (months - 1, months + 1, months + 12)
    links = "".join(f'<a href="/almanac/{n // 12}/{n % 12 + 1}">{n % 12}</a>' for n in near)
    body = f"<title>{name} {months // 12}</title><h1>{name}</h1><table>{days}</table>{links}"
    return await x.reply(200, f"<html>{body}</html>".encode())


@behaviour
async def journal(x: Exchange) -> bool:
    """/journal/PAGE lists twenty of 600 articles, which differ in a few words."""
    if "/" not in x.rest:
        page = int(x.rest or 0)
        numbers = range(20 * page, 20 * page + 20)
        more = [f"/journal/{page + 1}"] if page < 29 else []
        hrefs = [f"/journal/2024/{n % 12 + 1}/{n % 28 + 1}/story-{n}" for n in numbers]
        return await x.reply(200, _page("the journal", *hrefs, *more))
    number = int(x.rest.rpartition("-")[2])
    letters = "".join("abcdefghij"[int(digit)] for digit in str(number))
    return await x.reply(200, _page(f"A story of {letters}", head=f"<p>On {letters}."))


@behaviour
async def deeper(x: Exchange) -> bool:
    """A relative link that makes its own path longer, as a forgotten slash does."""
    return await x.reply(200, _page("deeper", "a/b/"))


@behaviour
async def facets(x: Exchange) -> bool:
    """/facets?sort=up&n=…: every page of a filter links to three more combinations of it."""
    n = int(x.hit.path.rpartition("=")[2] or 0) if "=" in x.hit.path else 0
    more = (f"/facets?sort=up&n={3 * n + k}" for k in (1, 2, 3))
    return await x.reply(200, _page("a list", *more))


@behaviour
async def longer(x: Exchange) -> bool:
    """Each page links to a longer query of itself."""
    query = x.hit.path.partition("?")[2]
    return await x.reply(200, _page("longer", f"/longer?{query}x{'y' * 300}"))


@behaviour
async def wider(x: Exchange) -> bool:
    """Each page links to itself with one more parameter, as careless forms do."""
    query = x.hit.path.partition("?")[2]
    more = f"{query}&p{len(query)}=1" if query else "p=1"
    return await x.reply(200, _page("wider", f"/wider?{more}"))


@behaviour
async def winding(x: Exchange) -> bool:
    """Each page links to one a folder deeper, and no folder twice."""
    depth = x.rest.count("/")
    return await x.reply(200, _page("winding", f"f{depth}/"))


@behaviour
async def lying(x: Exchange) -> bool:
    """A site that answers everything with 200, also what it does not have."""
    if x.rest == "":
        return await x.reply(200, _page("a shop", "/lying/good", "/lying/gone", "/lying/away"))
    if x.rest == "good":
        return await x.reply(200, _page("a thing"))
    return await x.reply(200, _page("Page not found"))


@behaviour
async def about_404(x: Exchange) -> bool:
    """A page whose subject is 404; the site answers what it does not have with a 404."""
    return await x.reply(200, _page("404 Not Found: what it means"))


# ---------------------------------------------------------------- what pages ask of robots


@behaviour
async def tagged(x: Exchange) -> bool:
    """/tagged links to pages that ask, in header or head, not to be kept or followed."""
    asks = {
        "meta-noindex": ('<meta name="robots" content="noindex">', ()),
        "meta-nofollow": ('<meta name="zcrawl" content="nofollow">', ()),
        "header-noindex": ("", ("X-Robots-Tag: noindex",)),
        "header-nofollow": ("", ("X-Robots-Tag: otherbot: noindex", "X-Robots-Tag: nofollow")),
        "other": ("", ("X-Robots-Tag: otherbot: none",)),
        "rel-nofollow": ("", ()),
    }
    name, _, leaf = x.rest.partition("/")
    if not name:
        return await x.reply(200, _page("tagged", *(f"/tagged/{name}" for name in asks)))
    if leaf:
        return await x.reply(200, _page(f"behind {name}"))
    head, headers = asks[name]
    page = _page(name, f"/tagged/{name}/leaf", head=head)
    if name == "rel-nofollow":
        page = page.replace(b"<a ", b'<a rel="external nofollow" ')
    return await x.reply(200, page, *headers)


@behaviour
async def variants(x: Exchange) -> bool:
    """Three spellings of one page, which all name the first one as canonical."""
    canonical = '<link rel="canonical" href="/variants/one">'
    canonical += '<link rel="alternate" hreflang="de" href="/variants/eins">'
    if not x.rest:
        pages = [f"/variants/{name}" for name in ("one", "two", "three")]
        return await x.reply(200, _page("variants", *pages))
    return await x.reply(200, _page("the page", head=canonical))


@behaviour
async def ring(x: Exchange) -> bool:
    """/ring/N links to N pages of which each names the next one as canonical, and the last the
    first; /ring/N/i is one of those."""
    total, _, page = x.rest.partition("/")
    if not page:
        return await _fan(x)
    onward = f"/ring/{total}/{(int(page) + 1) % int(total)}"
    return await x.reply(200, _page("a page", head=f'<link rel="canonical" href="{onward}">'))


@behaviour
async def names(x: Exchange) -> bool:
    """/names?URL: a page that names this URL as canonical."""
    url = unquote(x.hit.path.partition("?")[2])
    return await x.reply(200, _page("a page", head=f'<link rel="canonical" href="{url}">'))


@behaviour
async def onward(x: Exchange) -> bool:
    """/onward/N: a page that names the next one as canonical, for ever."""
    head = f'<link rel="canonical" href="/onward/{int(x.rest or 0) + 1}">'
    return await x.reply(200, _page("a page", head=head))


@behaviour
async def relay(x: Exchange) -> bool:
    """/relay/N?ORIGIN sends the visitor to the next number at ORIGIN, which sends it back here."""
    other = x.hit.path.partition("?")[2]
    return await x.reply(302, b"", f"Location: {other}/relay/{int(x.rest or 0) + 1}?{x.web.origin}")


@behaviour
async def mirrors(x: Exchange) -> bool:
    """A site of four pages under http and https, with www and without; each page links to each
    page in all four spellings. /mirrors/moved is at https only, where http sends its visitors."""
    name = x.hit.headers["host"].removeprefix("www.")
    if x.rest == "moved" and x.hit.port == 80:
        return await x.reply(301, b"", f"Location: https://{x.hit.headers['host']}/mirrors/moved")
    spellings = [f"{scheme}://{www}{name}" for scheme in ("http", "https") for www in ("", "www.")]
    paths = ("/mirrors", "/mirrors/one", "/mirrors/two", "/mirrors/moved")
    return await x.reply(200, _page("a page", *(a + path for path in paths for a in spellings)))


# ---------------------------------------------------------------- sitemaps


@behaviour
async def maps(x: Exchange) -> bool:
    """/maps/index.xml names a gzipped sitemap, a text one and one that is broken."""
    loc = x.web.url
    if x.rest == "index.xml":
        names = ("pages.xml.gz", "list.txt", "broken.xml", "feed.rss", "feed.atom")
        sitemaps = "".join(f"<sitemap><loc>{loc('/maps/' + n)}</loc></sitemap>" for n in names)
        body = f"<sitemapindex>{sitemaps}</sitemapindex>".encode()
        return await x.reply(200, body, kind="application/xml")
    if x.rest == "pages.xml.gz":
        listed = (("/fan/3/0", "2001-01-01"), ("/fan/3/1", "2099-01-01"))
        entries = "".join(
            f"<url><loc>{loc(path)}</loc><lastmod>{day}</lastmod></url>" for path, day in listed
        )
        packed = gzip.compress(f"<urlset>{entries}</urlset>".encode())
        return await x.reply(200, packed, kind="application/gzip")
    if x.rest == "list.txt":
        return await x.reply(200, f"{loc('/fan/3/2')}\n".encode(), kind="text/plain")
    if x.rest == "feed.rss":
        body = (
            f"<rss><channel><item><link>{loc('/good/2/0')}</link></item></channel></rss>".encode()
        )
        return await x.reply(200, body, kind="application/rss+xml")
    if x.rest == "feed.atom":
        body = f'<feed><entry><link href="{loc("/fan/4/0")}"/></entry></feed>'.encode()
        return await x.reply(200, body, kind="application/atom+xml")
    if x.rest == "swelling.txt.gz":  # a page, 51 MB of nothing, and one that nobody reads of
        body = f"{loc('/fan/3/0')}\n".encode() + b"\n" * 51_000_000 + loc("/fan/3/1").encode()
        return await x.reply(200, gzip.compress(body, 1), kind="application/gzip")
    if x.rest.startswith("deep/"):  # an index of an index, for ever
        deeper = loc(f"/maps/deep/{int(x.rest[5:]) + 1}")
        body = f"<sitemapindex><sitemap><loc>{deeper}</loc></sitemap></sitemapindex>".encode()
        return await x.reply(200, body, kind="application/xml")
    if x.rest == "elsewhere.xml":  # its own list, and two at other hosts
        urls = (loc("/maps/list.txt"), *unquote(x.hit.path.partition("?")[2]).split(","))
        sitemaps = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
        body = f"<sitemapindex>{sitemaps}</sitemapindex>".encode()
        return await x.reply(200, body, kind="application/xml")
    if x.rest == "joined.txt.gz":  # two files in one, and padding
        pieces = [gzip.compress(f"{loc(f'/fan/3/{n}')}\n".encode()) for n in (0, 1)]
        return await x.reply(200, b"".join(pieces) + bytes(512), kind="application/gzip")
    if x.rest == "laughs.xml":  # two pages, and entities of entities
        entities = '<!ENTITY a "ha">'
        for before, name in zip("abcdefghi", "bcdefghij", strict=True):
            entities += f'<!ENTITY {name} "{f"&{before};" * 10}">'
        pages = (
            f"<url><loc>{loc('/fan/3/0')}</loc></url><url><loc>{loc('/fan/3/1')}?&j;</loc></url>"
        )
        text = f"<?xml version='1.0'?><!DOCTYPE x [{entities}]><urlset>{pages}</urlset>"
        return await x.reply(200, text.encode(), kind="application/xml")
    if x.rest == "inside.txt":
        body = b"http://10.1.2.3/\nhttp://169.254.169.254/latest/\nfile:///etc/passwd\n"
        return await x.reply(200, body, kind="text/plain")
    if x.rest == "many.txt":
        body = "".join(f"{loc(f'/fan/60000/{n}')}\n" for n in range(50_100)).encode()
        return await x.reply(200, body, kind="text/plain")
    return await x.reply(200, b"<urlset><url><loc>", kind="application/xml")
