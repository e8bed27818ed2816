"""The bodies of requests and answers. OpenAPI and `zcrawl.client` come from them. Pure.

The masters' views become these types by name, so a field that a master of another version does not
send has its default here, and what it sends in addition is left out.
"""

# Annotations are not strings here: msgspec and litestar read them.

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SEEDS_MOST = 1_000
NAME_MOST = 255

_SPEC = {
    "name": "books",
    "seeds": ["https://books.example/"],
    "scope": {"max_depth": 2},
    "politeness": {"rate": 2},
}


class _RequestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class _View(msgspec.Struct, frozen=True):
    pass


class JobSubmission(_RequestBody, frozen=True):
    """A job to store and run, or a stored job to run again."""

    spec: Annotated[
        dict[str, Any] | None,
        Meta(
            description="The job: the keys of a job file (docs/job-file.md).",
            extra_json_schema={"examples": [_SPEC]},
        ),
    ] = None
    job: Annotated[
        str,
        Meta(
            description="Instead of `spec`: id or name of a stored job, to run it again.",
            max_length=NAME_MOST,
            examples=["books"],
        ),
    ] = ""
    mode: Annotated[
        Literal["new", "update"],
        Meta(description="new: refuse a name that exists; update: replace the spec of that job."),
    ] = "new"
    seeds: Annotated[
        list[str],
        Meta(
            description="URLs instead of the job's own; more by POST /jobs/{id}/seeds.",
            max_length=SEEDS_MOST,
            extra_json_schema={"examples": [["https://books.example/page-2"]]},
        ),
    ] = []
    more_seeds: Annotated[
        bool, Meta(description="More seeds follow by POST /jobs/{id}/seeds; the run waits.")
    ] = False
    params: Annotated[
        dict[str, str],
        Meta(
            description="Values of the job's parameters.",
            extra_json_schema={"examples": [{"day": "2026-01-31"}]},
        ),
    ] = {}
    run: Annotated[bool, Meta(description="false: only store the job.")] = True
    restart: Annotated[bool, Meta(description="Cancel the live runs of the job first.")] = False
    live: Annotated[
        bool, Meta(description="With update: change the live runs, and start none.")
    ] = False


class Accepted(_View, frozen=True):
    """A job that is stored. Its run has begun, or waits as `reason` says."""

    id: Annotated[int, Meta(description="of the job", examples=[7])]
    run: Annotated[int, Meta(description="0: none was started", examples=[12])]
    state: Annotated[str, Meta(examples=["running"])]
    workers: Annotated[
        list[str],
        Meta(
            description="that may take it, when known",
            extra_json_schema={"examples": [["w1", "w2"]]},
        ),
    ] = []
    reason: Annotated[str, Meta(description="what it waits for")] = ""


class RunProgress(_View, frozen=True):
    """The counters of one run."""

    run: Annotated[int | None, Meta(description="null: the job has no run", examples=[12])]
    job: Annotated[int, Meta(examples=[7])]
    name: Annotated[str, Meta(examples=["books"])] = ""
    state: Annotated[str, Meta(examples=["running"])] = ""
    reason: str = ""
    cause: Annotated[str, Meta(description="what started it")] = ""
    pages: int = 0
    unchanged: int = 0
    items: int = 0
    failed: int = 0
    skipped: int = 0
    queued: int = 0
    in_flight: int = 0
    admitted: Annotated[int, Meta(description="all requests so far")] = 0
    bytes: int = 0
    seconds: float = 0.0
    pages_per_second: float = 0.0
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None


class JobView(RunProgress, frozen=True):
    """A job with the progress of one run, by default the newest."""

    id: Annotated[int, Meta(examples=[7])] = 0
    percent: Annotated[float, Meta(examples=[62.5])] = 0.0
    seconds_left: Annotated[
        float | None, Meta(description="at the present rate; null: not known", examples=[41.0])
    ] = None
    job_state: Annotated[str, Meta(description="active, paused or archived")] = ""
    version: int = 0
    owner: Annotated[str, Meta(examples=["ann"])] = ""
    tags: list[str] = []
    workers: Annotated[list[str], Meta(description="that have work of the run now")] = []
    missing: Annotated[str, Meta(description="what no worker has that the job needs")] = ""
    updated_at: str | None = None
    params: dict[str, str] = {}
    schedule: dict[str, Any] | None = None
    spec: dict[str, Any] = {}
    statuses: Annotated[dict[str, int], Meta(description="HTTP status → pages")] = {}
    failed_reasons: dict[str, int] = {}
    skipped_reasons: dict[str, int] = {}
    rejected_links: dict[str, int] = {}
    rejected_items: dict[str, int] = {}
    dropped: dict[str, int] = {}
    shares: Annotated[dict[str, int], Meta(description="worker → pages")] = {}
    fields: dict[str, dict[str, float]] = {}
    outputs: list[dict[str, Any]] = []
    last_actions: list[dict[str, Any]] = []
    runs: list[RunProgress] = []
    as_of: Annotated[
        str | None, Meta(description="set if no leader answered: when one last spoke")
    ] = None


