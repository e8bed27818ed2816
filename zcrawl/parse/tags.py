"""The statistics of a page's tags that show whether lexbor may take very long.

Used by `parse.cost`. Pure. The function `survey` computes them in one pass over the page. It exists
twice: in Python, for readers (`tags_in_python` has the rules and their reasons), and in C
(`_tags.c`), which takes a seventh of the time of lexbor for the same page. The C version is
compiled when zcrawl is installed; without a compiler the Python version is used. Both give the same
result for every page (tests/property/test_tags.py).
"""

from __future__ import annotations

from typing import NamedTuple


class Survey(NamedTuple):
    """The statistics of a page's tags."""

    tags: int  # every `<` counts
    quoted_bracket: bool  # a `>` may be part of a quoted value: the survey stopped there
    squares: int  # sum of the squared numbers of attributes of long tags
    longest_link: int  # the most attributes of a link that may be open when a block begins
    closed: int  # elements that are certainly closed
    open_tags: list[bytes]  # formatting elements that may be open then; and <html> and <body>
    references: bool  # there may be an <area>, <base>, <frame> or <iframe>


def count_attributes(tag: bytes) -> int:
    """Return how many attributes a tag has at most."""
    return len(tag.split()) + tag.count(b"/") + tag.count(b"=")
