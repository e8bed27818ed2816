"""Who may change a stored job, and how much of a quota is left. Pure.

Called by the stores inside the transaction of a command, and by the desk (`desk.ownership`) where
it knows the job. The owner of a job is who submitted it first; no command changes it.
"""

from __future__ import annotations

from zcrawl.model.people import Quotas


def owner_problem(only_owner: str | None, job: str, owner: str) -> str:
    """Return why a command that is limited to jobs of `only_owner` may not change this one; empty:
    it may. Nobody is the owner of a job that has none."""
    if only_owner is None or (only_owner and only_owner == owner):
        return ""
    whose = f"to {owner}" if owner else "to nobody"
    return (
        f"job {job!r} belongs {whose}, not to {only_owner or 'a user without a name'}; a submitter "
        "may change its own jobs only"
    )


def quota_problem(quotas: Quotas, user: str, live: int, queued: int, runs: int, urls: int) -> str:
    """Return why `runs` more runs with `urls` more URLs are too many beside those that the user
    has; empty: they are not."""
    if runs and quotas.most_live_runs is not None and live + runs > quotas.most_live_runs:
        return (
            f"{user} has {live} live runs, and the quota is {quotas.most_live_runs}; submit again "
            "when one of them has ended, or cancel one"
        )
    if urls and quotas.most_queued is not None and queued + urls > quotas.most_queued:
        return (
            f"{user} has {queued:,} queued URLs, {urls:,} more were sent, and the quota is "
            f"{quotas.most_queued:,}; send them when fewer are queued"
        )
    return ""
