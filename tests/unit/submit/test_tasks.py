"""The sections [http] and [shell] of a job: what is refused, by which key, with which remedy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from zcrawl.errors import JobError, RefusedError
from zcrawl.model.spec import JobSpec, ShellTask
from zcrawl.submit.code import begins_by_itself
from zcrawl.submit.shell_rights import (
    NO_COMMANDS,
    ShellRights,
    of_masters,
    waiting_for_right,
    with_shell_right,
)
from zcrawl.submit.validate import advice, spec_from_dict

URL = "https://api.test/health"


def job(**table: Any) -> JobSpec:
    return spec_from_dict({"name": "x", **table}, "job.toml")


def http(**section: Any) -> JobSpec:
    return job(kind="http", http={"url": URL, **section})


def shell(**section: Any) -> JobSpec:
    return job(kind="shell", shell={"command": "/bin/echo", **section})


def refusal(call: Any, **table: Any) -> str:
    with pytest.raises(JobError) as caught:
        call(**table)
    return f"{caught.value.code}: {caught.value}"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"method": "get"}, "http.method is 'get'"),
        ({"method": "CONNECT"}, "http.method"),
        ({"method": "TRACE"}, "http.method"),
        ({"method": "A B"}, "http.method"),
        ({"url": "api.test"}, "http.url: not a valid URL"),
        ({"url": "https://me:pw@api.test/"}, "http.url"),
        ({"url": "https://api.test/?key=${KEY}"}, "http.url has a secret"),
        ({"url": "ftp://api.test/"}, "http.url"),
        ({"headers": {"X-Api-Key": "abc"}}, "secret_written_out: job.toml: http.headers, X-Api"),
        ({"headers": {"Authorization": "Bearer abc${X}"}}, "secret_written_out"),
        ({"headers": {"Host": "other"}}, "http.headers: a job cannot set Host"),
        ({"headers": {"Content-Length": "1"}}, "zcrawl sets Content-Length itself"),
        ({"headers": {"a b": "x"}}, "http.headers: 'a b' is not a header's name"),
        ({"headers": {"a": "x\r\ny: z"}}, "has control characters"),
        ({"headers": {"a": 5}}, "http.headers"),
        ({"body": 5}, "http.body: text in quotes is needed"),
        ({"body": "x" * 200_001}, "http.body has 200001 characters"),
        ({"auth": {"user": "me"}}, "secret_written_out"),
        ({"auth": {"password": "${PW}"}}, "http.auth: write either"),
        ({"auth": {"user": "me", "password": "pw"}}, "secret_written_out"),
        ({"auth": {"bearer": "abc"}}, "secret_written_out"),
        ({"auth": {"bearer": "${A}", "user": "me"}}, "http.auth: write either"),
        (
            {"auth": {"bearer": "${A}"}, "headers": {"authorization": "${A}"}},
            "http.auth and a header Authorization",
        ),
        ({"expect": {"status": "ok"}}, "http.expect.status: 'ok' is not a status"),
        ({"expect": {"status": 99}}, "http.expect.status: '99'"),
        ({"expect": {"status": []}}, "http.expect.status is empty"),
        ({"expect": {"status": [200, "9xx"]}}, "'9xx' is not a status"),
        ({"expect": {"status": 2.5}}, "http.expect.status"),
        ({"expect": {"headers": {"": "x"}}}, "is not a header's name"),
        ({"expect": {"json": {"a[": True}}}, "http.expect.json, 'a[': not a JMESPath expression"),
        ({"expect": {"latency_ms": -1}}, "http.expect.latency_ms is -1"),
        ({"expect": {"latency_ms": float("nan")}}, "http.expect.latency_ms"),
        ({"expect": {"stat": 200}}, "unknown key 'http.expect.stat'; did you mean"),
        ({"ur": URL}, "unknown key 'http.ur'; did you mean"),
    ],
)
def test_an_http_task_that_makes_no_sense_is_refused(section: dict[str, Any], words: str) -> None:
    """By its key, before anything is stored."""
    assert words in refusal(http, **section)


def test_a_date_in_an_expectation_is_refused() -> None:
    """TOML has dates and JSON has none, so the comparison would never hold."""
    import datetime

    text = refusal(http, expect={"json": {"day": datetime.date(2026, 1, 1)}})
    assert "a date cannot be compared with JSON" in text


def test_an_http_task_has_one_source_of_urls_and_no_browser() -> None:
    """Its URL or seeds; seeds may also come later, from a list."""
    assert "http.url and seeds are both given" in refusal(
        job, kind="http", seeds=[URL], http={"url": URL}
    )
    engine = {"engine": "browser"}
    assert "not a browser" in refusal(job, kind="http", http={"url": URL}, fetch=engine)
    assert http().own_seeds == (URL,)
    seeded = job(kind="http", seeds=[URL])
    assert seeded.own_seeds == (URL,)
    assert not begins_by_itself(job(kind="http"), [])


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"command": ""}, "kind = 'shell' needs a command"),
        ({"command": "rsync"}, "write the absolute path of a program"),
        ({"command": "/usr/bin/rsync -a /x"}, "its arguments belong into shell.args"),
        ({"command": "/usr/bin/../bin/sh"}, "without '..'"),
        ({"command": "/bin/${X}"}, "secret_in_args"),
        ({"args": "x"}, "shell.args: a list is needed"),
        ({"args": ["a", "${PW}"]}, "secret_in_args: job.toml: shell.args, entry 2 has the secret"),
        ({"args": ["--password=${PW}"]}, "put it into [shell.env]"),
        ({"args": ["a\0b"]}, "shell.args: a NUL character"),
        ({"args": ["\udc80"]}, "is not text that can be encoded"),
        ({"cwd": "data"}, "shell.cwd is 'data'"),
        ({"cwd": "/srv/../etc"}, "shell.cwd"),
        ({"cwd": "/srv/${seed}"}, "can only stand in shell.args"),
        ({"env": {"A-B": "x"}}, "shell.env: 'A-B' is not the name of a variable"),
        ({"env": {"A": "x\0"}}, "shell.env: a NUL character"),
        ({"env": {"PGPASSWORD": "hunter2"}}, "secret_written_out: job.toml: shell.env.PGPASSWORD"),
        ({"env": {"API_TOKEN": "x"}}, "secret_written_out"),
        ({"env": {"MYSQL_PWD": "x"}}, "secret_written_out"),
        ({"timeout": 0}, "shell.timeout is 0"),
        ({"timeout": float("inf")}, "shell.timeout"),
        ({"cpu_time": -1}, "shell.cpu_time is -1"),
        ({"memory": 1000}, "shell.memory is 1000"),
        ({"max_output": -1}, "shell.max_output is -1"),
        ({"max_output": 10**9}, "shell.max_output"),
        ({"cmd": "x"}, "unknown key 'shell.cmd'"),
        ({"args": ["x" * 1_000_000]}, "command_too_long: job.toml: shell: command, args and env"),
        ({"args": ["x"] * 60_000}, "command_too_long"),
        ({"env": {"A": "x" * 100_001}}, "command_too_long"),
    ],
)
def test_a_shell_task_that_makes_no_sense_is_refused(section: dict[str, Any], words: str) -> None:
    """By its key, before anything is stored; a secret in a command line by a name of its own."""
    assert words in refusal(shell, **section)


def test_what_a_shell_expands_and_what_is_filled_in_later_is_no_secret() -> None:
    """`$HOME` is the shell's, `${params.day}` the run's, `${seed}` the task's."""
    args = ["-c", "echo $HOME", "${params.day}", "${seed}"]
    section = {"command": "/bin/echo", "args": args, "env": {"PW": "${PW}"}}
    spec = job(kind="shell", shell=section, params={"day": "monday"})
    assert spec.shell.args[2:] == ("${params.day}", "${seed}")
    assert not begins_by_itself(spec, []), "it has nothing to do without seeds"
    assert begins_by_itself(shell(), [])


