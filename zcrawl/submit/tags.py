"""Tags: words that group jobs, to list, count and change them together.

Called by `validate` (which words are tags), by the commands (`--tag` adds to the tags of the file)
and by views of jobs. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.spec import UNREADABLE
from zcrawl.text.patterns import lazy_pattern

MOST_TAGS: Final = 16  # of one job
MOST_CHARACTERS: Final = 32  # of one tag
NO_TAG: Final = "(no tag)"  # the group of jobs without tags; it is not a valid tag itself
# ASCII characters, so that all keyboards have them; a tag must not begin like a flag.
_TAG = lazy_pattern(r"[a-z0-9][a-z0-9._-]*")


def check_tags(tags: Sequence[str]) -> None:
    """Raise JobError if this is not a valid list of tags."""
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
    """Return `changes` with its tags added to those of the job file instead of replacing them."""
    own, more = table.get("tags", []), changes.get("tags", ())
    result = {key: value for key, value in changes.items() if key != "tags"}
    if more and isinstance(own, list):  # otherwise the check of the file reports the mistake
        # A tag that is given twice, or that the file has too, is added once.
        result["tags"] = [*own, *(tag for tag in dict.fromkeys(more) if tag not in own)]
    return result


class _Tagged(msgspec.Struct):
    """The tags in a stored spec; all other keys are ignored."""

    tags: tuple[str, ...] = ()


def tags_of(spec: bytes) -> tuple[str, ...]:
    """Return the tags of a stored spec; empty if it is unreadable or of a version without tags."""
    try:
        return msgspec.json.decode(spec, type=_Tagged).tags if spec else ()
    except UNREADABLE:
        return ()


def is_tagged(tags: Sequence[str], tag: str) -> bool:
    """Return whether `tag` is among these tags; an empty `tag` fits all jobs."""
    return not tag or tag in tags or (tag == NO_TAG and not tags)
