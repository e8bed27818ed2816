"""Judge a job spec that was stored: may this version, and this master, run it?

Called by the leader for each run that it loads and whenever a run begins again. Pure. What is
stored was accepted by a master of another version or with another configuration, so it is judged
like a new one: the leader runs nothing that it would refuse. Nothing here stops a leader from
loading the rest.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.reasons.usage import BAD_EXPRESSION, BAD_SPEC
from zcrawl.model.spec import UNREADABLE, JobSpec
from zcrawl.submit.code import with_code_right
from zcrawl.submit.validate import check

MAX_REASON: Final = 250  # characters; the column of a run's reason has 255


def read_stored(data: bytes) -> JobSpec:
    """The spec, or JobError `bad_expression` or `bad_spec`. Its seeds were admitted long ago: they
    are not judged again, there may be a million."""
    try:
        spec = msgspec.json.decode(data, type=JobSpec)
        check(spec, seeds=False)
    except UNREADABLE as error:
        raise JobError(f"the stored job cannot be read: {error}", code=BAD_SPEC) from None
    except JobError as error:
        code = BAD_EXPRESSION if error.code == BAD_EXPRESSION else BAD_SPEC
        raise JobError(str(error), code=code) from None
    return spec


def check_right(data: bytes, allow_code: bool) -> JobSpec:
    """The stored spec; JobError or RefusedError if a run of it may not begin."""
    spec = read_stored(data)
    with_code_right(spec, allow_code)
    return spec


def refusal_of(error: JobError) -> str:
    """The reason of a run that ends because its spec is refused."""
    return with_detail(error.code, str(error))[:MAX_REASON]


def readable(data: bytes) -> JobSpec:
    """What can be read of a spec, for those who only show or write what a run has."""
    try:
        return msgspec.json.decode(data, type=JobSpec)
    except UNREADABLE:
        return JobSpec("unreadable")