def test_variables_that_only_sound_like_secrets_may_be_written_out() -> None:
    """The check is for names of passwords, not for every word with such letters."""
    env = {"TOKENIZERS_PARALLELISM": "false", "PWD_X": "1", "KEYBOARD": "us", "PASSENGERS": "3"}
    assert shell(env={name: v for name, v in env.items() if name != "PWD_X"}).shell.env


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"shell": {"command": "/bin/true"}}, "[shell] is for kind = 'shell', and the kind of"),
        (
            {"http": {"url": URL}},
            "[http] is for kind = 'http', and the kind of this job is 'crawl'",
        ),
        ({"kind": "mine", "http": {"url": URL}}, "[http] is for kind = 'http'"),
        ({"kind": "http", "http": {"url": URL}, "extract": {}}, "extract is for crawls"),
        ({"kind": "http", "http": {"url": URL}, "plugins": {"http": {}}}, "plugins.http"),
        ({"kind": "shell", "shell": {"command": "/a"}, "spider": "a.b:C"}, "spider is for crawls"),
        ({"kind": "http", "http": {"url": URL}, "recrawl": {"incremental": True}}, "incremental"),
    ],
)
def test_a_section_of_another_kind_is_refused(table: dict[str, Any], words: str) -> None:
    """What nobody would act on is not ignored in silence."""
    assert words in refusal(job, **table)


