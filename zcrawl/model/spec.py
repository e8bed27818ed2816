"""The job spec: what a user asks for, validated once, frozen ever after.

Called by the CLI (from a TOML file or flags) and by the leader (from a submission). The stored
form is the JSON of `JobSpec`; `docs/job-file.md` explains each key.

Annotations here and in the modules that it takes types from are no strings: msgspec would compile
each of them again in every process, which was 30 ms of a start.
"""

from typing import Any, Final

import msgspec

from zcrawl.model.browser import Browser
from zcrawl.model.duplicates import Duplicates
from zcrawl.model.extraction import Block
from zcrawl.model.recrawl import Recrawl

CRAWL: Final = "crawl"
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
    skip_binary: bool = True  # links whose extension says that no HTML is behind it
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
    soft_404: bool = True  # ask a host for a page that cannot exist, when one says "not found"


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


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A form that is sent once per worker before the first page of its host."""

    url: str = ""  # empty: no login
    fields: dict[str, str] = {}  # what is filled in; secrets as ${NAME}
    success: str = ""  # a regular expression that the page behind the login has


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept besides the items in the database."""

    to: tuple[str, ...] = ("sql",)  # files beside the database; docs/outputs.md
    rotate_bytes: int = 0  # begin a new part of each file after so many bytes; 0: never
    rotate_seconds: float = 0.0
    keep_html: bool = False  # bodies into the blob store, content-addressed
    csv_safe: bool = False  # CSV cells that a spreadsheet would evaluate get an apostrophe
    capture: bool = False  # whole exchanges, for archives; implied by a WARC in `to`


class SpiderLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a handler of a spider may use; one that uses more is ended."""

    timeout: float = 30.0  # seconds for one page
    memory: int = 1_000_000_000  # bytes of address space of its process


class SpiderCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The spider's file, as the client read it."""

    sha256: str
    source: str = ""  # workers get it by CODE


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: str = CRAWL  # or the name of a plugin that executes the job
    seeds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # words that jobs are grouped by
    scope: Scope = Scope()
    politeness: Politeness = Politeness()
    traps: Traps = Traps()
    sitemaps: Sitemaps = Sitemaps()
    fetch: Fetch = Fetch()
    login: Login = Login()
    browser: Browser = Browser()
    extract: tuple[Block, ...] = ()  # none: one default item per page
    schema: dict[str, Any] = {}  # of items whose block has none; a part of JSON Schema
    output: Output = Output()
    recrawl: Recrawl = Recrawl()
    duplicates: Duplicates = Duplicates()
    spider: str = ""  # file.py:Name, or package.module:Name
    spider_args: dict[str, Any] = {}
    spider_limits: SpiderLimits = SpiderLimits()
    code: SpiderCode | None = None  # of a spider in a file; put there by the client
    middlewares: tuple[str, ...] = ()  # plugins, in the order in which requests pass them
    parsers: tuple[str, ...] = ()  # plugins: the first that accepts a page reads it
    plugins: dict[str, dict[str, Any]] = {}  # options of plugins, by name

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
