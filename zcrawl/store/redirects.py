"""Decides what becomes of a page that a redirect has led to: a page counts once in its run.

Called by the stores inside the transaction that ends a request, so that neither a failover nor a
result that comes twice changes a verdict. Pure. Both the request that was redirected and the page
that answered may be requests of the run. What happens depends on the row of the page that answered,
found by the key of its URL under the run's rules:

    its row                         the redirected request       its row afterwards
    none                            done                         inserted: redirect_target
    queued: waiting, leased, late   skipped: duplicate of it     as it was; it gives the items
    done                            skipped: duplicate of it     as it was
    skipped: redirect_target        skipped: duplicate of it     as it was; the items are there
    skipped: not_due                skipped: duplicate of it     as it was; an earlier run has them
    skipped otherwise, or dead      done                         redirect_target

The links of a duplicate are admitted all the same. A row of reason `redirect_target` is skipped:
whoever finds a link to it, or redirects to it, finds it seen. A dead row becomes that, too: it
could be retried, and its items are there already. If a queued row fails in the end, its page has no
items: it ends dead with its own reason.

A run that still has to admit what its job knows has no row of such a page yet: the redirect gives
the page, and the run finds it seen later. (To wait for that page instead could lose it: it may have
become known after the last look.) A job that remembers its pages knows the page that answered as
if it had been asked for by itself, so its next run asks for it.
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
    """Whether a row of this state gives, or has given, the items of its page."""
    if state is RequestState.SKIPPED:
        return reason in (REDIRECT_TARGET, NOT_DUE)
    return state is not RequestState.DEAD


def as_duplicate(change: Change, url: str) -> Change:
    """The change of a request whose page is that of `url`: nothing of it is kept but its links,
    and its exchanges for archives."""
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
    """What a reason is counted as: without the URL that explains it."""
    return DUPLICATE if is_duplicate(reason) else reason
