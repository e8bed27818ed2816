"""Check whether this version and this master may run a stored job.

Called by the leader for each run that it loads and whenever a run begins again. Pure. A stored job
may have been accepted by a master with another version or configuration, so it is checked like a
new one. A refused job does not stop a leader from loading the others.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.reasons.usage import BAD_EXPRESSION, BAD_SPEC
from zcrawl.model.spec import UNREADABLE, JobSpec
from zcrawl.submit.code import with_code_right
from zcrawl.submit.shell_rights import ShellRights, with_shell_right
from zcrawl.submit.validate import check

MAX_REASON: Final = 250  # characters; the column of a run's reason has 255


def read_stored(data: bytes) -> JobSpec:
    """Return the spec; JobError `bad_expression` or `bad_spec` if it is refused. Its seeds are not
    checked again: they were admitted long ago, and there may be a million."""
    try:
        spec = msgspec.json.decode(data, type=JobSpec)
        check(spec, seeds=False)
    except UNREADABLE as error:
        raise JobError(f"the stored job cannot be read: {error}", code=BAD_SPEC) from None
    except JobError as error:
        code = BAD_EXPRESSION if error.code == BAD_EXPRESSION else BAD_SPEC
        raise JobError(str(error), code=code) from None
    return spec


def check_right(data: bytes, allow_code: bool, shell: ShellRights) -> JobSpec:
    """Return the stored spec; JobError or RefusedError if a run of it may not begin."""
    spec = read_stored(data)
    with_code_right(spec, allow_code)
    with_shell_right(spec, shell)
    return spec


def refusal_of(error: JobError) -> str:
    """Return the reason of a run that ends because its spec is refused."""
    return with_detail(error.code, str(error))[:MAX_REASON]


def readable(data: bytes) -> JobSpec:
    """Return the readable part of a spec, for code that only shows or exports a run."""
    try:
        return msgspec.json.decode(data, type=JobSpec)
    except UNREADABLE:
        return JobSpec("unreadable")
