"""Requirements of a job besides zcrawl itself: optional packages and a browser.

Called by workers for each run (`engines`), by `preflight` for jobs that run on this machine, and by
`submit`, which asks after such jobs whether a live worker can do them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Final

from zcrawl.model.spec import CRAWL, ENGINES, HTTP, JobSpec
from zcrawl.submit import extraction

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
# extra → (a module of it, the part of a job that needs it)
PACKAGES: Final = {
    "browser": ("playwright", "fetch.engine = 'browser'"),
    "http2": ("h2", "fetch.http2"),
    "content": ("trafilatura", "a field with main = true"),
}


def extras_of(spec: JobSpec) -> Iterator[str]:
    """Yield the extras of zcrawl that a worker needs for this job."""
    if spec.fetch.engine == "browser":
        yield "browser"
    if spec.fetch.http2:
        yield "http2"
    if any(field.main for block in spec.extract for _, field in extraction.walk(block.fields, "")):
        yield "content"


def needs_more(spec: JobSpec) -> bool:
    """Return whether a worker may lack something for this job. Most jobs need only zcrawl."""
    code = spec.spider and spec.code is None  # a package that is installed on the workers
    plugin = spec.fetch.engine not in ENGINES or spec.kind not in (CRAWL, HTTP)
    return bool(code or plugin or spec.middlewares or spec.parsers or any(extras_of(spec)))


def missing_here(spec: JobSpec) -> str:
    """Return what this machine lacks for the job, and how to install it; empty: nothing."""
    for extra in extras_of(spec):
        module, _ = PACKAGES[extra]
        if importlib.util.find_spec(module) is None:
            return f"the package {module} (pip install 'zcrawl[{extra}]')"
    if spec.fetch.engine == "browser" and not has_browser():
        return "Chromium (Debian's package is chromium)"
    return ""


def has_browser() -> bool:
    import shutil  # few jobs need a browser

    return any(map(shutil.which, BROWSERS))
