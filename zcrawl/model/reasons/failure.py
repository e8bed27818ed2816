"""Why a URL failed. `fetch.policy` says which of these are retried."""

from __future__ import annotations

from typing import Final

from zcrawl.model.reasons.reason import ParameterForm, ReasonKind, failure, with_detail

# ---------------------------------------------------------------- the network

DNS: Final = failure(
    "dns",
    "The host's name could not be resolved.",
    "Check the name and the worker's resolver. `zcrawl retry JOB --reason dns` tries again.",
)
CONNECT: Final = failure(
    "connect",
    "No connection: the host refused it or cannot be reached.",
    "Check host, port and firewall, then `zcrawl retry JOB --reason connect`.",
)
CONNECT_TIMEOUT: Final = failure(
    "connect_timeout",
    "No connection within fetch.connect_timeout.",
    "Raise fetch.connect_timeout, or retry when the host is up.",
)
READ_TIMEOUT: Final = failure(
    "read_timeout",
    "The server sent nothing for fetch.read_timeout.",
    "Raise fetch.read_timeout, or lower politeness.rate if the server is overloaded.",
)
TOTAL_TIMEOUT: Final = failure(
    "total_timeout",
    "The whole answer did not come within fetch.timeout.",
    "Raise fetch.timeout (--timeout). With a browser, check that browser.wait_for can be found.",
)
RESET: Final = failure(
    "reset",
    "The server closed the connection before it answered.",
    "Retry later. If it happens again, lower politeness.rate and politeness.concurrency.",
)
TRUNCATED: Final = failure(
    "truncated",
    "The body is shorter than the server announced, or a compressed body ended too early.",
    "Retry later with `zcrawl retry JOB --reason truncated`.",
)
HTTP2: Final = failure(
    "http2",
    "The server ended or broke an HTTP/2 connection or stream.",
    "Retry, or set fetch.http2 = false.",
)
TLS: Final = failure(
    "tls",
    "The TLS handshake failed, or the certificate is not valid.",
    "Check the certificate. fetch.ca_file trusts another authority; fetch.verify_tls = false "
    "checks nothing.",
)
PROTOCOL: Final = failure(
    "protocol",
    "The answer is not HTTP, or breaks its limits.",
    "Check that URL and port belong to a web server. `zcrawl test URL` shows the answer.",
)
NO_PAGE_FETCHED: Final = failure(
    "no_page_fetched",
    "The run failed because not one of its URLs could be fetched.",
    "`zcrawl job JOB` shows the reasons of its URLs, `zcrawl test URL` tries one of them.",
    form=ParameterForm.DETAIL,
)
TOO_MANY_FAILED: Final = failure(
    "too_many_failed",
    "The run failed because more of its URLs failed than fail_above allows. Answers 404 and 410 do "
    "not count.",
    "`zcrawl job JOB` shows the reasons, `zcrawl retry JOB` tries the failed URLs again.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.SKIP,),
)
NO_PARENT_RUN: Final = failure(
    "no_parent_run",
    "The run failed because its seeds are items of another job, and no run of that job has "
    "completed.",
    "Run the job that seeds_from names first.",
)
NOT_STARTED: Final = failure(
    "not_started",
    "The schedule could not start the run, because its job is refused with these parameters.",
    "Correct the job or its parameters: `zcrawl submit JOB.toml --update`.",
    form=ParameterForm.DETAIL,
)
HOST_DOWN: Final = failure(
    "host_down",
    "The host could not be reached many times in a row. Its queued URLs were given up.",
    "When the host is up again: `zcrawl retry JOB --reason host_down`.",
)
ADDRESS_MOVED: Final = failure(
    "address_moved",
    "The host has another IP address than the one its shared limits count. It is tried again.",
    "Nothing: the leader gives the host to the worker of its new address.",
)
BLOCKED_ADDRESS: Final = failure(
    "blocked_address",
    "The address guard refused to connect: the address is not on the public internet.",
    "Open the host with fetch.private_hosts, or all with --allow-private; see "
    "docs/address-guard.md.",
    form=ParameterForm.DETAIL,
)

