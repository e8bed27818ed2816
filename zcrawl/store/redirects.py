"""Decide how a redirected request ends, so that each page counts once in its run.

Called by the stores inside the transaction that ends a request, so that neither a failover nor a
repeated result changes the decision. Pure. Both the request that was redirected and the page
that answered may be requests of the run. What happens depends on the row of the page that answered,
found by the key of its URL under the run's rules:

    its row                         the redirected request       its row afterwards
    none                            done                         inserted: redirect_target
    queued: waiting, leased, late   skipped: duplicate of it     as it was; it gives the items
    done                            skipped: duplicate of it     as it was
    skipped: redirect_target        skipped: duplicate of it     as it was; the items are there
    skipped: not_due                skipped: duplicate of it     as it was; an earlier run has them
    skipped otherwise, or dead      done                         redirect_target

The links of a duplicate are still admitted. A row with the reason `redirect_target` is skipped, so
later links and redirects to it count as seen. A dead row becomes `redirect_target` too; otherwise a
retry would store its items a second time. If a queued row fails in the end, its page has no items:
it ends dead with its own reason.

A run that has not yet admitted all pages known to its job may have no row for such a page. Then the
redirect gives the page, and the run later finds it seen. (Waiting for the known page could lose it,
because it may have become known after the last read.) A job that remembers its pages remembers the
target as if it had been requested directly, so its next run requests it.
"""

from __future__ import annotations

import msgspec

from zcrawl.model.reasons.skip import (
    DUPLICATE,
    NOT_DUE,
    REDIRECT_TARGET,
    duplicate_of,
    is_duplicate,
)
from zcrawl.model.states import Kept, RequestState
from zcrawl.store.commands import Change


def is_taken(state: RequestState, reason: str) -> bool:
    """Return whether a row of this state will give, or has given, the items of its page."""
    if state is RequestState.SKIPPED:
        return reason in (REDIRECT_TARGET, NOT_DUE)
    return state is not RequestState.DEAD


def as_duplicate(change: Change, url: str) -> Change:
    """Return the change of a request whose page is that of `url`: only its links, and its captured
    exchanges for archives, are stored."""
    return msgspec.structs.replace(
        change,
        state=RequestState.SKIPPED,
        reason=duplicate_of(url),
        page=None,
        items=(),
        others=tuple(other for other in change.others if other[0] is Kept.CAPTURE),
        tallies=(),
        traits=None,
    )


def reason_name(reason: str) -> str:
    """Return the name under which a reason is counted: without the URL."""
    return DUPLICATE if is_duplicate(reason) else reason
