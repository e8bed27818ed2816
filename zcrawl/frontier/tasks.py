"""Seeds of jobs that are not crawls: a URL, or the id of a task.

A task is a request of the frontier like a page. If its seed is a URL, it has that URL's host, and
is given to workers at that host's pace. Any other text is an id: such a task has no host, no owner
and no pace (`dispatch.task_planner`). The request that calls a spider's `start` has no host either.

Called by `submit.seeds` and by the desk. Pure.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from zcrawl.errors import BadUrl
from zcrawl.frontier.url import KEY_BYTES, quoted
from zcrawl.text.patterns import lazy_pattern

MOST_ID: Final = 2_000  # characters
_SHOWN: Final = 80  # characters of a bad id that a message repeats
_URL: Final = ("http://", "https://")
_UNPRINTABLE: Final = lazy_pattern("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_UTF8: Final = lazy_pattern("[\ud800-\udfff]")  # a byte of a file that is not UTF-8, or half
_MARK: Final = b"task\0"  # no URL begins like this, so no id has the key of a URL


def is_task_id(seed: str) -> bool:
    """Return whether the seed of a task is an id, and not a URL with a host and a pace."""
    return not seed.lstrip().lower().startswith(_URL)


def check_task_id(text: str) -> str:
    """Return `text` if it can be the id of a task; else raise BadUrl with the reason."""
    shown = quoted(text, _SHOWN)
    if not text.strip():
        raise BadUrl("not a valid task: its id is empty")
    if len(text) > MOST_ID:
        raise BadUrl(
            f"not a valid task: the id {shown} has {len(text)} characters; at most {MOST_ID}"
        )
    if _NOT_UTF8.search(text):
        raise BadUrl(
            f"not a valid task: the id {shown} has a byte that is not UTF-8; save the file with "
            "the encoding UTF-8"
        )
    if _UNPRINTABLE.search(text):
        raise BadUrl(f"not a valid task: the id {shown} has control characters; remove them")
    return text


def task_key(text: str) -> bytes:
    """Return the identity of a task within its run."""
    return blake2b(_MARK + text.encode(), digest_size=KEY_BYTES).digest()
