"""The tree of all errors. Each error has a stable `code`, which counters, log events,
`job --json` and exit codes show. The message is for people.

    ZcrawlError
    ├── UsageError            what the user typed or wrote is wrong (exit 2)
    │   ├── ConfigError       a config file, flag or environment variable
    │   ├── JobError          a job file or job spec
    │   │   └── BadExpression a regular expression that zcrawl does not run
    │   └── BadUrl            a string that is not a URL that can be crawled
    ├── UnreachableError      no master or server answers; a retry may help (exit 3)
    ├── RefusedError          the cluster refused the request (exit 1)
    ├── FetchError            one fetch failed; has its retry class
    │   ├── BlockedAddress    the address guard refused to connect
    │   └── AddressMoved      a host has another address than the one its limits count
    ├── TooManySteps          an expression would take too long on a text
    ├── ParseError            a body that cannot be read as what it claims to be
    ├── SpiderError           a spider's own code failed, or had to be stopped
    ├── PluginError           a plugin is missing or does not work
    ├── PageSkipped           a middleware skipped the page; the code is its reason
    ├── MeshError
    │   └── DecodeError       a frame that is not a valid message
    │       └── VersionMismatch  its sender speaks another version of the protocol
    └── StoreError
        ├── Fenced            a newer leader exists: the caller must step down
        ├── StoreDataError    this data can never be stored (find it by bisection and drop it)
        ├── StoreUnavailable  nothing was written; the same call may work later
        │   └── DiskFull
        ├── CommitUnknown     the commit may or may not have happened: reload
        └── StoreCorrupt      the database cannot be read; a person must repair it
"""

from __future__ import annotations

import enum

from zcrawl.model.reasons.cluster import BAD_FRAME, MESH, REFUSED, UNREACHABLE, VERSION
from zcrawl.model.reasons.failure import (
    ADDRESS_MOVED,
    BAD_URL,
    BLOCKED_ADDRESS,
    FETCH,
    PARSE,
    SPIDER_ERROR,
    TOO_MANY_STEPS,
    blocked_address,
)
from zcrawl.model.reasons.skip import SKIPPED
from zcrawl.model.reasons.storage import (
    COMMIT_UNKNOWN,
    DISK_FULL,
    FENCED,
    STORE,
    STORE_CORRUPT,
    STORE_DATA,
    STORE_UNAVAILABLE,
)
from zcrawl.model.reasons.usage import (
    BAD_EXPRESSION,
    CONFIG,
    ERROR,
    JOB,
    PLUGIN,
    PLUGIN_BROKEN,
    PLUGIN_MISSING,
    USAGE,
)


class ZcrawlError(Exception):
    """Root of all errors that zcrawl raises on purpose."""

    code = ERROR
    exit_code = 1

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class UsageError(ZcrawlError):
    code = USAGE
    exit_code = 2


class ConfigError(UsageError):
    code = CONFIG


class JobError(UsageError):
    code = JOB


class BadExpression(JobError):
    """A regular expression is refused. `position` in the expression is counted from 0."""

    code = BAD_EXPRESSION

    def __init__(self, message: str, *, position: int) -> None:
        super().__init__(message)
        self.position = position


class BadUrl(UsageError):
    """A string is not a URL that can be crawled.

    `code` is one of bad_url, url_too_long, unsupported_scheme, password_in_url.
    """

    code = BAD_URL


class UnreachableError(ZcrawlError):
    code = UNREACHABLE
    exit_code = 3


class RefusedError(ZcrawlError):
    code = REFUSED


class RetryClass(enum.StrEnum):
    """Whether and how a failed request is tried again."""

    TRANSIENT = "transient"  # probably temporary: try again after a growing delay
    THROTTLED = "throttled"  # the server asked for fewer requests: respect Retry-After
    PERMANENT = "permanent"  # the same request would fail again
    POSTPONED = "postponed"  # the page was not requested: try later, without counting an attempt


class FetchError(ZcrawlError):
    """One fetch failed. `code` names the cause, e.g. dns, connect, tls, read_timeout, too_large."""

    code = FETCH

    def __init__(
        self, message: str, *, code: str, retry: RetryClass, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry = retry
        self.retry_after_s = retry_after_s
        self.result: bytes | None = None  # JSON: what a failed task has to show

    @property
    def reason(self) -> str:
        """Return the reason that is stored with the failed URL."""
        return self.code


class BlockedAddress(FetchError):
    """The address guard refused. `why` has kind and address, e.g. `private (10.1.2.3)`."""

    def __init__(self, url: str, why: str) -> None:
        message = f"{url[:300]}: {why}"
        super().__init__(message, code=BLOCKED_ADDRESS, retry=RetryClass.PERMANENT)
        self.why = why

    @property
    def reason(self) -> str:
        return blocked_address(self.why)


class AddressMoved(FetchError):
    """A host has a new address. Nothing was sent, because the leader must learn it first."""

    def __init__(self, name: str, address: str) -> None:
        message = f"{name} is at {address}"
        super().__init__(message, code=ADDRESS_MOVED, retry=RetryClass.POSTPONED)
        self.address = address


class TooManySteps(ZcrawlError):
    code = TOO_MANY_STEPS


class ParseError(ZcrawlError):
    code = PARSE


class SpiderError(ZcrawlError):
    """A spider's own code failed. `fatal`: its process had to end."""

    code = SPIDER_ERROR

    def __init__(self, message: str, *, code: str | None = None, fatal: bool = False) -> None:
        super().__init__(message, code=code)
        self.fatal = fatal


class PageSkipped(ZcrawlError):
    code = SKIPPED


class PluginError(ZcrawlError):
    MISSING = PLUGIN_MISSING  # no plugin of that name is installed here
    BROKEN = PLUGIN_BROKEN  # it is installed, but cannot be loaded or created
    code = PLUGIN


class MeshError(ZcrawlError):
    code = MESH


class DecodeError(MeshError):
    code = BAD_FRAME


class VersionMismatch(DecodeError):
    code = VERSION

    def __init__(self, source: str, theirs: int, ours: int) -> None:
        super().__init__(f"{source} speaks protocol {theirs}, this side speaks {ours}")
        self.source, self.theirs, self.ours = source, theirs, ours


class StoreError(ZcrawlError):
    code = STORE


class Fenced(StoreError):
    code = FENCED


class StoreDataError(StoreError):
    code = STORE_DATA


class StoreUnavailable(StoreError):
    code = STORE_UNAVAILABLE


class DiskFull(StoreUnavailable):
    code = DISK_FULL


class CommitUnknown(StoreError):
    code = COMMIT_UNKNOWN


class StoreCorrupt(StoreError):
    code = STORE_CORRUPT
