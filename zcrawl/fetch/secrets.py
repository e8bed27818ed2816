"""Secrets of a job: `${NAME}` in its file, their values in the worker's environment.

Called by `keyring`, which knows the hosts that each secret may go to. Pure: the environment comes
in. Only variables that begin with ZCRAWL_SECRET_ are read, so a job cannot send a worker's other
variables anywhere. The job's stored form, its views and the logs have the names only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from zcrawl.errors import JobError
from zcrawl.model.reasons.usage import NO_SECRET

PREFIX: Final = "ZCRAWL_SECRET_"
REFERENCE: Final = re.compile(r"\$\{([A-Za-z0-9_]+)\}")


def names_in(text: str) -> list[str]:
    """The secrets that a text refers to."""
    return REFERENCE.findall(text) if "${" in text else []


def expand(text: str, environ: Mapping[str, str]) -> str:
    """`text` with every `${NAME}` replaced by ZCRAWL_SECRET_NAME; JobError if one is not set."""

    def value(match: re.Match[str]) -> str:
        name = PREFIX + match[1]
        if name not in environ:
            why = ""
            if match[1].startswith("URL_"):
                why = ": it stood in a URL, and is not kept; set it, or crawl anew with the URL"
            raise JobError(f"{name} is not set in the worker's environment{why}", code=NO_SECRET)
        return environ[name]

    return REFERENCE.sub(value, text) if "${" in text else text
