"""Decide which files and objects the outputs of a job may use.

Called by the leader for each submission (`settle`), and by writers before they open anything
(`locate`), because a stored run may have been submitted to a master with other rights. Pure;
symbolic links are checked where the file is opened (`outputs.files.folder`). The rule:

- A master of a cluster writes inside the `outputs` folder of its data folder, and below the
  prefixes that its configuration names (`outputs.allow`). Anything else is refused
  (`path_not_allowed`): otherwise anyone who can submit a job could overwrite any file of the
  leader, with its credentials any object.
- The user who runs `crawl` or `up` owns the machine's files anyway: what they type (`--out`) may be
  any path. A path in the job file stays inside the data folder, or below `outputs.allow`; S3 is
  open to both.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.model.formats import format_of
from zcrawl.model.reasons.cluster import BAD_REQUEST
from zcrawl.model.reasons.usage import PATH_NOT_ALLOWED
from zcrawl.model.spec import JobSpec
from zcrawl.submit.code import PLUGIN_NAME
from zcrawl.submit.outputs import PLUGIN, is_remote, targets
from zcrawl.submit.prefixes import OutputName, place_of, prefix_above, prefix_of
from zcrawl.submit.read import file_stem

OUTPUTS: Final = ""  # the prefix that stands for the outputs folder itself


class Located(msgspec.Struct, frozen=True):
    """The place of an output: the folder that it must not leave, and the path below it."""

    folder: str  # a prefix of the configuration; OUTPUTS: the outputs folder
    parts: tuple[str, ...]  # folders and the file's name


class OutputRights:
    """The rights of jobs to write outputs.

    `allow` has the prefixes of the configuration; `owner`: the machine's own user submits.
    """

    def __init__(self, allow: tuple[str, ...] = (), *, owner: bool = False) -> None:
        self.owner = owner
        self.allow(allow)

    @classmethod
    def _of_others(cls, prefixes: tuple[OutputName, ...]) -> OutputRights:
        rights = cls()
        rights._prefixes = prefixes
        return rights

    def allow(self, prefixes: tuple[str, ...]) -> None:
        """Use these prefixes from now on, also for files that are opened later."""
        self._prefixes = tuple(prefix_of(text) for text in prefixes)

    def settle(self, spec: JobSpec, given: Any, *, by_owner: bool = True) -> tuple[str, str] | None:
        """Check the outputs of a job and the one that the request names; return the latter.

        `by_owner`: no gateway submits for somebody else. RefusedError: a path that is not allowed,
        or not a pair (path, format).
        """
        if self.owner and not by_owner:
            OutputRights._of_others(self._prefixes).settle(spec, given)
        for path, form in targets(spec.output, file_stem(spec.name)):
            if form != PLUGIN:
                self._check(path, typed=False)
        if spec.retention.archive:
            self.check_archive(spec.retention.archive)
        if not given:
            return None
        path, form = _pair(given)
        if form != PLUGIN:
            self._check(path, typed=True)
        return path, form

    def locate(self, path: str) -> Located | None:
        """Return the place of a local path; None: anywhere, for the machine's own user."""
        if self.owner:
            return None
        place, prefix = self._judge(path)
        if prefix is None:
            return Located(OUTPUTS, place.parts)
        return Located(str(prefix), place.parts[len(prefix.parts) :])

    def check_remote(self, url: str) -> None:
        """Raise RefusedError if this URL may not be written."""
        if not self.owner:
            self._judge(url)

    def check_archive(self, archive: str) -> None:
        """Raise RefusedError if a job may not have its old runs archived there."""
        if not (self.owner and is_remote(archive)):
            # The folder itself may be a prefix of the configuration: files are below it.
            self._judge(f"{archive.rstrip('/')}/run", f"archive {archive[:200]!r}")

    def _check(self, path: str, *, typed: bool) -> None:
        if not (self.owner and (typed or is_remote(path))):
            self._judge(path)

    def _judge(self, path: str, shown: str = "") -> tuple[OutputName, OutputName | None]:
        """Return the place and the prefix above it; None: inside the outputs folder. `shown` is
        what messages name."""
        shown = shown or f"output {path[:200]!r}"
        try:
            place = place_of(path)
        except ValueError as error:
            raise self._refused(shown, str(error)) from None
        if not place.parts:
            raise self._refused(shown, "it names no file")
        prefix = prefix_above(place, self._prefixes)
        if place.root and prefix is None:
            whose = "the" if self.owner else "the masters'"
            raise self._refused(
                shown, f"no prefix in outputs.allow of {whose} configuration has it"
            )
        return place, prefix

    def _refused(self, shown: str, why: str) -> RefusedError:
        if shown.startswith("archive"):
            advice = (
                "Write a folder without a leading /, or let the place be added to outputs.allow"
            )
        elif self.owner:
            advice = (
                "Write a path without a leading /, for a file in the data folder, or name this "
                "file with --out instead of in the job"
            )
        else:
            advice = (
                "Give a path relative to the outputs folder of the masters, or write a file on "
                "your own machine with `zcrawl export`"
            )
        return RefusedError(f"{shown} is not allowed here: {why}. {advice}", code=PATH_NOT_ALLOWED)


def _pair(given: Any) -> tuple[str, str]:
    """Return (path, format), where the ending of the path fits the format."""
    match given:
        case [str() as path, str() as form]:
            plugin = path.removeprefix(f"{PLUGIN}:") if form == PLUGIN else ""
            if format_of(path) == form or (plugin != path and PLUGIN_NAME.fullmatch(plugin)):
                return path, form
            if not path:
                raise RefusedError("output: the path is empty", code=PATH_NOT_ALLOWED)
    raise RefusedError(
        "output: not a path and the format that its ending asks for", code=BAD_REQUEST
    )
