"""The target of a console: the master of a data folder, or a cluster's masters. Wiring only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from zcrawl.config import Config
from zcrawl.mesh.ports import Endpoints

if TYPE_CHECKING:
    from zcrawl.mesh.security import MeshKeys


class WatchTarget(msgspec.Struct, frozen=True):
    name: str  # for people
    find: Callable[[], Awaitable[list[Endpoints]]]  # called again whenever the leader is silent
    nobody: str  # the message if it finds none
    keys: MeshKeys | None = None
    flags: str = ""  # the flags that select this cluster on a command line


def in_folder(data: Path, flags: str = "") -> WatchTarget:
    async def find() -> list[Endpoints]:
        from zcrawl.roles.client import is_live
        from zcrawl.roles.place import read_mesh_file

        mesh_file = read_mesh_file(data) if is_live(data) else None
        return [mesh_file.endpoints] if mesh_file is not None else []

    nobody = f"no cluster runs in {data}; `zcrawl up --data {data}` starts one"
    return WatchTarget(data.name, find, nobody, flags=flags)


def of_cluster(config: Config, flags: str = "") -> WatchTarget:
    from zcrawl.roles.cluster import client_keys, find_masters

    async def find() -> list[Endpoints]:
        return await find_masters(config)

    name = config.cluster.name
    return WatchTarget(name, find, f"no master of {name} is known", client_keys(config), flags)
