"""The bodies of requests and answers. OpenAPI and `zcrawl.client` come from them. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Health(msgspec.Struct, frozen=True):
    """Whether this process runs."""

    status: Annotated[str, Meta(examples=["ok"])]
    version: Annotated[str, Meta(examples=["0.1.0"])]
