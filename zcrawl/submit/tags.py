"""Tags: words that a job is found, counted and steered by, together with others that have them.

Called by `validate` (which words are tags), by the commands (`--tag` adds to the file's) and by
whoever shows a job. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.spec import UNREADABLE
from zcrawl.text.patterns import lazy_pattern

MOST_TAGS: Final = 16  # of one job
MOST_CHARACTERS: Final = 32  # of one tag
NO_TAG: Final = "(no tag)"  # jobs that have none; no tag can be called so
# Letters that every keyboard and every terminal has, and no beginning that looks like a flag.
_TAG = lazy_pattern(r"[a-z0-9][a-z0-9._-]*")


def check_tags(tags: Sequence[str]) -> None:
    """Raise JobError for what is no list of tags."""
    if len(tags) > MOST_TAGS:
        raise JobError(f"tags has {len(tags)} entries; at most {MOST_TAGS} are allowed")
    for number, tag in enumerate(tags, 1):
        if len(tag) > MOST_CHARACTERS:
            raise JobError(
                f"tags, entry {number} has {len(tag)} characters; at most {MOST_CHARACTERS}"
                " are allowed"
            )
        if not _TAG.fullmatch(tag):
            raise JobError(
                f"tags, entry {number}: {tag!r} is not a tag; use lower-case letters, digits and "
                ". _ -, and begin with a letter or a digit"
            )
        if tag in tags[: number - 1]:
            raise JobError(f"tags has {tag!r} twice; remove one")


def with_added(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` whose tags come after those of the job file instead of replacing them."""
    own, more = table.get("tags", []), changes.get("tags", ())
    result = {key: value for key, value in changes.items() if key != "tags"}
    if more and isinstance(own, list):  # else the file's mistake is told
        # One that is given twice, or that the file has too, is the same wish.
        result["tags"] = [*own, *(tag for tag in dict.fromkeys(more) if tag not in own)]
    return result


class _Tagged(msgspec.Struct):
    """A stored spec, without all that is not asked for here."""

    tags: tuple[str, ...] = ()


def tags_of(spec: bytes) -> tuple[str, ...]:
    """The tags of a stored spec, which may be of a version that had none, or unreadable."""
    try:
        return msgspec.json.decode(spec, type=_Tagged).tags if spec else ()
    except UNREADABLE:
        return ()


def is_tagged(tags: Sequence[str], tag: str) -> bool:
    """Whether a job with these tags is among those that `tag` names; empty names all."""
    return not tag or tag in tags or (tag == NO_TAG and not tags)
