"""Update the allowed keys of a running master when their file changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from zcrawl.errors import ConfigError
from zcrawl.mesh.security import AllowedKey
from zcrawl.mesh.sockets.keys import AllowList
from zcrawl.runtime.loop import TASK_FAILED, in_full

LOOK_AGAIN_S: Final = 0.5  # a removed key is cut off within 2 s


async def follow_allow_list(
    file: AllowList,
    allow: Callable[[Mapping[str, AllowedKey]], None],
    log: Callable[[str, str], None],
    look_again_s: float = LOOK_AGAIN_S,
) -> None:
    """Follow the file until cancelled. `allow` is `ZmqMasterMesh.allow`; the caller reads first.

    A file that is missing or wrong is only logged: an editor that writes it in two steps must not
    lock nodes out.
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
        except Exception as error:  # a bug: logged once, and the file is read again
            if str(error) != complaint:
                complaint = str(error)
                log(TASK_FAILED, f"allow list: {in_full(error)}")
            continue
        if changed is not None:
            complaint = ""
            allow(changed)
            log("allow_list_read", f"{len(changed)} keys")
