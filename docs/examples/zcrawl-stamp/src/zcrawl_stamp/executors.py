"""A job that is no crawl: `kind = "count"` counts the files of a folder on a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zcrawl.plugins import Skip, Task


class Count:
    def __init__(self, folder: str, pattern: str = "*") -> None:
        self._folder, self._pattern = Path(folder), pattern

    def execute(self, task: Task) -> dict[str, Any]:
        """Plain, so it runs in a thread: a slow disk does not hold up the worker."""
        if not self._folder.is_dir():
            raise Skip("no_folder")
        found = sum(1 for _ in self._folder.rglob(self._pattern))
        return {"job": task.job["name"], "about": task.url, "files": found}