def test_only_plugins_are_warned_about() -> None:
    """A call is made by zcrawl, a command runs in a process of its own."""
    assert (advice(http()), advice(shell())) == ("", "")
    assert "executor 'mine'" in advice(job(kind="mine"))


def test_a_task_says_how_long_it_may_take() -> None:
    """Leader and owners wait that long before they call an attempt overdue."""
    assert shell(timeout=3600).attempt_s == 3600
    assert http().attempt_s == 20


# ---------------------------------------------------------------- rights

ALLOW = ShellRights(allow=("/bin/echo a *", "/bin/date"), env=("LEVEL",), folders=("/srv/data/",))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"args": ("a", "b")}, ""),
        ({"args": ("b",)}, "no pattern of worker.shell.allow covers '/bin/echo'"),
        ({"command": "/bin/sh", "args": ("a",)}, "covers '/bin/sh'"),
        ({"args": ("a",), "env": {"LEVEL": "1"}}, ""),
        ({"args": ("a",), "env": {"LD_PRELOAD": "/x"}}, "the variable 'LD_PRELOAD'"),
        ({"args": ("a",), "cwd": "/srv/data/x"}, ""),
        ({"args": ("a",), "cwd": "/srv/data"}, ""),
        ({"args": ("a",), "cwd": "/srv/data-evil"}, "the folder '/srv/data-evil'"),
        ({"args": ("a",), "cwd": "/etc"}, "the folder '/etc'"),
    ],
)
def test_a_configuration_allows_commands_variables_and_folders(
    task: dict[str, Any], words: str
) -> None:
    """With patterns, all three have to be named: a variable or a folder can change what a program
    does."""
    why = ALLOW.refusal(ShellTask(**{"command": "/bin/echo", **task}))
    assert (words in why) if words else not why


def test_arguments_that_are_not_known_yet_are_judged_later() -> None:
    """At submission `${params.x}` may become anything; the worker judges what it became."""
    task = ShellTask("/bin/echo", ("${params.word}",))
    assert ALLOW.refusal(task) == ""
    assert ALLOW.refusal(task, ("b",)) != ""
    assert ALLOW.refusal(task, ("a",)) == ""
    other = ShellTask("/bin/sh", ("${params.word}",))
    assert ALLOW.refusal(other) != ""


def test_nothing_is_allowed_by_default_and_the_refusal_says_what_to_do() -> None:
    """Of a machine of one's own, and of a cluster."""
    spec = shell()
    for rights, words in (
        (ShellRights(), "[worker.shell]"),
        (NO_COMMANDS, "cluster.allow_shell = true"),
        (of_masters(False), "cluster.allow_shell = true"),
    ):
        with pytest.raises(RefusedError) as refused:
            with_shell_right(spec, rights)
        assert refused.value.code == "shell_not_allowed"
        assert words in str(refused.value)
        assert waiting_for_right(spec, rights).startswith("shell_not_allowed: ")
    for rights in (ShellRights(any=True), of_masters(True)):
        with_shell_right(spec, rights)
        assert waiting_for_right(spec, rights) == ""
    with_shell_right(http(), NO_COMMANDS)
    assert msgspec.json.decode(msgspec.json.encode(ALLOW), type=ShellRights) == ALLOW