# ---------------------------------------------------------------- the answer

HTTP: Final = failure(
    "http",
    "The server answered with this HTTP status. 408, 425, 429 and 5xx are tried again, others not.",
    "Open the URL in a browser. For 429 or 503 lower politeness.rate; for 401 or 403 see "
    "fetch.auth and fetch.headers.",
    form=ParameterForm.STATUS,
)
TOO_LARGE: Final = failure(
    "too_large",
    "The body is larger than fetch.max_bytes; or an item or a row is too large to be stored.",
    "Raise fetch.max_bytes, or extract less. For MySQL raise max_allowed_packet.",
    also=(ReasonKind.SKIP, ReasonKind.REFUSAL),
)
BAD_ENCODING: Final = failure(
    "bad_encoding",
    "The body does not decompress, or has an unknown Content-Encoding.",
    "Nothing here: the server is at fault. An Accept-Encoding in fetch.headers may help.",
)
BAD_URL: Final = failure(
    "bad_url",
    "Not a valid URL, or a URL or header that cannot be sent.",
    "Correct the URL. Links of pages that are not URLs are only counted.",
    also=(ReasonKind.SKIP, ReasonKind.REFUSAL),
)
REDIRECT_LOOP: Final = failure(
    "redirect_loop",
    "The redirects lead back to a URL of the same chain.",
    "Open the URL in a browser. Cookies may be needed: fetch.cookies = true.",
)
TOO_MANY_REDIRECTS: Final = failure(
    "too_many_redirects",
    "More redirects in a row than fetch.max_redirects.",
    "Raise fetch.max_redirects, or set fetch.cookies = true if the site needs cookies.",
    also=(ReasonKind.SKIP,),
)
BAD_REDIRECT: Final = failure(
    "bad_redirect",
    "The server redirects without a Location, or to something that is not an http(s) URL.",
    "Nothing here: the server is at fault.",
)
LOGIN_FAILED: Final = failure(
    "login_failed",
    "The login form could not be sent, or the page behind it is not as login.success says.",
    "Check login.url, login.fields and the secrets; `zcrawl test JOB.toml URL` tries it.",
)
SECRET_NOT_RELEASED: Final = failure(
    "secret_not_released",
    "The request needs a secret that its host may not get.",
    "Name the host in secrets.NAME.hosts of the workers' configuration.",
    also=(ReasonKind.REFUSAL,),
)

# ---------------------------------------------------------------- proxies, engine, browser

PROXY: Final = failure(
    "proxy",
    "The proxy failed before the page was requested, so this does not count as an attempt.",
    "Check fetch.proxies and the proxy's user and password.",
)
PROXIES_DOWN: Final = failure(
    "proxies_down",
    "All proxies of the job are paused after failures. The URL waits and is tried again.",
    "Check fetch.proxies, or add more of them.",
    also=(ReasonKind.WAITING,),
)
ENGINE: Final = failure(
    "engine",
    "zcrawl's own HTTP engine failed, for example closed while in use. It is tried again.",
    "Nothing. If it happens often, report it with the line of the log.",
)
BROWSER: Final = failure(
    "browser",
    "Chromium crashed, was killed or did not start.",
    "Run `zcrawl doctor`. Check memory and docs/browser.md.",
)
BROWSER_MEMORY: Final = failure(
    "browser_memory",
    "Chromium needed more memory than browser.memory_mb.",
    "Raise browser.memory_mb, or lower politeness.concurrency.",
)
ROBOTS_ELSEWHERE: Final = failure(
    "robots_elsewhere",
    "robots.txt redirects to another host, which another worker may own. It is tried again.",
    "Nothing: the leader finds the worker.",
)

