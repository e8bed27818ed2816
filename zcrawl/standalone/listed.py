"""Which resource of a job's own list a row belongs to. Pure.

A job with `resources = [...]` is shared by these ids, and not by hosts: the rows of its seeds
belong to the id that the seed was filled with. All other rows, such as links on their pages, belong
to no id of the list: the node that found them keeps them. Called by the leader for new rows
(`LeaderState.own`) and by the stores for a changed list of nodes (`Rehome`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from zcrawl.errors import BadUrl
from zcrawl.frontier.scope import canonical_rules
from zcrawl.frontier.tasks import is_task_id
from zcrawl.frontier.url import canonicalize
from zcrawl.model.spec import CRAWL, UNREADABLE, HttpTask, Scope, for_resources


class _Lists(msgspec.Struct, frozen=True):
    """The part of a stored spec that is needed here."""

    kind: str = CRAWL
    seeds: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    http: HttpTask = HttpTask()
    scope: Scope = Scope()


@functools.lru_cache(maxsize=64)
def listed_resources(spec: bytes, canonical: int) -> Mapping[str, str] | None:
    """Return the id of each URL (or task) that the list of a run's spec names; None: no such list.

    Cached: read in each commit. A spec that cannot be read has no list; its run is ended."""
    try:
        lists = msgspec.json.decode(spec, type=_Lists)
    except UNREADABLE:
        return None
    if not lists.resources:
        return None
    rules = canonical_rules(lists.scope, canonical)
    seeds = lists.seeds or ((lists.http.url,) if lists.http.url else ())
    ids: dict[str, str] = {}
    for resource, seed in for_resources(seeds, lists.resources):
        try:
            url = seed if is_task_id(seed) else canonicalize(seed, rules)
        except BadUrl:  # refused as a seed, too: no row has it
            continue
        ids.setdefault(url, resource)  # two ids with one URL: the first, on every node
    return ids
