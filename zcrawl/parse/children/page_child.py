"""The child process that parses costly pages: `python -m zcrawl.parse.children.page_child PARENT`.

Started by `pages`. It reads one page at a time: requests on stdin, answers on stdout. Pages are
untrusted and lexbor is written in C: this process may be killed because it takes too long, may
crash, or may run out of memory. Its parent notices that, reports the page and starts another child.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from zcrawl.errors import ParseError
from zcrawl.frontier.url import LinkResolver
from zcrawl.model.reasons.failure import INTERNAL_ERROR, PARSE_MEMORY
from zcrawl.parse import page_protocol as wire
from zcrawl.parse.page import PageOptions
from zcrawl.parse.reading import read_page
from zcrawl.runtime.confine import close_inherited, confine
from zcrawl.runtime.parent import die_with_parent

if TYPE_CHECKING:
    from zcrawl.parse.extract.page_facts import PageContext

MOST_MEMORY: Final = 1 << 30  # bytes of address space; a page of 10 MB needs about 200 MB


def main() -> None:
    source, target = sys.stdin.buffer, sys.stdout.buffer
    die_with_parent(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # above the hard limit, which then holds
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    with contextlib.suppress(OSError):  # not Linux, or without /proc
        # If the machine runs out of memory, this process is killed first, not its worker.
        Path("/proc/self/oom_score_adj").write_text("1000")
    close_inherited()
    confine()  # it reads untrusted pages; if the system cannot confine it, it still has no secrets
    setups: dict[int, tuple[PageOptions, LinkResolver]] = {}
    target.write(wire.frame(wire.Ready()))
    target.flush()
    while (request := _next(source)) is not None:
        if isinstance(request, wire.Prepare):
            setup = request.setup
            setups[request.number] = wire.options_of(setup), LinkResolver(setup.rules)
        else:
            answer(target, request, setups)
            target.flush()


def answer(
    target: BinaryIO,
    request: wire.ReadPage | wire.ReadSitemap,
    setups: dict[int, tuple[PageOptions, LinkResolver]],
) -> None:
    try:
        if isinstance(request, wire.ReadSitemap):
            target.write(wire.frame(_listed(request)))
            return
        options, resolver = setups[request.setup]
        facts = _facts(request.facts)
        page = read_page(request.body, request.content_type, request.url, facts, options, resolver)
        for at in range(0, len(page.links), wire.LINKS_A_FRAME):
            target.write(wire.frame(wire.Links(page.links[at : at + wire.LINKS_A_FRAME])))
        target.write(wire.frame(wire.as_answer(page)))
    except ParseError as error:
        target.write(wire.frame(wire.Failed("unreadable", error.code, _text(error))))
    except MemoryError as error:
        target.write(wire.frame(wire.Failed("memory", PARSE_MEMORY, _text(error))))
    except Exception as error:  # a bug, ours or a library's: reported, and the next page is read
        text = f"{type(error).__name__}: {_text(error)}"
        target.write(wire.frame(wire.Failed("bug", INTERNAL_ERROR, text)))


def _listed(request: wire.ReadSitemap) -> wire.Listed:
    from zcrawl.parse.sitemap import read_sitemap  # most children never read one

    sitemap = read_sitemap(request.body, request.utc)
    return wire.Listed(
        sitemap.entries, sitemap.children, sitemap.error, sitemap.lost, sitemap.repaired
    )


def _facts(facts: wire.Facts | None) -> PageContext | None:
    if facts is None:
        return None
    from zcrawl.parse.extract.page_facts import PageContext  # of jobs that extract

    return PageContext(facts.url, facts.block, facts.values, facts.main)


def _text(error: BaseException) -> str:
    return str(error)[: wire.MOST_TEXT].encode("utf-8", "replace").decode()


def _next(source: BinaryIO) -> wire.PageQuestion | None:
    """None when the worker has closed its end."""
    head = source.read(wire.LENGTH.size)
    if len(head) < wire.LENGTH.size:
        return None
    (length,) = wire.LENGTH.unpack(head)
    request: wire.PageQuestion = wire.decode_question(source.read(length))
    return request


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