# ---------------------------------------------------------------- reading the page

PARSE: Final = failure(
    "parse",
    "The body cannot be read as what it claims to be.",
    "`zcrawl test URL` shows the page. It may not be HTML.",
)
BINARY_CONTENT: Final = failure(
    "binary_content",
    "The body is binary data and not HTML, whatever its Content-Type says.",
    "Nothing, or exclude such URLs with scope.exclude.",
)
FORBIDDEN_CHARSET: Final = failure(
    "forbidden_charset",
    "The page names a character set that browsers refuse, too (ISO-2022-KR, ISO-2022-CN, HZ).",
    "Nothing here: the site must use another character set.",
)
BAD_JSON: Final = failure(
    "bad_json",
    "The body is not valid JSON although its Content-Type says so.",
    "Nothing here: the server is at fault.",
)
PARSE_TIMEOUT: Final = failure(
    "parse_timeout",
    "Reading the page took too long and was stopped.",
    "Simplify the rules of [extract], or exclude the page with scope.exclude.",
)
PARSE_MEMORY: Final = failure(
    "parse_memory",
    "Reading the page needed too much memory and was stopped.",
    "Lower fetch.max_bytes, or exclude the page with scope.exclude.",
)
PARSE_DIED: Final = failure(
    "parse_died",
    "The process that read the page ended. It is tried again.",
    "If it happens again, check the machine's memory and the kernel's log.",
)
TOO_MANY_STEPS: Final = failure(
    "too_many_steps",
    "An expression would take too long on a text of the page.",
    "Use a simpler expression, or a selector that matches less text.",
)

# ---------------------------------------------------------------- spiders and plugins

SPIDER_ERROR: Final = failure(
    "spider_error",
    "The spider's code raised an exception on this page.",
    "`zcrawl job JOB` and the worker's log have the message. Correct the spider and retry.",
)
SPIDER_TIMEOUT: Final = failure(
    "spider_timeout",
    "A handler of the spider took longer than spider_limits.timeout and was stopped.",
    "Make it faster, or raise spider_limits.timeout.",
)
SPIDER_MEMORY: Final = failure(
    "spider_memory",
    "The spider's process needed more memory than spider_limits.memory.",
    "Keep less in the spider, or raise spider_limits.memory.",
)
SPIDER_DIED: Final = failure(
    "spider_died",
    "The spider's process ended without an answer.",
    "The worker's log has its last lines. Look for os._exit, or a library that crashes.",
)
SPIDER_LOAD: Final = failure(
    "spider_load",
    "The spider's file cannot be loaded.",
    "Correct the error in the message: a syntax error, a missing import, or another class name.",
    also=(ReasonKind.REFUSAL,),
)
PARSER_ERROR: Final = failure(
    "parser_error",
    "A parser plugin raised an exception on this page.",
    "Report it to the plugin's author, or remove it from `parsers`.",
)
PARSER_TIMEOUT: Final = failure(
    "parser_timeout",
    "A parser plugin did not return in time.",
    "Report it to the plugin's author, or remove it from `parsers`.",
)
MIDDLEWARE_ERROR: Final = failure(
    "middleware_error",
    "A middleware raised an exception, or changed a request or item in a way that is not allowed.",
    "Report it to the plugin's author, or remove it from `middlewares`.",
)
EXECUTOR_ERROR: Final = failure(
    "executor_error",
    "The executor of the job's kind raised an exception.",
    "The message names it. Correct the executor and retry.",
)
EXECUTOR_TIMEOUT: Final = failure(
    "executor_timeout",
    "The executor did not return within fetch.timeout.",
    "Raise fetch.timeout, or make the executor faster.",
)
PLUGIN_STUCK: Final = failure(
    "plugin_stuck",
    "Too many plugin calls that took too long are still running, so the worker makes no new ones.",
    "Restart the worker, and report the plugin that hangs to its author.",
)

