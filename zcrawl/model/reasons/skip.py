"""Why a URL, a link or an item is left out although nothing failed."""

from __future__ import annotations

from typing import Final

from zcrawl.model.reasons.reason import REASONS, ParameterForm, ReasonKind, skip, with_detail

MOST_STORED: Final = 255  # characters of a reason that the database holds

# ---------------------------------------------------------------- what the site asks for

ROBOTS: Final = skip(
    "robots",
    "The host's robots.txt forbids this URL for the crawler's name.",
    "`zcrawl test URL` shows the rule. --no-robots or politeness.robots = false ignores it.",
)
ROBOTS_UNAVAILABLE: Final = skip(
    "robots_unavailable",
    "The host's robots.txt could not be read (5xx, 429 or no answer), which forbids everything.",
    "Retry later with `zcrawl retry JOB`. politeness.robots_patience sets how long to wait for it.",
    also=(ReasonKind.FAILURE,),
)
NOINDEX: Final = skip(
    "noindex",
    "The page asks not to be indexed. It was not kept; its links were followed.",
    "Nothing, or set politeness.noindex = false to keep such pages.",
)
CANONICAL: Final = skip(
    "canonical",
    "The page names another page as canonical. That page is crawled in its place.",
    "Nothing, or set scope.collapse_canonical = false to keep both.",
)

# ---------------------------------------------------------------- scope

TOO_DEEP: Final = skip(
    "too_deep",
    "The link is more than scope.max_depth steps from a seed.",
    "Raise scope.max_depth (--depth), or mark links to next pages with paging = true.",
)
OUT_OF_SCOPE_HOST: Final = skip(
    "out_of_scope_host",
    "The link leads to a host that is not part of the crawl.",
    "Add the host to scope.hosts. Without that key, only the hosts of the seeds are crawled.",
)
BINARY_EXTENSION: Final = skip(
    "binary_extension",
    "The link ends in a file extension that is not HTML, such as .jpg or .zip.",
    "Set scope.skip_binary = false to fetch such files.",
)
EXCLUDED: Final = skip(
    "excluded",
    "An expression of scope.exclude is found in the URL.",
    "Change scope.exclude (--exclude) if this page is wanted.",
)
NOT_INCLUDED: Final = skip(
    "not_included",
    "No expression of scope.include is found in the URL.",
    "Change scope.include (--include) if this page is wanted.",
)
REDIRECT_OUT_OF_SCOPE: Final = skip(
    "redirect_out_of_scope",
    "The page redirects to a URL that is not part of the crawl.",
    "Add the target's host to scope.hosts, or allow it in scope.include.",
)

# ---------------------------------------------------------------- limits of the run

MAX_PAGES: Final = skip(
    "max_pages",
    "The run ended because it reached scope.max_pages. The URL was still queued.",
    "Raise scope.max_pages (--max-pages) and run the job again.",
)
HOST_PAGE_LIMIT: Final = skip(
    "host_page_limit",
    "The run already has scope.max_pages_per_host pages of this host.",
    "Raise scope.max_pages_per_host and run the job again.",
    stays_due=True,
)
CANCELLED: Final = skip(
    "cancelled",
    "The run was cancelled. The URL was still queued.",
    "Start a new run with `zcrawl submit --again`.",
)
DELETED: Final = skip(
    "deleted",
    "The run is being deleted. The URL was still queued.",
    "Nothing: the rows of the run are being removed.",
)
RUNTIME_EXCEEDED: Final = skip(
    "runtime_exceeded",
    "The run failed because it took longer than max_runtime. The URL was still queued.",
    "Raise max_runtime, or crawl faster (politeness.rate, more workers), and run the job again.",
    also=(ReasonKind.FAILURE,),
)
EXPIRED: Final = skip(
    "expired",
    "The run reached its `expires` time before this was started.",
    "Raise expires, add workers, or give the job a higher priority.",
)
COMPLETED: Final = skip(
    "completed",
    "The run ended. The URL was still queued.",
    "Start a new run with `zcrawl submit --again`.",
)

# ---------------------------------------------------------------- one page counts once

