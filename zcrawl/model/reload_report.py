"""The outcome of a reload of one process's configuration, as the mesh carries it to people.

A report with an `error` says that nothing was applied. Without one, `changed` has a line for each
value that is in force now, and `waiting` a line for each value that needs a restart.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

LINE_MOST = 500  # characters
LINES_MOST = 200

ReportLine: TypeAlias = Annotated[str, Meta(max_length=LINE_MOST)]
ReportLines: TypeAlias = Annotated[list[ReportLine], Meta(max_length=LINES_MOST)]


class ReloadReport(msgspec.Struct, frozen=True, array_like=True):
    changed: ReportLines = []  # key: old → new
    waiting: ReportLines = []  # what needs a restart, and why
    error: ReportLine = ""  # why the old configuration stays

    @property
    def is_empty(self) -> bool:
        """Whether the new configuration is the old one."""
        return not (self.changed or self.waiting or self.error)


def refused(why: str) -> ReloadReport:
    """Return the report of a configuration that was not applied."""
    return ReloadReport(error=cut(why))


def cut(text: str) -> str:
    """Return a line that a message can carry."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LINE_MOST else f"{text[: LINE_MOST - 1]}…"
