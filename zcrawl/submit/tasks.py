"""Check the sections of jobs that are not crawls: `[http]` and `[shell]`.

Called by `validate`. Pure. Whether a command is allowed at all is decided by `shell_rights`.

Secrets are references everywhere, and never part of a command line or a URL: `ps` shows the one to
every user of the machine, logs and displays show the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from zcrawl.errors import BadUrl, JobError
from zcrawl.model.reasons.usage import COMMAND_TOO_LONG, SECRET_IN_ARGS
from zcrawl.model.spec import HTTP, RESOURCE, SHELL, HttpExpect, HttpTask, JobSpec, ShellTask
from zcrawl.submit.access import check_only_references, check_secret_header
from zcrawl.submit.seeds import check_seed
from zcrawl.submit.shell_rights import SEED
from zcrawl.text.commands import is_plain_path
from zcrawl.text.expressions import compile_path
from zcrawl.text.patterns import lazy_pattern

MAX_COMMAND: Final = 100_000  # bytes of command, arguments and environment; Linux takes 128 KB each
MAX_TIMEOUT_S: Final = 7 * 86_400.0
LEAST_MEMORY: Final = 10_000_000  # less does not start a program that uses a C library
MAX_OUTPUT: Final = 100_000_000
MOST_PROCESSES: Final = 1_000_000
MAX_BODY: Final = 200_000  # characters of a request
MAX_CHECKS: Final = 100  # headers, and expressions
_REFERENCE = lazy_pattern(r"\$\{((?:secret:)?[A-Za-z0-9_]+)\}")
_METHOD = lazy_pattern(r"[A-Z][A-Z0-9-]{0,19}")
_STATUS = lazy_pattern(r"[1-5]xx|[1-5][0-9]{2}")
_ARGUMENTS = lazy_pattern(r"\s[-/'\"]")
_VARIABLE = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# What programs call their passwords and tokens: `PGPASSWORD`, `API_TOKEN`, `MYSQL_PWD`.
_SECRET_VARIABLE = lazy_pattern(
    r"(?i)passw(?:or)?d|passphrase|(?:^|_)(?:pass|secret|token|credentials?|pwd_?)$|_pwd$"
    r"|secret_|api_?key|(?:access|private|secret)_key"
)


def check_tasks(spec: JobSpec) -> None:
    """Raise JobError for a section that does not fit the job's kind, or makes no sense."""
    if spec.kind == SHELL:
        _check_shell(spec.shell)
    elif spec.shell != ShellTask():
        raise JobError(f"[shell] is for kind = 'shell', and the kind of this job is {spec.kind!r}")
    if spec.kind == HTTP:
        _check_http(spec)
    elif spec.http != HttpTask():
        raise JobError(f"[http] is for kind = 'http', and the kind of this job is {spec.kind!r}")


# ---------------------------------------------------------------- http


def _check_http(spec: JobSpec) -> None:
    http = spec.http
    if not _METHOD.fullmatch(http.method) or http.method in ("CONNECT", "TRACE"):
        raise JobError(
            f"http.method is {http.method[:40]!r}; use GET, HEAD, POST, PUT, PATCH, DELETE or "
            "another method in capital letters, but not CONNECT or TRACE"
        )
    if http.url and spec.seeds:
        raise JobError("http.url and seeds are both given; the seeds are the URLs, remove one")
    if http.url:
        if _REFERENCE.search(http.url.replace(RESOURCE, "")):
            raise JobError(
                "http.url has a secret, which logs and displays would show; put it into "
                "http.headers, http.body or http.auth"
            )
        try:
            check_seed(spec.own_seeds[0])
        except BadUrl as error:
            raise JobError(f"http.url: {error}", code=error.code) from None
    if spec.fetch.engine == "browser":
        raise JobError("kind = 'http' needs fetch.engine = 'http' or 'httpx', not a browser")
    for name, value in http.headers.items():
        check_secret_header(name, value, "http.headers")
    if len(http.body) > MAX_BODY:
        raise JobError(f"http.body has {len(http.body)} characters; at most {MAX_BODY}")
    auth = http.auth
    if auth.bearer or auth.user or auth.password:
        if bool(auth.bearer) == bool(auth.user):
            raise JobError(
                'http.auth: write either { user = "me", password = "${PW}" } or '
                '{ bearer = "${TOKEN}" }'
            )
        check_only_references(auth.bearer or auth.password, "http.auth")
        if any(name.lower() == "authorization" for name in http.headers):
            raise JobError("http.auth and a header Authorization are both given; remove one")
    _check_expect(http.expect)


def _check_expect(expect: HttpExpect) -> None:
    for status in statuses(expect):
        if not _STATUS.fullmatch(status):
            raise JobError(
                f"http.expect.status: {status[:40]!r} is not a status; write 200, '2xx', or a "
                "list of such"
            )
    if not statuses(expect):
        raise JobError("http.expect.status is empty; write 200, '2xx', or a list of such")
    for key, table in (("headers", expect.headers), ("json", expect.json)):
        if len(table) > MAX_CHECKS:
            raise JobError(f"http.expect.{key} has {len(table)} entries; at most {MAX_CHECKS}")
    for name in expect.headers:
        if not name.strip() or not name.isascii():
            raise JobError(f"http.expect.headers: {name[:40]!r} is not a header's name")
    for expression, value in expect.json.items():
        compile_path(expression, f"http.expect.json, {expression[:80]!r}")
        if not _is_json(value):
            raise JobError(
                f"http.expect.json, {expression[:80]!r}: a date cannot be compared with JSON; "
                "write it in quotes"
            )
    if not (math.isfinite(expect.latency_ms) and expect.latency_ms >= 0):
        raise JobError(
            f"http.expect.latency_ms is {expect.latency_ms}; it must be milliseconds, or 0 for no "
            "limit"
        )