DUPLICATE: Final = skip(
    "duplicate",
    "The page redirects to another page of the run, which counts instead.",
    "Nothing, or set scope.collapse_redirects = false to keep both.",
    form=ParameterForm.OF,
)
REDIRECT_TARGET: Final = skip(
    "redirect_target",
    "Another URL of the run redirected to this page, so its items are already stored.",
    "Nothing, or set scope.collapse_redirects = false to fetch both.",
)
REDIRECTED: Final = skip(
    "redirected",
    "The URL redirects to another host. The target became a request of its own.",
    "Nothing: look for the target among the pages.",
)
NEAR_DUPLICATE: Final = skip(
    "near_duplicate",
    "The page's text is almost the same as that of another page of the run.",
    'Set duplicates.near = "mark" or "off" to keep it, or lower duplicates.distance.',
)
NOT_DUE: Final = skip(
    "not_due",
    "An earlier run has this page, and it is too early to fetch it again.",
    "Nothing, or lower recrawl.interval and recrawl.min_interval.",
)
UNCHANGED: Final = skip(
    "unchanged",
    "The page has not changed since an earlier run (304, or the same content). It counts as done.",
    "Nothing: the earlier run has its items.",
)

OWNED_BY: Final = skip(
    "owned by",
    "Another standalone node owns the host, the URL or the task, and does it in its own store.",
    "Nothing: look for it at that node. `zcrawl owner RESOURCE` names the owner.",
    form=ParameterForm.NAME,
    stays_due=True,
)

# ---------------------------------------------------------------- traps

TRAP_URL_LENGTH: Final = skip(
    "trap_url_length",
    "The URL is longer than traps.max_url_length. Sites that make endless URLs have such ones.",
    "Raise traps.max_url_length; 0 means no limit.",
)
TRAP_SEGMENTS: Final = skip(
    "trap_segments",
    "The path has more segments than traps.max_segments.",
    "Raise traps.max_segments; 0 means no limit.",
)
TRAP_REPETITION: Final = skip(
    "trap_repetition",
    "Path segments repeat in a row more often than traps.max_repeats.",
    "Raise traps.max_repeats; 0 means no limit.",
)
TRAP_CALENDAR: Final = skip(
    "trap_calendar",
    "The URL has a date before 1970 or more than two years ahead, as in an endless calendar.",
    "Set traps.calendars = false to crawl such dates.",
)
TRAP_PARAMETERS: Final = skip(
    "trap_parameters",
    "The query has more parameters than traps.max_params, or one name more than 8 times.",
    "Raise traps.max_params; 0 means no limit. scope.drop_params removes parameters.",
)
TRAP_VARIANTS: Final = skip(
    "trap_variants",
    "One path has more different queries than traps.max_variants.",
    "Raise traps.max_variants, or remove parameters with scope.drop_params.",
)
TRAP_SHAPE: Final = skip(
    "trap_shape",
    "200 pages in a row of URLs of this shape had no new text.",
    "Set traps.shapes = false if these pages are wanted.",
    stays_due=True,
)
TRAP_SITEMAP: Final = skip(
    "trap_sitemap",
    "A sitemap is listed too deep in other sitemaps.",
    "Name the sitemap in sitemaps.urls if it is wanted.",
)
SOFT_404: Final = skip(
    "soft_404",
    'The server answered 200, but the page has the title of its "not found" page.',
    "Set traps.soft_404 = false to keep such pages.",
)

# ---------------------------------------------------------------- requests that are not pages

SITEMAP: Final = skip(
    "sitemap",
    "The URL is a sitemap. Its entries were read; it is not a page.",
    "Nothing: its entries are requests of the run.",
)
START: Final = skip(
    "start",
    "The spider's method `start` ran. It yields the first requests and is not a page.",
    "Nothing: its requests are part of the run.",
)
SKIPPED: Final = skip(
    "skipped",
    "A middleware or executor skipped the page and gave no other reason.",
    "See the plugin's documentation. Plugins usually give a reason of their own.",
)

# ---------------------------------------------------------------- sitemaps that are faulty

