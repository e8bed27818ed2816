"""The job spec: the settings of a job, validated once and then frozen.

Made by `submit.validate`, from a TOML file, from flags or from a client's submission. The stored
form is the JSON of `JobSpec`; `docs/job-file.md` explains each key.

Annotations here and in the modules that it takes types from are not strings, because msgspec would
compile each of them again in every process, which was 30 ms of a start.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.extraction import Block

WAITS: Final = ("dom", "load", "idle")
SCREENSHOTS: Final = ("", "view", "page")
BLOCKABLE: Final = (
    "ads",
    "beacon",
    "font",
    "iframe",
    "image",
    "media",
    "script",
    "stylesheet",
    "xhr",
)
MOST_SCROLLS: Final = 200
MOST_CLICKS: Final = 50
MOST_PIXELS: Final = 8_192  # of one side
MOST_REQUESTS: Final = 10_000
MOST_MEMORY_MB: Final = 65_536
_MAX_SELECTOR: Final = 1_000  # characters

# Request headers that only zcrawl itself sets: `submit` refuses jobs that name one, the worker
# refuses such requests of a spider.
# Host is the URL's: servers that share an address would hand the request, and its secrets, to
# another site. The others say where a request ends and what its connection is used for next: a
# second value could turn one request into two, or take the connection away from HTTP.
FORBIDDEN_HEADERS: Final = frozenset(
    {"connection", "content-length", "host", "transfer-encoding", "upgrade"}
)


class Browser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one page is rendered. The steps are taken in this order."""

    block: tuple[str, ...] = ("font", "image", "media")  # kinds of requests that are not made
    wait: str = "load"  # dom | load | idle: until when the page loads
    wait_for: str = ""  # a CSS selector that must be there
    click: tuple[str, ...] = ()  # CSS selectors; what is not there is passed over
    scroll: int = 0  # screens, at most; ends at the page's end
    wait_s: float = 0.0  # after all that
    screenshot: str = ""  # view | page: a PNG into the blobs
    pdf: bool = False  # a PDF into the blobs
    viewport: tuple[int, int] = (1280, 800)
    max_requests: int = 300  # of one page, its document not counted
    memory_mb: int = 1024  # of the process that renders it


def check_rendering(browser: Browser, engine: str, timeout_s: float) -> None:
    """Raise JobError for a section that makes no sense."""
    if engine != "browser":
        if browser != Browser():
            raise JobError(
                f"[browser] needs fetch.engine = 'browser', and the engine is {engine!r}; set it, "
                "or remove [browser]"
            )
        return
    _one_of("browser.wait", browser.wait, WAITS)
    _one_of("browser.screenshot", browser.screenshot, SCREENSHOTS)
    for kind in browser.block:
        _one_of("browser.block", kind, BLOCKABLE)
    for selector in (browser.wait_for, *browser.click):
        if len(selector) > _MAX_SELECTOR:
            raise JobError(f"[browser]: a selector is longer than {_MAX_SELECTOR} characters")
    for number, selector in enumerate(browser.click, 1):
        if not selector.strip():
            raise JobError(f"browser.click, entry {number} is empty; write a CSS selector")
    if len(browser.click) > MOST_CLICKS:
        raise JobError(f"browser.click: {len(browser.click)} entries; at most {MOST_CLICKS}")
    _between("browser.scroll", browser.scroll, 0, MOST_SCROLLS)
    for side in browser.viewport:
        _between("browser.viewport", side, 1, MOST_PIXELS)
    _between("browser.max_requests", browser.max_requests, 0, MOST_REQUESTS)
    _between("browser.memory_mb", browser.memory_mb, 64, MOST_MEMORY_MB)
    if not (math.isfinite(browser.wait_s) and 0 <= browser.wait_s < timeout_s):
        raise JobError(
            f"browser.wait_s is {browser.wait_s}; it must be at least 0 and less than "
            f"fetch.timeout ({timeout_s})"
        )


def _one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise JobError(f"{key} is {value!r}; use one of {', '.join(filter(None, choices))}")


