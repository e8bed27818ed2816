"""The type of a registered reason, and how the modules of this package register one."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class ReasonKind(enum.Enum):
    """The class of a reason. The value is what commands and docs show."""

    SKIP = "skip"  # a URL, link or item is left out on purpose; nothing failed
    FAILURE = "failure"  # a URL was tried and failed, or failed before it could be tried
    WAITING = "waiting"  # a host or a run makes no requests for the moment
    REFUSAL = "refusal"  # a command, message, file or setting is not accepted


class ParameterForm(enum.Enum):
    """What follows the code of a reason with a parameter."""

    NONE = ""
    STATUS = "_STATUS"  # http_404
    OF = " of URL"  # duplicate of https://example.com/
    NAME = " NAME"  # lacks parser 'x'
    DETAIL = ": DETAIL"  # schema: price


class Reason(NamedTuple):
    """A registered reason. `also`: further classes that the same code occurs in.

    `stays_due` is for jobs that crawl again (`frontier.recrawl`). If it is true, the page was not
    requested, so the next run requests it. Other skips count as a visit of the page. Failed pages
    stay due in any case, or are gone by their status.

    A named tuple, because `dataclasses` would take milliseconds of each start.
    """

    code: str
    kind: ReasonKind
    meaning: str  # what happened and why
    remedy: str  # what to do now
    form: ParameterForm = ParameterForm.NONE
    also: tuple[ReasonKind, ...] = ()
    stays_due: bool = False

    @property
    def pattern(self) -> str:
        """Return the code with its parameter, as people read it: `http_STATUS`."""
        return self.code + self.form.value

    @property
    def kinds(self) -> tuple[ReasonKind, ...]:
        return (self.kind, *self.also)

    def covers(self, text: str) -> bool:
        """Return whether a stored or sent reason is this one, with or without its parameter."""
        if text == self.code:
            return self.form is not ParameterForm.STATUS
        rest = text.removeprefix(self.code)
        if rest == text:
            return False
        match self.form:
            case ParameterForm.NONE:
                return False
            case ParameterForm.STATUS:
                return len(rest) == 4 and rest[0] == "_" and rest[1:].isdecimal()
            case ParameterForm.OF:
                return rest.startswith(" of ")
            case ParameterForm.NAME:
                return rest.startswith(" ")
            case ParameterForm.DETAIL:
                return rest.startswith(": ")


REASONS: Final[dict[str, Reason]] = {}  # by code; complete once `registry` is imported


def _add(
    kind: ReasonKind,
    code: str,
    meaning: str,
    remedy: str,
    form: ParameterForm,
    also: tuple[ReasonKind, ...],
    stays_due: bool = False,
) -> str:
    if code in REASONS:
        raise ValueError(f"the reason {code!r} is registered twice")
    REASONS[code] = Reason(code, kind, meaning, remedy, form, also, stays_due)
    return code


def skip(
    code: str,
    meaning: str,
    remedy: str,
    *,
    form: ParameterForm = ParameterForm.NONE,
    also: tuple[ReasonKind, ...] = (),
    stays_due: bool = False,
) -> str:
    """Register a reason to leave something out; return its code."""
    return _add(ReasonKind.SKIP, code, meaning, remedy, form, also, stays_due)


def failure(
    code: str,
    meaning: str,
    remedy: str,
    *,
    form: ParameterForm = ParameterForm.NONE,
    also: tuple[ReasonKind, ...] = (),
) -> str:
    """Register a reason of a failure; return its code."""
    return _add(ReasonKind.FAILURE, code, meaning, remedy, form, also)


def waiting(
    code: str,
    meaning: str,
    remedy: str,
    *,
    form: ParameterForm = ParameterForm.NONE,
    also: tuple[ReasonKind, ...] = (),
) -> str:
    """Register a reason to wait; return its code."""
    return _add(ReasonKind.WAITING, code, meaning, remedy, form, also)


def refusal(
    code: str,
    meaning: str,
    remedy: str,
    *,
    form: ParameterForm = ParameterForm.NONE,
    also: tuple[ReasonKind, ...] = (),
) -> str:
    """Register a reason to refuse; return its code."""
    return _add(ReasonKind.REFUSAL, code, meaning, remedy, form, also)


def with_detail(code: str, detail: str) -> str:
    """Return a reason with its detail: `schema: price`."""
    return f"{code}: {detail}"


def without_detail(text: str) -> str:
    """Return the code of a reason without its detail."""
    return text.partition(":")[0]