SITEMAP_TOO_LARGE: Final = skip(
    "sitemap_too_large",
    "The sitemap is larger than 50 MB. Entries before that point were used.",
    "Ask the site to split it, as the sitemap protocol requires.",
)
SITEMAP_TOO_MANY: Final = skip(
    "sitemap_too_many",
    "The sitemap has more than 50,000 entries, or the run has more than 50,000 sitemaps.",
    "Ask the site to split it, or name the wanted sitemaps in sitemaps.urls.",
)
SITEMAP_BROKEN: Final = skip(
    "sitemap_broken",
    "The sitemap cannot be read to its end. Entries before that point were used.",
    "Open the sitemap in a browser. It may be cut off, or not be a sitemap at all.",
)
SITEMAP_ENTRY_LOST: Final = skip(
    "sitemap_entry_lost",
    "An entry of the sitemap has no URL that can be read.",
    "Nothing: the other entries were read.",
)
SITEMAP_REPAIRED: Final = skip(
    "sitemap_repaired",
    "The sitemap has faults, such as a raw & or a wrong tag, that were ignored.",
    "Nothing: its entries were read.",
)

# ---------------------------------------------------------------- links and requests that cannot be

UNSUPPORTED_SCHEME: Final = skip(
    "unsupported_scheme",
    "The URL does not begin with http:// or https://. Only those are crawled.",
    "Write the URL with https://, or ignore it if it is a link such as mailto:.",
    also=(ReasonKind.REFUSAL,),
)
URL_TOO_LONG: Final = skip(
    "url_too_long",
    "The URL is longer than zcrawl can store.",
    "Shorten it. scope.drop_params removes parameters of links.",
    also=(ReasonKind.REFUSAL,),
)
BAD_METHOD: Final = skip(
    "bad_method",
    "A spider yielded a request with an unknown HTTP method.",
    "Use GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS.",
)
BAD_HEADER: Final = skip(
    "bad_header",
    "A spider yielded a request with a header that cannot be sent.",
    "Use plain header names and values, and none of Host, Content-Length, Transfer-Encoding, "
    "Connection, Upgrade.",
)
REQUEST_TOO_LARGE: Final = skip(
    "request_too_large",
    "A request is too large: one of a spider with its body and meta, or one of a client.",
    "Send less. A spider can keep large values itself and put a key into meta.",
    also=(ReasonKind.REFUSAL,),
)

# ---------------------------------------------------------------- items that are set aside

REQUIRED: Final = skip(
    "required",
    "An item lacks a required field. It was set aside with the page's other rejected items.",
    "`zcrawl export JOB --rejected` shows it. Correct the field's selector, or its `required`.",
    form=ParameterForm.DETAIL,
)
SCHEMA: Final = skip(
    "schema",
    "An item breaks the job's schema at the named field. It was set aside.",
    "`zcrawl export JOB --rejected` shows the value. Correct the rule or the schema.",
    form=ParameterForm.DETAIL,
)
TOO_MANY_ITEMS: Final = skip(
    "too_many_items",
    "A page gives more items than zcrawl reads from one page. The rest was left out.",
    "Make the selector of `item` more exact.",
)
NOT_STORABLE: Final = skip(
    "not_storable",
    "An item is nested too deeply, or has text that is not Unicode.",
    "`zcrawl export JOB --rejected` shows where. Extract less of the page.",
)
FIELD_FAILED: Final = skip(
    "field_failed",
    "A field of an item could not be read. The item was kept without it.",
    "`zcrawl export JOB --problems` shows which fields. Correct their rules.",
)

STAY_DUE: Final = frozenset(reason.code for reason in REASONS.values() if reason.stays_due)


def duplicate_of(url: str) -> str:
    """Return the reason of a request whose page is that of `url`, cut to the column's length."""
    return f"{DUPLICATE} of {url}"[:MOST_STORED]


def owned_by(node: str) -> str:
    """Return the reason of a request that another node owns."""
    return f"{OWNED_BY} {node}"


def is_owned_by_another(text: str) -> bool:
    """Return whether a stored reason is `owned by …`."""
    return text.startswith(f"{OWNED_BY} ")


def is_duplicate(text: str) -> bool:
    """Return whether a stored reason is `duplicate of …`."""
    return text.startswith(f"{DUPLICATE} of ")


def required(field: str) -> str:
    """Return the reason of an item that lacks `field`."""
    return with_detail(REQUIRED, field)


def schema_broken(field: str) -> str:
    """Return the reason of an item whose `field` breaks the schema."""
    return with_detail(SCHEMA, field)
