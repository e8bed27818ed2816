"""The job spec: what a user asks for, validated once, frozen ever after.

Called by the CLI (from a TOML file or flags) and by the leader (from a submission). The stored
form is the JSON of `JobSpec`; `docs/job-file.md` explains each key.
"""

from __future__ import annotations

import msgspec


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which links belong to the crawl."""

    hosts: tuple[str, ...] = ()  # empty: the seeds' hosts
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_depth: int | None = None
    max_pages: int | None = None
    skip_binary: bool = True  # links whose extension says that no HTML is behind it
    sort_query: bool = False
    drop_params: tuple[str, ...] = ()  # session ids and the like


class Politeness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one host is treated. For all jobs together the slowest demand wins."""

    robots: bool = True
    rate: float = 5.0  # requests per second and host; 0: unlimited
    burst: int = 1
    concurrency: int = 4
    spread: bool = False


class Fetch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one page is fetched."""

    engine: str = "http"  # http: the aiohttp wire; httpx: a plain httpx client
    timeout: float = 20.0  # seconds for the whole request
    connect_timeout: float = 10.0
    read_timeout: float = 15.0  # longest silence between two pieces
    max_bytes: int = 10_000_000  # of the decoded body
    max_redirects: int = 10
    retries: int = 3
    user_agent: str = "zcrawl/0.1 (+https://github.com/zcrawl/zcrawl)"
    headers: dict[str, str] = {}
    verify_tls: bool = True
    allow_private: bool = False  # addresses that are not on the public internet
    private_hosts: tuple[str, ...] = ()  # name:port of single hosts where it is allowed


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept besides the items in the database."""

    keep_html: bool = False  # bodies into the blob store, content-addressed


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: str = "crawl"
    seeds: tuple[str, ...] = ()
    scope: Scope = Scope()
    politeness: Politeness = Politeness()
    fetch: Fetch = Fetch()
    output: Output = Output()
