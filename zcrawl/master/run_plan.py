"""Plan a run that a schedule starts: its spec with parameters, its seeds, or why it cannot start.

Called by `firing`. Pure. A stored job may have been accepted by a master with other rights, and
parameters may have been handed on by another job: so a run is checked like a new submission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from zcrawl.errors import ZcrawlError
from zcrawl.frontier.scope import canonical_rules
from zcrawl.frontier.url import CANONICAL_VERSION
from zcrawl.master.desk import seeds as seed_lists
from zcrawl.master.leader_state import LeaderState
from zcrawl.model.reasons.failure import NOT_STARTED
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.rows import NewLink
from zcrawl.submit.code import begins_by_itself
from zcrawl.submit.params import filled
from zcrawl.submit.private import with_right
from zcrawl.submit.read import to_json
from zcrawl.submit.shell_rights import with_shell_right
from zcrawl.submit.stored import check_right
from zcrawl.submit.validate import check

MOST_REASON: Final = 250  # characters; the column of a run's reason has 255


class RunPlan(msgspec.Struct, frozen=True):
    spec: bytes  # of the run
    seeds: tuple[NewLink, ...] = ()
    seed_hosts: tuple[str, ...] = ()
    canonical: int = CANONICAL_VERSION
    failure: str = ""  # why the run cannot start


def planned_run(
    state: LeaderState, stored: bytes, values: Mapping[str, str], given: Sequence[str] = ()
) -> RunPlan:
    """Return what a run of this job with these parameters begins with. `given`: seeds that replace
    those of the job."""
    try:
        spec = check_right(stored, state.allow_code, state.shell)
        if spec.params:
            spec = filled(spec, values)
            check(spec)
            with_shell_right(spec, state.shell)
        spec = with_right(spec, (), state.allow_private)
        state.outputs.settle(spec, None)
        rules = canonical_rules(spec.scope, CANONICAL_VERSION)
        seeds = seed_lists.read(list(given or spec.own_seeds), rules, takes_ids=spec.takes_ids)
        hosts = seed_lists.netlocs(seeds)
        seeds += tuple(
            link.as_sitemap() for link in seed_lists.read(list(spec.sitemaps.urls), rules)
        )
    except ZcrawlError as error:
        return RunPlan(stored, failure=_refusal(str(error)))
    fed = bool(spec.seeds_from.job)
    if spec.spider or (begins_by_itself(spec, seeds) and not fed):
        seeds += (seed_lists.start(rules),)
    if not seeds and not fed:
        return RunPlan(stored, failure=_refusal("the job has no seeds of its own"))
    return RunPlan(to_json(spec), seeds, hosts, rules.version)


def _refusal(text: str) -> str:
    return with_detail(NOT_STARTED, text)[:MOST_REASON]
