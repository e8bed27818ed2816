"""The seeds of a submission, read and made canonical. A part of the desk."""

from __future__ import annotations

from typing import Any

from zcrawl.errors import BadUrl, JobError, RefusedError
from zcrawl.frontier.extra import start_seed
from zcrawl.frontier.tasks import check_task_id, is_task_id, task_key
from zcrawl.frontier.url import CanonicalRules, canonicalize, origin_of
from zcrawl.model.reasons.cluster import TOO_MANY_SEEDS
from zcrawl.model.rows import NewLink
from zcrawl.submit.url_logins import refuse_login

# In one request, because the desk reads them in the leader's event loop.
MOST_SEEDS = 1_000
MOST_TEXT = 500_000  # characters of all of them


def read(urls: list[Any], rules: CanonicalRules, *, takes_ids: bool = False) -> tuple[NewLink, ...]:
    """Return the seeds; `takes_ids`: a text that is not a URL is the id of a task."""
    if len(urls) > MOST_SEEDS:
        raise RefusedError(
            f"{len(urls)} seeds in one request; at most {MOST_SEEDS}", code=TOO_MANY_SEEDS
        )
    length = sum(len(url) for url in urls if isinstance(url, str))
    if length > MOST_TEXT:
        raise RefusedError(
            f"{length} characters of seeds in one request; at most {MOST_TEXT}", code=TOO_MANY_SEEDS
        )
    seeds: dict[bytes, NewLink] = {}
    for url in urls:
        if not isinstance(url, str):
            raise JobError(f"a seed must be a string, not {type(url).__name__}")
        if takes_ids and is_task_id(url):
            key = task_key(check_task_id(url))
            seeds[key] = NewLink(url, key, "", 0)
            continue
        try:
            canonical = canonicalize(url, rules)
            refuse_login(url)
        except BadUrl as error:  # which shows the URL, without a password
            raise BadUrl(f"seed: {error}", code=error.code) from None
        key = rules.key(canonical)
        seeds[key] = NewLink(canonical, key, origin_of(canonical), 0)
    return tuple(seeds.values())


def start(rules: CanonicalRules) -> NewLink:
    """The request that makes a worker call the spider's `start`."""
    url, key, extra = start_seed(rules)
    return NewLink(url, key, "", 0, extra=extra)


def netlocs(seeds: tuple[NewLink, ...]) -> tuple[str, ...]:
    return tuple(sorted({seed.origin.partition("://")[2] for seed in seeds if seed.origin}))
