"""Where the list of standalone nodes comes from: the environment, the configuration, or a file.

The first that is set is used: ZCRAWL_NODES, `standalone.nodes`, `standalone.nodes_file`,
`standalone.consul` (`roles.consul_nodes`). Reads files; what a list means is decided in
`zcrawl.standalone`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zcrawl.config import Config
from zcrawl.errors import ConfigError
from zcrawl.model.reasons.usage import (
    BAD_NODE_LIST,
    EMPTY_NODE_LIST,
    NODE_ID_UNSET,
    NODE_NOT_LISTED,
)
from zcrawl.standalone.node_list import NodeList, of_entries, parse_nodes

NODE_ID: Final = "ZCRAWL_NODE_ID"
NODES: Final = "ZCRAWL_NODES"
ALONE: Final = "node"  # the id of a node that has no list
MOST_BYTES: Final = 1_000_000


class NodeListSource:
    """The list as it is now. `poll` returns it again when its file has changed."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self._entries = config.standalone.nodes
        self._path = Path(name) if (name := config.standalone.nodes_file) else None
        self._text = environ.get(NODES)
        self._mark: tuple[int, int, int, int] | None = None
        self.is_consul = config.standalone.consul and not self.is_set
        if self._entries and self._path is not None:
            raise ConfigError("standalone.nodes and standalone.nodes_file are set; keep one")

    @property
    def is_set(self) -> bool:
        """Return whether a list is written anywhere."""
        return self._text is not None or bool(self._entries) or self._path is not None

    def read(self) -> NodeList:
        """Read the list; raise ConfigError if it cannot be meant."""
        if self._text is not None:
            return parse_nodes(self._text, NODES)
        if self._path is None:
            return of_entries(self._entries, "standalone.nodes")
        self._mark = _mark(self._path)
        return read_node_file(self._path)

    def poll(self) -> NodeList | None:
        """Return the list if its file has changed; raise ConfigError if it cannot be meant."""
        if self._text is not None or self._path is None or _mark(self._path) == self._mark:
            return None
        return self.read()


def read_node_file(path: Path) -> NodeList:
    """Read a list; raise ConfigError if it cannot be meant."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        text = raw.decode()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", code=BAD_NODE_LIST) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text", code=BAD_NODE_LIST) from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{path}: more than {MOST_BYTES} bytes", code=BAD_NODE_LIST)
    return parse_nodes(text, str(path))


def _mark(path: Path) -> tuple[int, int, int, int] | None:
    """Return what changes with the file, also if a link to it or to its folder is replaced."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def node_id(config: Config, environ: Mapping[str, str]) -> str:
    """Return the id of this node; empty: none is set."""
    return environ.get(NODE_ID, "") or config.standalone.id


def read_at_start(
    config: Config, environ: Mapping[str, str]
) -> tuple[str, NodeList, NodeListSource]:
    """Return id and list of this node. Raise ConfigError with the name of what is wrong.

    With neither an id nor a list, this node is alone. With Consul, the list follows later.
    """
    source, id = NodeListSource(config, environ), node_id(config, environ)
    if source.is_consul:
        return _named(id), of_entries((id,), "the id of this node"), source
    if not source.is_set:
        if id:
            raise ConfigError(
                f"this node has the id {id!r}, and there is no list of nodes; set {NODES}, "
                "standalone.nodes, standalone.nodes_file or standalone.consul, or remove the id",
                code=EMPTY_NODE_LIST,
            )
        return ALONE, NodeList((ALONE,)), source
    nodes = source.read()
    if _named(id) not in nodes.ids:
        listed = ", ".join(nodes.ids[:10]) + (", …" if len(nodes.ids) > 10 else "")
        raise ConfigError(
            f"the list of nodes does not have this node, {id!r}; it has {listed}",
            code=NODE_NOT_LISTED,
        )
    return id, nodes, source


def _named(id: str) -> str:
    if not id:
        raise ConfigError(
            f"there is a list of nodes, and this node has no id; set {NODE_ID}",
            code=NODE_ID_UNSET,
        )
    return id
