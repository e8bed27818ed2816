"""How a request says that it is a sitemap, and how deep in other sitemaps it was listed.

In the store and in messages a sitemap is a request with a priority of its own, so that it is read
first, and its label is the number of indexes that led to it. Only here this form is known: `rows`
and `mesh.messages` have properties for it, and all others ask those.
"""

SITEMAP_PRIO = -1_000_000  # below all that a job, a spider or a worker can ask for


def has_sitemap_prio(prio: int) -> bool:
    """Return whether a request of this priority is a sitemap."""
    return prio == SITEMAP_PRIO


def nesting_label(nesting: int) -> str:
    """Return the label of a sitemap that so many indexes led to."""
    return str(nesting) if nesting else ""


def label_nesting(label: str) -> int:
    """Return how many indexes led to the sitemap that has this label."""
    return int(label) if label.isdecimal() else 0
