"""How the store and messages mark a request as a sitemap, with its depth in other sitemaps.

In the store and in messages a sitemap is a request with a priority of its own, so that it is read
first, and its block is the number of indexes that led to it. Only this module knows
the form; `rows` and `mesh.messages` have properties for it, which all others use.
"""

SITEMAP_PRIO = -1_000_000  # before every priority that a job, spider or worker can set


def has_sitemap_prio(prio: int) -> bool:
    """Return whether a request of this priority is a sitemap."""
    return prio == SITEMAP_PRIO


def nesting_block(nesting: int) -> str:
    """Return the block of a sitemap that was reached through this many indexes."""
    return str(nesting) if nesting else ""


def block_nesting(block: str) -> int:
    """Return how many indexes led to the sitemap that has this block."""
    return int(block) if block.isdecimal() else 0
