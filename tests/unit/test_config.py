"""Configuration: precedence, origins, and errors that name key, place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from zcrawl.config import Config, all_keys, resolve
from zcrawl.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "configs" / "zcrawl.toml"


def refusal(text: str | None = None, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(text, "zcrawl.toml", environ)
    return str(caught.value)


def test_flags_win_over_environment_over_file_over_defaults() -> None:
    """Each value comes from the first place that has it, and the origin says which."""
    text = "[worker]\nslots = 1\nprocesses = 2\nrate = 3.0\n"
    environ = {"ZCRAWL_WORKER__SLOTS": "10", "ZCRAWL_WORKER__PROCESSES": "20"}
    settings = resolve(text, "zcrawl.toml", environ, {"worker.slots": 100, "data.dir": None})
    worker = settings.config.worker
    assert (worker.slots, worker.processes, worker.rate, worker.bandwidth) == (100, 20, 3.0, 0.0)
    assert settings.origins["worker.slots"] == "flag"
    assert settings.origins["worker.processes"] == "ZCRAWL_WORKER__PROCESSES"
    assert settings.origins["worker.rate"] == "zcrawl.toml"
    assert settings.origins["worker.bandwidth"] == "default"


def test_the_example_file_holds_every_key_at_its_default() -> None:
    """configs/zcrawl.toml documents the defaults, all of them, and they are true."""
    settings = resolve(EXAMPLE.read_text(), "example", {})
    assert settings.config == Config()
    assert set(settings.origins.values()) == {"example"}
    assert list(settings.values()) == all_keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[worker]\nslot = 1",
            "zcrawl.toml: unknown key 'worker.slot'; did you mean 'worker.slots'?",
        ),
        ("[wroker]\nslots = 1", "zcrawl.toml: unknown key 'wroker'; did you mean 'worker'?"),
        ("slots = 1", "zcrawl.toml: unknown key 'slots'; did you mean 'worker.slots'?"),
        (
            '[worker]\nslots = "1"',
            "zcrawl.toml: worker.slots: a whole number is needed, not text in quotes (write it "
            "without quotes)",
        ),
        ("worker = 1", "zcrawl.toml: 'worker' is a section; write [worker], with keys below it"),
        ('[log]\nlevel = "loud"', "zcrawl.toml: log.level: invalid enum value 'loud'"),
    ],
)
def test_a_wrong_file_is_told_with_key_file_and_remedy(text: str, message: str) -> None:
    """Nothing in a file is ignored in silence."""
    assert refusal(text) == message


@pytest.mark.parametrize(
    "text",
    [
        "[worker]\nslots = 0",
        "[worker]\nprocesses = -1",
        "[worker]\nrate = -0.1",
        "[worker]\nrate = nan",
        "[worker]\nbandwidth = inf",
        '[data]\ndir = ""',
    ],
)
def test_values_that_make_no_sense_are_refused(text: str) -> None:
    """The message begins with the place that the value came from, and its key."""
    section, key = text.partition(" =")[0].removeprefix("[").split("]\n")
    assert refusal(text).startswith(f"zcrawl.toml: {section}.{key} is ")


def test_text_that_is_no_toml_is_refused_with_its_place() -> None:
    """tomllib's line and column reach the user."""
    assert refusal("x = ").startswith("zcrawl.toml: not valid TOML: Invalid value (at ")


def test_a_wrong_variable_is_told_by_its_own_name() -> None:
    """Who set a variable looks for that name, not for a key in a file that has none."""
    message = refusal(ZCRAWL_WORKER__SLOT="1")
    assert message == (
        "environment: unknown key 'ZCRAWL_WORKER__SLOT'; did you mean 'ZCRAWL_WORKER__SLOTS'?"
    )
    assert refusal(ZCRAWL_WORKER__SLOTS="many").startswith("ZCRAWL_WORKER__SLOTS: worker.slots")


def test_other_variables_of_ours_and_of_others_are_left_alone() -> None:
    """Only names with a section and a key are configuration."""
    environ = {"ZCRAWL_DEBUG": "1", "ZCRAWL_CONFIG": "x", "PATH": "/bin", "ZCRAWL_HOME": "y"}
    assert resolve(None, "x", environ).config == Config()


RIGHTS = """
[worker]
tls_files = ["/etc/zcrawl/tls/"]
[outputs]
allow = ["s3://bucket/prefix/", "/srv/crawls"]
[secrets.KEY]
hosts = ["shop.test", "*.cdn.test:8443"]
[secrets.Other_1]
"""


def test_what_jobs_may_use_is_read_and_shown() -> None:
    """Secrets by their names, with their hosts, from the file or from the environment; their values
    are no part of the configuration."""
    environ = {"ZCRAWL_SECRETS__PW": "a.test, b.test:81", "ZCRAWL_SECRET_PW": "hunter2"}
    settings = resolve(RIGHTS, "zcrawl.toml", environ)
    assert settings.config.outputs.allow == ("s3://bucket/prefix/", "/srv/crawls")
    assert settings.config.worker.tls_files == ("/etc/zcrawl/tls/",)
    hosts = {name: secret.hosts for name, secret in settings.config.secrets.items()}
    assert hosts == {
        "KEY": ("shop.test", "*.cdn.test:8443"),
        "Other_1": (),
        "PW": ("a.test", "b.test:81"),
    }
    shown = {"hosts": ("a.test", "b.test:81"), "commands": ()}
    assert settings.values()["secrets.PW"] == shown
    assert settings.origins["secrets.PW"] == "ZCRAWL_SECRETS__PW"
    assert settings.origins["secrets.KEY"] == "zcrawl.toml"
    assert "hunter2" not in str(settings.values())
    other = resolve(RIGHTS, "x", {"ZCRAWL_SECRETS__KEY": "", "ZCRAWL_OUTPUTS__ALLOW": "/a/ /b/"})
    assert other.config.secrets["KEY"].hosts == ()
    assert other.config.outputs.allow == ("/a/", "/b/")