def statuses(expect: HttpExpect) -> tuple[str, ...]:
    """Return the expected statuses as texts: `200`, `2xx`."""
    status = expect.status
    return tuple(map(str, status)) if isinstance(status, tuple) else (str(status),)


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float | bool)


# ---------------------------------------------------------------- shell


def check_command_length(spec: JobSpec) -> None:
    """Refuse a command line that no system would start. Called before anything else reads it."""
    if spec.kind != SHELL:
        return
    task = spec.shell
    size = _bytes_of(task.command, *task.args, *task.env, *task.env.values())
    if size > MAX_COMMAND:
        raise JobError(
            f"shell: command, args and env have {size} bytes together; at most {MAX_COMMAND}. Put "
            "long values into a file on the workers",
            code=COMMAND_TOO_LONG,
        )


def _bytes_of(*texts: str) -> int:
    return sum(len(text.encode("utf-8", "surrogateescape")) + 1 for text in texts)


def _check_shell(task: ShellTask) -> None:
    if not task.command:
        raise JobError(
            "kind = 'shell' needs a command: [shell] command = '/usr/bin/rsync', args = ['-a', ...]"
        )
    _check_texts("shell.command", [task.command])
    has_arguments = _ARGUMENTS.search(task.command) is not None
    if not is_plain_path(task.command) or has_arguments:
        beside = "; its arguments belong into shell.args" if has_arguments else ""
        raise JobError(
            f"shell.command is {task.command[:200]!r}; write the absolute path of a program, such "
            f"as '/usr/bin/rsync', without '..'{beside}"
        )
    _check_texts("shell.args", task.args)
    _refuse_secret("shell.command", task.command)
    _refuse_secret("shell.cwd", task.cwd)
    for number, word in enumerate(task.args, 1):
        _refuse_secret(f"shell.args, entry {number}", word)
    if task.cwd:
        _check_texts("shell.cwd", [task.cwd])
        if task.cwd != "/" and not is_plain_path(task.cwd.removesuffix("/")):
            raise JobError(
                f"shell.cwd is {task.cwd[:200]!r}; write the absolute path of a folder on the "
                "workers, without '..', or leave it out"
            )
    _check_texts("shell.env", task.env.values())
    for name, value in task.env.items():
        if not _VARIABLE.fullmatch(name):
            raise JobError(
                f"shell.env: {name[:80]!r} is not the name of a variable; use letters, digits and _"
            )
        if _SECRET_VARIABLE.search(name):
            check_only_references(value, f"shell.env.{name}")
    _check_limits(task)


def _check_limits(task: ShellTask) -> None:
    for key, value, least in (
        ("timeout", task.timeout, 0.001),
        ("cpu_time", task.cpu_time, 0.0),
    ):
        if not (math.isfinite(value) and least <= value <= MAX_TIMEOUT_S):
            above = "above 0" if least else "from 0"
            raise JobError(f"shell.{key} is {value}; it must be seconds {above}, at most a week")
    if not LEAST_MEMORY <= task.memory <= 2**50:
        raise JobError(f"shell.memory is {task.memory}; it must be {LEAST_MEMORY} bytes or more")
    if not 0 <= task.max_processes <= MOST_PROCESSES:
        raise JobError(
            f"shell.max_processes is {task.max_processes}; it must be 1 to {MOST_PROCESSES}, or 0 "
            "for the default of the worker"
        )
    if not 0 <= task.max_output <= MAX_OUTPUT:
        raise JobError(f"shell.max_output is {task.max_output}; it must be 0 to {MAX_OUTPUT} bytes")


def _check_texts(key: str, texts: Any) -> None:
    for text in texts:
        if "\0" in text:
            raise JobError(f"{key}: a NUL character cannot be passed to a program")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise JobError(f"{key}: {text[:80]!r} is not text that can be encoded") from None


def _refuse_secret(key: str, text: str) -> None:
    secret = next((match for match in _REFERENCE.finditer(text) if match[0] != SEED), None)
    if secret is not None:
        raise JobError(
            f"{key} has the secret {secret[0]}, which `ps` would show to every user of the "
            f"machine; put it into [shell.env]. To let a shell expand a variable, write "
            f"${secret[1]}",
            code=SECRET_IN_ARGS,
        )
    if SEED in text and not key.startswith("shell.args"):
        raise JobError(f"{key} has {SEED}, which can only stand in shell.args")


def needs_seeds(spec: JobSpec) -> bool:
    """Return whether a job that is not a crawl has nothing to do without seeds."""
    if spec.kind == HTTP:
        return True
    return spec.kind == SHELL and any(SEED in word for word in spec.shell.args)


def with_seed(args: Sequence[str], seed: str | None) -> tuple[str, ...]:
    """Return the arguments of the task of this seed."""
    return tuple(args) if seed is None else tuple(word.replace(SEED, seed) for word in args)