# ---------------------------------------------------------------- tasks of kind http and shell

UNMET: Final = failure(
    "unmet",
    "The answer of an HTTP task is not as [http.expect] says. The detail names what is not met.",
    "Look at the service; `zcrawl test JOB.toml` shows the answer. Or correct [http.expect].",
    form=ParameterForm.DETAIL,
)
SHELL_EXIT: Final = failure(
    "shell_exit",
    "The command ended with another exit code than 0, or by a signal.",
    "The message has the code and the last lines of its stderr. Correct the command and retry.",
)
SHELL_TIMEOUT: Final = failure(
    "shell_timeout",
    "The command did not end within shell.timeout, and was ended with all processes it started.",
    "Raise shell.timeout, or make the command faster.",
)
SHELL_TOO_MANY_PROCESSES: Final = failure(
    "shell_too_many_processes",
    "The command had more processes and threads than shell.max_processes. All were ended.",
    "Raise shell.max_processes (workers: worker.shell.max_processes), or start fewer at a time.",
)
SHELL_MEMORY: Final = failure(
    "shell_memory",
    "The processes of the command used more memory together than shell.memory. All were ended.",
    "Raise shell.memory, or let the command use less.",
)
SHELL_START: Final = failure(
    "shell_start",
    "The command could not be started on the worker.",
    "The message says why: install the program, or correct shell.command and shell.cwd.",
)
SHELL_DIED: Final = failure(
    "shell_died",
    "The process that watches the command ended. All that the command had started was ended.",
    "Look for the OOM killer in the kernel's log. It is tried again.",
)
SHELL_LEFT: Final = failure(
    "shell_left",
    "The worker left while the command ran. It was ended, and starts anew on another worker.",
    "Nothing. Commands should be safe to repeat.",
)
SHELL_NOT_ALLOWED: Final = failure(
    "shell_not_allowed",
    "The configuration does not allow the command for jobs.",
    "Workers: worker.shell.any = true, or the command in worker.shell.allow. Masters: "
    "cluster.allow_shell.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.REFUSAL, ReasonKind.WAITING),
)

# ---------------------------------------------------------------- zcrawl itself

QUARANTINED: Final = failure(
    "quarantined",
    "Workers, or the spider's process, ended again and again on this URL. It was given up.",
    "Look at the worker's log. `zcrawl retry JOB --reason quarantined` tries it again.",
)
ATTEMPT_OVERDUE: Final = failure(
    "attempt_overdue",
    "Every worker that had the URL lost it or did not report it in time.",
    "Check the workers' logs and network, then `zcrawl retry JOB --reason attempt_overdue`.",
)
BAD_RESULT: Final = failure(
    "bad_result",
    "A worker's result could not be stored.",
    "Look at the master's log for `bad_result`. Check that all nodes have the same version.",
)
RESULT_UNSENDABLE: Final = failure(
    "result_unsendable",
    "The worker's result is too large for a message, or cannot be encoded.",
    "Extract less from the page, or lower fetch.max_bytes.",
)
INTERNAL_ERROR: Final = failure(
    "internal_error",
    "A bug in zcrawl: an unexpected error.",
    "The log of the node has the traceback. Please report it.",
    also=(ReasonKind.REFUSAL,),
)
BAD_EXTRA: Final = failure(
    "bad_extra",
    "The stored body, headers or meta of a spider's request cannot be read.",
    "Check that all nodes have the same version, then run the job again.",
)
FETCH: Final = failure(
    "fetch",
    "A fetch failed without a more exact code.",
    "`zcrawl test URL` shows what happens. Please report it: each failure should have a code.",
)


def http_status(status: int) -> str:
    """Return the reason of an answer with this status."""
    return f"http_{status}"


def blocked_address(why: str) -> str:
    """Return the reason of a refused address; `why` has its kind: `private (10.1.2.3)`."""
    return with_detail(BLOCKED_ADDRESS, why)
