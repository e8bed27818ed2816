"""Which links and seeds belong to this node, and which ones another node owns. Pure.

The leader of an embedded cluster asks `skips` before it admits links. It is built by
`roles.standalone_node`, which also changes the list while the leader runs (`change`); `revision`
tells the leader that rows may have another owner now (`master.rehoming`).

The resource of a URL is its host, without the scheme and the scheme's own port, so that http and
https of a site have one owner. With `by_url`, it is the canonical URL. The resource of a task
without a host is its id. A job with a list `resources` is shared by the ids of that list, and what
the list does not name belongs to the node that has it (`standalone.listed`). The request that calls
a spider's `start`, and the one task of a job without seeds, belong to every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from zcrawl.errors import BadUrl
from zcrawl.frontier.extra import is_start
from zcrawl.frontier.url import canonicalize
from zcrawl.model.reasons.skip import owned_by
from zcrawl.model.rows import NewLink
from zcrawl.model.snapshot import NodeListView
from zcrawl.ownership import Assigner


class Shares:
    """The share of one node. `change` may be called by another thread than the others."""

    def __init__(self, assigner: Assigner, *, by_url: bool = False) -> None:
        self.assigner = assigner
        self.by_url = by_url
        self.revision = 0
        self.sure_until = float("inf")  # after this, another may have this share: begin nothing
        self.view: NodeListView | None = None  # the node's list, for displays (`NodeWatch.view`)

    def change(self, nodes: Iterable[str], alive: Iterable[str] | None = None) -> None:
        """Set another list of nodes, or of those that live. Raise ConfigError for a bad one."""
        self.assigner.update(nodes, None if alive is None else frozenset(alive))
        self.revision += 1

    @property
    def division(self) -> Division:
        """Return the shares as they are now, as data."""
        return Division(self.assigner.node_id, self.assigner.live_nodes, self.by_url)

    def owner(self, url: str, listed: Mapping[str, str] | None = None) -> str:
        """Return the owner of a row's URL, or of a task's id; empty: every node does it. `listed`:
        the ids of a job with a list of its own (`standalone.listed`)."""
        if not url or is_start(url):
            return ""
        if listed is not None:
            return self.assigner.owner(listed[url]) if url in listed else ""
        return self.assigner.owner(self.resource(url))

    def resource(self, url: str) -> str:
        """Return the resource of a canonical URL, or of a task's id."""
        if not url.startswith(("http://", "https://")) or self.by_url:
            return url
        return host_resource(url)

    def skip(self, url: str, listed: Mapping[str, str] | None = None) -> str:
        """Return the reason to skip the row of a URL; empty: it is this node's."""
        owner = self.owner(url, listed)
        return "" if owner in ("", self.assigner.node_id) else owned_by(owner)

    def mark(
        self, links: Iterable[NewLink], listed: Mapping[str, str] | None = None
    ) -> tuple[NewLink, ...]:
        """Return links with the reason to skip those that another node owns."""
        return tuple(
            msgspec.structs.replace(link, skip=reason)
            if not link.skip and (reason := self.skip(link.url, listed))
            else link
            for link in links
        )


def host_resource(canonical_url: str) -> str:
    """Return host and port of a URL, without the port that its scheme has anyway."""
    begin = canonical_url.find("//") + 2
    return canonical_url[begin : canonical_url.find("/", begin)]


def typed_resource(text: str, *, by_url: bool = False) -> str:
    """Return the resource that a person typed: a URL, a host, or any id. Raise BadUrl."""
    if not text.strip():
        raise BadUrl("the resource is empty; write a host, a URL or an id")
    if not text.lower().startswith(("http://", "https://")):
        return text
    url = canonicalize(text)
    return url if by_url else host_resource(url)


class Division(msgspec.Struct, frozen=True):
    """The shares at one moment, as data: for a transaction that gives rows to their owners."""

    me: str
    nodes: tuple[str, ...]  # those that live
    by_url: bool = False

    def shares(self) -> Shares:
        """Return the same shares as an object that decides. `me` need not be one of the nodes."""
        assigner = Assigner(self.me, {*self.nodes, self.me})
        assigner.update(self.nodes)
        return Shares(assigner, by_url=self.by_url)