def _between(key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise JobError(f"{key} is {value}; it must be {least} to {most}")


OFF: Final = "off"
MARK: Final = "mark"
SKIP: Final = "skip"
CHOICES: Final = (OFF, MARK, SKIP)
MOST_DISTANCE: Final = 6  # beyond that pages that are not alike would be taken for copies


class Duplicates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    near: str = OFF  # off | mark: items name the first page | skip: the page is not kept
    distance: int = 5  # in how many of 64 bits the fingerprints of two texts may differ


def check_duplicates(duplicates: Duplicates) -> None:
    """Raise JobError for values that have the right type and still make no sense."""
    if duplicates.near not in CHOICES:
        raise JobError(f"duplicates.near is {duplicates.near!r}; use one of {', '.join(CHOICES)}")
    if not 0 <= duplicates.distance <= MOST_DISTANCE:
        raise JobError(
            f"duplicates.distance is {duplicates.distance}; it must be 0 to {MOST_DISTANCE} "
            "(of 64 bits)"
        )


LONGEST_INTERVAL_S: Final = 10 * 366 * 86_400.0


class Recrawl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a new run of the same job makes of the pages that earlier ones have found."""

    incremental: bool = False  # pages are remembered, and only changed ones are kept again
    interval: float = 86_400.0  # seconds until a page is looked at again, at first
    min_interval: float = 3_600.0  # of pages that change
    max_interval: float = 2_592_000.0  # of pages that do not


def check_recrawl(recrawl: Recrawl, crawls: bool) -> None:
    """Raise JobError for values that have the right type and still make no sense. `crawls`: the
    job is a crawl; tasks of other jobs have to be done in every run."""
    if recrawl.incremental and not crawls:
        raise JobError(
            "recrawl.incremental needs pages, and jobs of this kind have none; remove it"
        )
    for key in ("interval", "min_interval", "max_interval"):
        value = getattr(recrawl, key)
        if not (math.isfinite(value) and 0 <= value <= LONGEST_INTERVAL_S):
            raise JobError(f"recrawl.{key} is {value}; it must be seconds from 0 to ten years")
    if not recrawl.min_interval <= recrawl.interval <= recrawl.max_interval:
        raise JobError(
            f"recrawl.interval is {recrawl.interval}; it must lie between min_interval "
            f"({recrawl.min_interval}) and max_interval ({recrawl.max_interval})"
        )


CRAWL: Final = "crawl"
HTTP: Final = "http"
SHELL: Final = "shell"
KINDS: Final = (CRAWL, HTTP, SHELL)  # any other kind is the name of a plugin that executes the job
ENGINES: Final = ("http", "httpx", "browser")  # any other name is a plugin's
# What reading a stored spec raises, if it is not one.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which links belong to the crawl."""

    hosts: tuple[str, ...] = ()  # empty: the seeds' hosts
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_depth: int | None = None
    max_pages: int | None = None
    max_pages_per_host: int | None = None
    skip_binary: bool = True  # skip links that end in a non-HTML file extension
    sort_query: bool = False
    drop_params: tuple[str, ...] = ()  # session ids and the like
    collapse_redirects: bool = True  # a page that redirects to another of the crawl counts once
    collapse_canonical: bool = False  # a page that names another as canonical gives way to it
    collapse_scheme: bool = False  # http and https are one page
    collapse_www: bool = False  # example.com and www.example.com are one site


class Politeness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one host is treated. For all jobs together the slowest demand wins."""

    robots: bool = True
    rate: float = 5.0  # requests per second and host; 0: unlimited
    burst: int = 1
    concurrency: int = 4
    spread: bool = False
    hours: tuple[str, ...] = ()  # UTC, "22:00-06:00"; empty: always
    nofollow: bool | None = None  # obey rel and meta nofollow; None: as `robots`
    noindex: bool | None = None  # skip pages that ask not to be indexed; None: as `robots`
    robots_patience: float = 30.0  # seconds that a failing robots.txt is waited for
    domain_rate: float = 0.0  # for all hosts of one registered domain together; 0: no limit
    domain_concurrency: int = 0
    address_rate: float = 0.0  # for all hosts at one IP address together; 0: no limit
    address_concurrency: int = 0

    @property
    def limits_domains(self) -> bool:
        return self.domain_rate > 0 or self.domain_concurrency > 0

    @property
    def limits_addresses(self) -> bool:
        return self.address_rate > 0 or self.address_concurrency > 0


class Traps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits against endless spaces of URLs; 0 or false: none."""

    max_url_length: int = 2_000
    max_segments: int = 32  # of a path
    max_repeats: int = 3  # of one to four path segments in a row
    max_params: int = 32
    max_variants: int = 5_000  # queries of one path
    calendars: bool = True  # skip dates before 1970 and more than two years ahead
    shapes: bool = True  # end URLs of one shape after 200 pages in a row without a new text
    soft_404: bool = True  # if a title says "not found", compare with a page that cannot exist


class Sitemaps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists of pages that sites give of themselves."""

    robots: bool = False  # read those that robots.txt names
    urls: tuple[str, ...] = ()  # read these


class Auth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Credentials for one host: name, or name:port. Secrets as ${NAME}."""

    host: str
    user: str = ""
    password: str = ""
    bearer: str = ""


class Fetch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one page is fetched."""

    engine: str = "http"  # http: the aiohttp wire; httpx: a plain httpx client; browser: Chromium
    timeout: float = 20.0  # seconds for the whole request
    connect_timeout: float = 10.0
    read_timeout: float = 15.0  # longest silence between two pieces
    max_bytes: int = 10_000_000  # of the body, as sent and decoded
    max_redirects: int = 10
    retries: int = 3
    user_agent: str = "zcrawl/0.1 (+https://github.com/zcrawl/zcrawl)"
    headers: dict[str, str] = {}
    verify_tls: bool = True
    allow_private: bool = False  # addresses that are not on the public internet
    private_hosts: tuple[str, ...] = ()  # name:port of single hosts where it is allowed
    proxies: tuple[str, ...] = ()  # http:// and socks5://; secrets as ${NAME}
    proxy_rotation: str = "sticky"  # sticky | round_robin | least_failures
    proxy_limit: int = 0  # requests at the same time through one proxy; 0: no limit
    user_agents: tuple[str, ...] = ()  # each host gets one of them
    header_sets: tuple[dict[str, str], ...] = ()  # each host gets one of them
    auth: tuple[Auth, ...] = ()
    cookies: bool = False  # keep them, per run
    http2: bool = False  # engine httpx only
    ca_file: str = ""  # certificates to trust instead of the system's; a path on the workers
    client_cert: str = ""
    client_key: str = ""


class Retries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a failed request waits before it is tried again. `fetch.retries` says how often."""

    backoff: float = 1.0  # seconds before the second attempt; doubles with each further one
    max_delay: float = 300.0  # seconds; a Retry-After of the server may ask for more


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which workers a job goes to, by their labels."""

    require: tuple[str, ...] = ()  # only workers that have all of these
    prefer: tuple[str, ...] = ()  # of these, the workers that have most of these


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A form that is sent once per worker before the first page of its host."""

    url: str = ""  # empty: no login
    fields: dict[str, str] = {}  # what is filled in; secrets as ${NAME}
    success: str = ""  # a regular expression that the page behind the login has


class After(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parent: a job whose finished runs start this one."""

    job: str  # its name
    on: str = "success"  # success | failure | end: which of its finished runs count


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the job runs by itself. At most one of `cron`, `every` and `at` is given."""

    cron: str = ""
    timezone: str = ""  # of `cron`, and of times without an offset; empty: the masters' default
    every: str = ""  # a duration: 90s, 15m, 1h30m, 2d
    at: str = ""  # one time: 2026-12-01T03:00
    start: str = ""  # no due time before it
    end: str = ""  # no due time after it
    jitter: str = ""  # a duration; each run starts up to that much later than it is due
    overlap: str = ""  # skip | queue | cancel | allow; empty: the masters' default
    catch_up: str = ""  # none | last | all: due times nobody was there for; empty: the default
    after: tuple[After, ...] = ()
    after_mode: str = "all"  # all | any


class ScheduleDefaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the masters' configuration says for jobs whose [schedule] does not say it."""

    timezone: str = "UTC"
    overlap: str = ""  # empty: skip, and `queue` for parents
    catch_up: str = "none"
    jitter: str = ""  # a job's `every` limits it


class SeedsFrom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The items of another job's run as seeds."""

    job: str = ""  # its name; empty: no such seeds
    field: str = "url"  # the field of each item that is a seed


class OutputSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is written besides the items in the database."""

    to: tuple[str, ...] = ("sql",)  # files beside the database; docs/outputs.md
    rotate_bytes: int = 0  # start a new part of each file after this many bytes; 0: never
    rotate_seconds: float = 0.0
    keep_html: bool = False  # bodies into the blob store, content-addressed
    csv_safe: bool = False  # CSV cells that a spreadsheet would evaluate get an apostrophe
    capture: bool = False  # whole exchanges, for archives; implied by a WARC in `to`


class SpiderLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a spider's handler; one that exceeds them is stopped."""

    timeout: float = 30.0  # seconds for one page
    memory: int = 1_000_000_000  # bytes of address space of its process


class SpiderCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The spider's file, as the client read it."""

    sha256: str
    source: str = ""  # workers get it by CODE


FAIL_ABOVE: Final = 0.5


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ended runs of the job are kept; a run beyond one of the limits is removed."""

    keep_runs: int | None = None  # the newest; None: what the masters say; 0: no limit
    keep_days: float | None = None  # since their end; None: what the masters say; 0: no limit
    archive: str = ""  # s3://bucket/prefix or a folder: runs are written there before
    archive_format: str = "jsonl"  # jsonl | parquet


class HttpAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Credentials of an HTTP task, for the host of its URL. Secrets as ${NAME}."""

    user: str = ""
    password: str = ""
    bearer: str = ""


class HttpExpect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the answer of an HTTP task must be like."""

    status: int | str | tuple[int | str, ...] = "2xx"  # 204, "2xx", or a list of such
    headers: dict[str, str] = {}  # name → value; * for any characters
    json: dict[str, Any] = {}  # JMESPath expression → value; true: it must be true
    latency_ms: float = 0.0  # the answer comes within; 0: no limit
    fail: bool = True  # false: what is not met is only noted in the item


class HttpTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The call that a job of kind http makes: once, or once for each seed."""

    method: str = "GET"
    url: str = ""  # empty: the seeds
    headers: dict[str, str] = {}  # secrets as ${NAME}, as in body and auth
    body: str = ""
    auth: HttpAuth = HttpAuth()
    expect: HttpExpect = HttpExpect()


class ShellTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The command that a job of kind shell runs: once, or once for each seed."""

    command: str = ""  # the absolute path of a program on the workers
    args: tuple[str, ...] = ()  # ${seed} is the task's seed; no secrets
    env: dict[str, str] = {}  # besides PATH, HOME and LANG; secrets as ${NAME}
    cwd: str = ""  # empty: a folder of its own, removed afterwards
    timeout: float = 60.0  # seconds until it is ended, with all that it started
    cpu_time: float = 0.0  # CPU seconds of each process; 0: as the timeout, on every core
    memory: int = 1_000_000_000  # bytes of all processes together; address space of each one
    max_processes: int = 0  # processes and threads; 0: worker.shell.processes
    max_output: int = 10_000_000  # bytes of stdout, and of stderr, that are kept


RESOURCE: Final = "${resource}"


def for_resources(seeds: Sequence[str], resources: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (resource, seed): the seeds of each resource, which is a seed itself if there are none.
    Nothing without resources."""
    for resource in resources:
        for seed in seeds or (RESOURCE,):
            yield resource, seed.replace(RESOURCE, resource)


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: str = CRAWL  # or http, shell, or the name of a plugin that executes the job
    http: HttpTask = HttpTask()
    shell: ShellTask = ShellTask()
    seeds: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()  # ids that nodes share; ${resource} in seeds is each of them
    tags: tuple[str, ...] = ()  # words that jobs are grouped by
    priority: int = 0  # -100 to 100; higher goes first
    concurrency: int = 0  # tasks without a host at the same time; 0: as many as workers take
    timeout: float = 0.0  # seconds for one task; 0: fetch.timeout, or shell.timeout
    expires: float = 0.0  # seconds after which a run starts nothing more; 0: never
    retry: Retries = Retries()
    placement: Placement = Placement()
    params: dict[str, str] = {}  # default values; ${params.key} in other values of the spec
    schedule: Schedule = Schedule()
    seeds_from: SeedsFrom = SeedsFrom()
    scope: Scope = Scope()
    politeness: Politeness = Politeness()
    traps: Traps = Traps()
    sitemaps: Sitemaps = Sitemaps()
    fetch: Fetch = Fetch()
    login: Login = Login()
    browser: Browser = Browser()
    extract: tuple[Block, ...] = ()  # none: one default item per page
    schema: dict[str, Any] = {}  # schema of items whose block has none; a subset of JSON Schema
    output: OutputSpec = OutputSpec()
    recrawl: Recrawl = Recrawl()
    duplicates: Duplicates = Duplicates()
    spider: str = ""  # file.py:Name, or package.module:Name
    spider_args: dict[str, Any] = {}
    spider_limits: SpiderLimits = SpiderLimits()
    code: SpiderCode | None = None  # of a spider in a file; put there by the client
    middlewares: tuple[str, ...] = ()  # plugins, in the order in which requests pass them
    parsers: tuple[str, ...] = ()  # plugins: the first that accepts a page reads it
    plugins: dict[str, dict[str, Any]] = {}  # options of plugins, by name
    fail_above: float = FAIL_ABOVE  # a run failed if a larger share of its URLs did
    max_runtime: float = 0.0  # seconds after which a run fails; 0: no limit
    retention: Retention = Retention()

    @property
    def attempt_s(self) -> float:
        """How long the main part of an attempt may take: the request of a page, or a task."""
        return self.timeout or (self.shell.timeout if self.kind == SHELL else self.fetch.timeout)

    @property
    def takes_ids(self) -> bool:
        """Whether its seeds may be any texts: tasks that have no URL."""
        return self.kind not in (CRAWL, HTTP)

    @property
    def own_seeds(self) -> tuple[str, ...]:
        """The seeds in the job itself: the URL of an HTTP task is one, and so is a resource."""
        seeds = self.seeds or ((self.http.url,) if self.http.url else ())
        return tuple(seed for _, seed in for_resources(seeds, self.resources)) or seeds

    @property
    def needs_session(self) -> bool:
        """Whether its requests have more to them than a plain GET (`worker.pipeline.session`)."""
        fetch = self.fetch
        return bool(
            fetch.proxies
            or fetch.user_agents
            or fetch.header_sets
            or fetch.auth
            or fetch.cookies
            or self.login.url
        )
