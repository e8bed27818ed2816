"""The command line as a whole: start-up, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from zcrawl import __version__
from zcrawl.cli.base import wants_rich_help
from zcrawl.cli.main import COMMANDS, cli, run
from zcrawl.errors import RefusedError, UnreachableError


def shell(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zcrawl", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


def test_help_imports_nothing_heavy() -> None:
    """Start-up stays short because only click is loaded; a timed test could not tell that."""
    code = (
        "import sys\nfrom zcrawl.cli.main import run\nassert run(['--help']) == 0\n"
        "heavy = 'aiohttp zmq peewee textual httpx msgspec msgpack rich rich_click uvloop'\n"
        "print('loaded:', *(name for name in heavy.split() if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "loaded:"


def test_a_commands_help_imports_no_network_and_no_database() -> None:
    """`zcrawl crawl --help` loads what it parses with, and no more."""
    code = (
        "import sys\nfrom zcrawl.cli.main import run\nassert run(['crawl', '--help']) == 0\n"
        "heavy = 'aiohttp zmq peewee textual httpx uvloop rich'\n"
        "print('loaded:', *(name for name in heavy.split() if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "loaded:"


def test_every_command_loads_and_its_help_is_the_one_in_the_table() -> None:
    """The table spares imports; it must not say something else than the command itself."""
    for name, (_, short) in COMMANDS.items():
        command = cli.load(name)
        assert command.name == name
        assert (command.help or "").split("\n")[0] == short, name


def test_every_command_has_json_and_all_options_have_help() -> None:
    """`--json` everywhere, and no option without an explanation."""
    for name in COMMANDS:
        command = cli.load(name)
        leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        for leaf in leaves:
            options = [param for param in leaf.params if isinstance(param, click.Option)]
            assert "--json" in [flag for option in options for flag in option.opts], name
            assert all(option.help for option in options), name


def test_commands_have_the_options_that_the_manual_promises() -> None:
    """docs/commands.md: `--data` and `--config`, in all but those that touch neither."""
    without = {
        "init",
        "keys new",
        "keys show",
        "secret key",
        "secret seal",
        "keys revoke",
        "keys allow",
        "config validate",
        "config schema",
        "reasons",
    }
    for name in COMMANDS:
        command = cli.load(name)
        group = isinstance(command, click.Group)
        leaves = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        for word, leaf in leaves:
            flags = {flag for param in leaf.params for flag in param.opts}
            path = f"{name} {word}" if group else name
            assert ({"--data", "--config"} <= flags) == (path not in without), path


def test_rich_draws_help_on_a_terminal_only() -> None:
    """Pipes get plain text at once; people get colours for a tenth of a second."""
    assert wants_rich_help(["--help"], True)
    assert wants_rich_help([], True)
    assert not wants_rich_help(["--help"], False)
    assert not wants_rich_help(["crawl", "https://x/"], True)


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments the help is shown, and the exit code is 0."""
    assert run([]) == 0
    assert "crawl" in capsys.readouterr().out


def test_the_version_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The first question of every bug report."""
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["crowl"], "No such command 'crowl'. Did you mean 'crawl'?"),
        (["crawl", "--dept", "3"], "No such option '--dept'"),
        (["crawl", "https://x/", "--depth", "-1"], "Invalid value for '--depth'"),
        (["crawl", "https://x/", "--depth", "x"], "Invalid value for '--depth'"),
        (["crawl", "example.com"], "has no scheme. Try https://example.com"),
        (["crawl"], "nothing to crawl"),
        (["crawl", "https://x/", "--rate", "nan"], "politeness.rate is nan"),
        (["crawl", "https://x/", "--timeout", "0"], "fetch.timeout is 0.0"),
        (["crawl", "https://x/", "--include", "("], "not an RE2 expression"),
        (["crawl", "https://x/", "--out", "x.json"], "name the file x.jsonl"),
        (["crawl", "https://x/", "--out", "x.warc"], ".parquet, .warc.gz"),
        (["crawl", "--job", "/nope.toml"], "/nope.toml: no such file; `zcrawl init nope` writes"),
        (["crawl", "--seeds", "/nope.txt"], "--seeds /nope.txt: no such file"),
        (["crawl", "--resume", "https://x/"], "--resume continues the submitted crawl"),
        (["crawl", "--resume", "--data", "/nope"], "/nope does not exist"),
        (["submit", "https://x/", "--update", "--again"], "cannot be used together"),
        (["submit", "a.toml", "https://x/"], "a.toml is a job file, and URLs were given too"),
        (["submit", "https://x/", "--out", "-"], "--out - is for `zcrawl crawl`"),
        (["jobs", "--config", "/nope.toml"], "/nope.toml: no such file"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A usage error is one line on stderr; stdout stays empty."""
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("zcrawl: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_with_json_an_error_is_an_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read the code, people the message."""
    assert run(["crawl", "example.com", "--json"]) == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert error["code"] == "bad_url"
    assert "example.com" in error["message"]
    assert captured.err == ""


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (UnreachableError("nobody"), 3, "zcrawl: nobody [unreachable]"),
        (RefusedError("no", code="name_exists"), 1, "zcrawl: no [name_exists]"),
        (KeyboardInterrupt(), 130, "zcrawl: interrupted [interrupted]"),
        (ValueError("bug"), 1, "zcrawl: internal error: ValueError: bug"),
        (RefusedError("a\x1b[31m\nb"), 1, "zcrawl: a\\x1b[31m b [refused]"),
    ],
)
def test_each_error_has_its_exit_code_and_no_traceback(
    error: BaseException,
    code: int,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also a bug of ours is one line, and no text can drive the terminal."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "main", fail)
    monkeypatch.delenv("ZCRAWL_DEBUG", raising=False)
    assert run(["x"]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(shown)
    assert captured.err.count("\n") == 1


def test_a_developer_gets_the_traceback() -> None:
    """ZCRAWL_DEBUG=1 shows where an error came from."""
    done = shell("crawl", "example.com", ZCRAWL_DEBUG="1")
    assert "Traceback" in done.stderr
    assert shell("crawl", "example.com").stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`zcrawl … | head -1` ends without a traceback."""
    code = (
        "import os, sys, zcrawl.cli.main as m\n"
        "r, w = os.pipe(); os.dup2(w, 1); os.close(w); os.close(r)\n"
        "m.main(['config', 'show'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_config_show_tells_where_values_come_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """File, environment, flag and default, each by its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    Path("zcrawl.toml").write_text("[worker]\nslots = 7\n")
    monkeypatch.setenv("ZCRAWL_LOG__LEVEL", "debug")
    assert run(["config", "show", "--json", "--data", "d"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["worker.slots"] == {"value": 7, "from": "zcrawl.toml"}
    assert shown["log.level"] == {"value": "debug", "from": "ZCRAWL_LOG__LEVEL"}
    assert shown["data.dir"] == {"value": "d", "from": "flag"}
    assert shown["worker.rate"] == {"value": 0.0, "from": "default"}


def test_config_validate_judges_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit 0 and the file's name, or exit 2 and the reason."""
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("[worker]\nslots = 7\n")
    bad.write_text("[worker]\nslots = 0\n")
    assert run(["config", "validate", str(good)]) == 0
    assert "good.toml: ok" in capsys.readouterr().err
    assert run(["config", "validate", str(bad)]) == 2
    assert "worker.slots is 0" in capsys.readouterr().err