COMMANDS = """
[worker]
slots = 4
[worker.shell]
allow = ["/usr/bin/rsync -a *", "/opt/jobs/* *"]
env = ["LEVEL"]
[secrets.PW]
commands = ["/usr/bin/pg_dump *"]
"""


def test_the_commands_that_jobs_may_run_are_read_from_a_section_of_the_workers() -> None:
    """From the file, from the environment (patterns have spaces, so `;` separates them), and with
    the origin of each key."""
    settings = resolve(COMMANDS, "zcrawl.toml", {"ZCRAWL_WORKER__SHELL__FOLDERS": "/srv/a,/srv/b"})
    shell = settings.config.worker.shell
    assert shell.allow == ("/usr/bin/rsync -a *", "/opt/jobs/* *")
    assert (shell.any, shell.env, shell.folders) == (False, ("LEVEL",), ("/srv/a", "/srv/b"))
    assert settings.config.worker.slots == 4
    assert settings.config.secrets["PW"].commands == ("/usr/bin/pg_dump *",)
    assert settings.origins["worker.shell.allow"] == "zcrawl.toml"
    assert settings.origins["worker.shell.folders"] == "ZCRAWL_WORKER__SHELL__FOLDERS"
    assert settings.origins["worker.shell.any"] == "default"
    assert settings.values()["worker.shell.env"] == ("LEVEL",)
    environ = {"ZCRAWL_WORKER__SHELL__ANY": "true", "ZCRAWL_WORKER__SHELL__ALLOW": "/a b; /c"}
    other = resolve(None, "x", environ).config.worker.shell
    assert (other.any, other.allow) == (True, ("/a b", "/c"))


@pytest.mark.parametrize("key", ["processes", "max_processes"])
def test_a_command_may_have_at_least_one_process(key: str) -> None:
    """The message has the key and the value."""
    with pytest.raises(ConfigError, match=f"worker.shell.{key} is 0; it must be 1 or more"):
        resolve(f"[worker.shell]\n{key} = 0\n", "x", {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[worker.shell]\nallow = ["rsync *"]', "worker.shell.allow: 'rsync *': begin with"),
        ('[worker.shell]\nallow = ["/usr/bin/../x"]', "worker.shell.allow"),
        ('[worker.shell]\nallow = ["/usr/*/rsync"]', "worker.shell.allow"),
        ('[worker.shell]\nallow = [""]', "worker.shell.allow: a pattern is empty"),
        ('[worker.shell]\nallow = ["/bin/a \'b"]', "No closing quotation"),
        ('[worker.shell]\nallow = "/bin/a"', "worker.shell.allow: a list is needed"),
        ("[worker.shell]\nany = 1", "worker.shell.any: true or false is needed"),
        ('[worker.shell]\nfolders = ["data"]', "worker.shell.folders"),
        ('[worker.shell]\nfolders = ["s3://bucket/x/"]', "is not a folder of this machine"),
        ("[worker.shell]\nalow = []", "unknown key 'worker.shell.alow'; did you mean"),
        ("[worker]\nshell = true", "'worker.shell' is a section; write [worker.shell]"),
        ('[secrets.PW]\ncommands = ["pg_dump"]', "secrets.PW: 'pg_dump': begin with"),
        ('[outputs]\nallow = ["relative/"]', "outputs.allow"),
        ('[outputs]\nallow = ["/"]', "outputs.allow"),
        ('[outputs]\nallow = ["/srv/../etc"]', "outputs.allow"),
        ('[outputs]\nallow = ["gs://bucket/"]', "outputs.allow"),
        ('[outputs]\nallow = "/srv/"', "outputs.allow"),
        ('[worker]\ntls_files = ["s3://bucket/tls/"]', "worker.tls_files"),
        ('[worker]\ntls_files = ["tls"]', "worker.tls_files"),
        ('[secrets.PW]\nhosts = ["*"]', "secrets.PW"),
        ('[secrets.PW]\nhosts = ["https://a.test/"]', "secrets.PW"),
        ('[secrets.PW]\nhosts = "a.test"', "secrets.PW.hosts: a list is needed"),
        ('[secrets.PW]\nhost = ["a.test"]', "unknown field"),
        ('[secrets.PW]\nvalue = "hunter2"', "unknown field"),
        ('[secrets."a-b"]\nhosts = ["a.test"]', "secrets.a-b"),
        ('[secrets]\nPW = "hunter2"', "secrets"),
        ("secrets = 1", "section"),
    ],
)
def test_a_right_that_cannot_be_read_is_refused(text: str, words: str) -> None:
    """It must not be taken for another, or for none."""
    message = refusal(text)
    assert message.startswith("zcrawl.toml: "), message
    assert words in message, message
    assert "hunter2" not in message
    assert refusal(ZCRAWL_SECRETS__PW="*.com").startswith("ZCRAWL_SECRETS__PW: ")
