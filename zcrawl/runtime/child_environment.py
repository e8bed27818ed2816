"""The environment of child processes that run foreign code or read foreign data. Pure.

Used for spiders (`worker.extensions.spiders`), the reader of main content
(`parse.children.content`) and, with its own additions, Chromium (`fetch.browser.sandbox`). An
allow-list: passwords of the cluster (ZCRAWL_*), keys of S3 (AWS_*), tokens of whatever else runs on
the machine are in none of them. A spider gets no secret by its environment; a job sends secrets by
`${NAME}` in its headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zcrawl.text.patterns import lazy_pattern

# Where programs, libraries, certificates and temporary files are, and in what language to speak.
_KEPT: Final = lazy_pattern(
    r"PATH|HOME|TMPDIR|LANG|LANGUAGE|LC_[A-Z_]+|TZ|TZDIR|LD_LIBRARY_PATH"
    r"|PYTHONPATH|PYTHONHOME|PYTHONUTF8|PYTHONIOENCODING|PYTHONDONTWRITEBYTECODE|PYTHONPYCACHEPREFIX"
    r"|VIRTUAL_ENV|SSL_CERT_FILE|SSL_CERT_DIR|SYSTEMROOT"
)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that children may have: paths and language, but no secrets."""
    return {name: value for name, value in environ.items() if is_kept(name)}


def is_kept(name: str) -> bool:
    """Return whether children get this variable."""
    return _KEPT.fullmatch(name) is not None
