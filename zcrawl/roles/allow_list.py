"""Keeps a running master's list of allowed keys as its file says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from zcrawl.errors import ConfigError
from zcrawl.mesh.security import AllowedKey
from zcrawl.mesh.sockets.keys import AllowList
from zcrawl.runtime.loop import TASK_FAILED, in_full

LOOK_AGAIN_S: Final = 2.0


async def follow_allow_list(
    file: AllowList,
    allow: Callable[[Mapping[str, AllowedKey]], None],
    log: Callable[[str, str], None],
    look_again_s: float = LOOK_AGAIN_S,
) -> None:
    """Until cancelled. `allow` is `ZmqMasterMesh.allow`; the first reading is the caller's.

    A file that is gone or wrong changes nothing but the log: an editor that writes it in two steps
    must lock nobody out.
    """
    complaint = ""
    while True:
        await asyncio.sleep(look_again_s)
        try:
            changed = await asyncio.to_thread(file.poll)
        except ConfigError as error:
            if str(error) != complaint:
                complaint = str(error)
                log(error.code, complaint)
            continue
        except Exception as error:  # a bug: told once, and the file is looked at again
            if str(error) != complaint:
                complaint = str(error)
                log(TASK_FAILED, f"allow list: {in_full(error)}")
            continue
        if changed is not None:
            complaint = ""
            allow(changed)
            log("allow_list_read", f"{len(changed)} keys")