class _Page(_View, frozen=True):
    next: Annotated[
        str | None, Meta(description="the `cursor` of the next page; null: this is the last")
    ] = None
    as_of: Annotated[
        str | None, Meta(description="set if no leader answered: when one last spoke")
    ] = None


class JobsPage(_Page, frozen=True):
    jobs: list[JobView] = []
    total: Annotated[int, Meta(description="jobs that match, on all pages")] = 0


class RunsPage(_Page, frozen=True):
    runs: list[RunProgress] = []


class JobChange(_RequestBody, frozen=True):
    """What to change. Pace and limits count for the live run; the other keys, with a new version
    of the job, also for later runs."""

    rate: (
        Annotated[float, Meta(description="requests per second and host; 0: no limit", ge=0)] | None
    ) = None
    concurrency: Annotated[int, Meta(ge=1)] | None = None
    burst: Annotated[int, Meta(ge=1)] | None = None
    max_depth: Annotated[int, Meta(ge=0)] | None = None
    max_pages: Annotated[int, Meta(description="0: no limit", ge=0)] | None = None
    max_pages_per_host: Annotated[int, Meta(description="0: no limit", ge=0)] | None = None
    labels: (
        Annotated[list[str], Meta(description="tags, instead of those it has", max_length=100)]
        | None
    ) = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    schedule: Annotated[
        dict[str, Any] | None,
        Meta(
            description="[schedule] of the job file",
            extra_json_schema={"examples": [{"cron": "0 3 * * *"}]},
        ),
    ] = None
    archived: Annotated[bool | None, Meta(description="hide the job, or show it again")] = None


class Changed(_View, frozen=True):
    job: Annotated[int, Meta(examples=[7])] = 0
    run: Annotated[int | None, Meta(examples=[12])] = None
    state: Annotated[str, Meta(examples=["paused"])] = ""
    changed: Annotated[int, Meta(description="how many runs or requests; 0: nothing")] = 0


class RetryWish(_RequestBody, frozen=True):
    """Which failed requests to try again; without it, all."""

    reason: Annotated[str, Meta(examples=["dns"], max_length=NAME_MOST)] = ""
    host: Annotated[int, Meta(description="id of a host; 0: all")] = 0


class Version(_View, frozen=True):
    version: int
    at: str | None = None
    author: str = ""
    changes: list[Any] = []


class Versions(_Page, frozen=True):
    versions: list[Version] = []


class ScheduleView(_View, frozen=True):
    """When a job runs by itself."""

    job: int
    name: str
    state: str = ""
    times: str = ""
    timezone: str = "UTC"
    jitter: str = ""
    overlap: str = ""
    catch_up: str = ""
    after: list[str] = []
    after_mode: str = ""
    held: str | None = None
    note: str = ""
    next: Annotated[list[str], Meta(description="due times, without jitter")] = []


class Schedules(_View, frozen=True):
    schedules: list[ScheduleView] = []
    as_of: str | None = None


class Nodes(_View, frozen=True):
    leader: dict[str, Any] = {}
    masters: list[dict[str, Any]] = []
    workers: list[dict[str, Any]] = []
    drained: list[str] = []
    differences: list[str] = []
    as_of: str | None = None


class NodeChanged(_View, frozen=True):
    node: Annotated[str, Meta(examples=["w1"])] = ""
    state: str = ""
    changed: int = 0


class Rows(_Page, frozen=True):
    """A table of the leader, page by page."""

    rows: list[dict[str, Any]] = []
    total: int = 0


class Owner(_View, frozen=True):
    """Which node owns a host, a URL or another id."""

    resource: str = ""
    owner: str | None = None
    held: bool = False
    nodes: list[Any] = []
    fingerprint: str = ""


class ProcessHealth(_View, frozen=True):
    """Whether this process runs."""

    status: Annotated[str, Meta(examples=["ok"])]
    version: Annotated[str, Meta(examples=["0.1.0"])]


class ClusterReady(_View, frozen=True):
    """Whether a leader speaks."""

    status: Annotated[str, Meta(examples=["ok"])]
    leader: Annotated[str, Meta(examples=["m1"])] = ""
    epoch: int = 0
    heard_s_ago: float = 0.0
