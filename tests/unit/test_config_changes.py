"""What a changed configuration means for a running node: what is live, and what needs a restart."""

from __future__ import annotations

import msgspec
import pytest

from zcrawl.config import HIDDEN, SECRETS, Config, SecretConfig, all_keys, resolve
from zcrawl.config_changes import KEY_USES, KeyUse, NodeKind, changes, diff_lines, line_of
from zcrawl.errors import ConfigError
from zcrawl.model.reload_report import LINE_MOST, LINES_MOST


def config(text: str) -> Config:
    return resolve(text, "zcrawl.toml", {}).config


def test_every_key_says_whether_a_new_value_is_live() -> None:
    """A new key of the configuration must be put into the table, and a removed one taken out."""
    assert set(KEY_USES) == {*all_keys(), SECRETS}


def test_every_kind_of_node_has_live_keys_and_keys_that_wait() -> None:
    """The table is not a formality."""
    for kind in NodeKind:
        uses = {use.of(kind) for use in KEY_USES.values()}
        assert {KeyUse.LIVE, KeyUse.RESTART, KeyUse.UNUSED} <= uses


def test_live_values_are_applied_and_shown_old_and_new() -> None:
    """A line for each key that differs, in the order of the configuration."""
    old = config('[worker]\nslots = 32\nlabels = ["eu"]\n')
    new = config('[worker]\nslots = 5\nrate = 2.5\nlabels = ["eu", "gpu"]\n[log]\nlevel = "error"')
    change = changes(old, new, NodeKind.WORKER)
    assert change.report.changed == [
        "worker.slots: 32 → 5",
        "worker.labels: [eu] → [eu, gpu]",
        "worker.rate: 0 → 2.5",
        "log.level: info → error",
    ]
    assert (change.config, change.report.waiting) == (new, [])
    assert set(change.uses) == {KeyUse.LIVE}


def test_a_value_that_needs_a_restart_is_named_and_stays() -> None:
    """The rest of the file is applied. The next comparison names it again."""
    old = config('[database]\nurls = ["mysql://u:geheim@a/x"]\n')
    new = config('[database]\nurls = ["mysql://u:geheim@b/x"]\n[log]\nlevel = "error"\n')
    first = changes(old, new, NodeKind.MASTER)
    waiting = ["database.urls needs a restart; still the old value"]
    assert first.report.waiting == waiting
    assert first.config.database == old.database
    assert first.config.log.level == "error"
    again = changes(first.config, new, NodeKind.MASTER)
    assert (again.report.changed, again.report.waiting) == ([], waiting)


def test_a_node_reports_only_keys_that_it_reads() -> None:
    """A worker does not open the database, and nobody restarts it for the colours of a console."""
    new = config('[database]\nurls = ["mysql://b/x"]\n[console]\ntheme = "nord"\n')
    assert changes(Config(), new, NodeKind.WORKER).report.is_empty
    assert changes(Config(), new, NodeKind.MASTER).report.changed == []


@pytest.mark.parametrize("kind", NodeKind)
def test_no_secret_is_in_a_line(kind: NodeKind) -> None:
    """Neither the old value nor the new one."""
    old = config('[consul]\ntoken = "geheim1"\n[database]\nurls = ["mysql://u:geheim2@a/x"]\n')
    new = config('[consul]\ntoken = "geheim3"\n[database]\nurls = ["mysql://u:geheim4@a/x"]\n')
    report = changes(old, new, kind).report
    assert "geheim" not in str(report)


@pytest.mark.parametrize("key", HIDDEN)
def test_a_hidden_value_is_never_shown(key: str) -> None:
    """Also if its key takes effect at once some day."""
    assert diff_lines(key, "", "geheim") == [f"{key}: (empty) → (hidden)"]
    assert diff_lines(key, "geheim", "other") == [f"{key}: (hidden) → (hidden)"]


def test_hosts_of_secrets_are_compared_one_by_one() -> None:
    """A secret that comes, one that goes, one that stays. Processes are replaced to take them."""
    old = msgspec.structs.replace(Config(), secrets={"A": SecretConfig(("a.test",))})
    both = {"A": SecretConfig(("a.test",)), "B": SecretConfig()}
    more = changes(old, msgspec.structs.replace(old, secrets=both), NodeKind.WORKER)
    assert more.report.changed == ["secrets.B: (none) → []"]
    assert more.uses == {KeyUse.RENEWED}
    gone = changes(old, Config(), NodeKind.WORKER)
    assert gone.report.changed == ["secrets.A: [a.test] → (none)"]


def test_a_report_fits_into_a_message() -> None:
    """However many secrets there are, and however long a list is."""
    secrets = {f"S{n}": SecretConfig() for n in range(LINES_MOST + 50)}
    hosts = tuple(f"{n}.test" for n in range(1_000))
    new = msgspec.structs.replace(Config(), secrets=secrets | {"A": SecretConfig(hosts)})
    lines = changes(Config(), new, NodeKind.WORKER).report.changed
    assert len(lines) == LINES_MOST
    assert max(map(len, lines)) <= LINE_MOST
    assert lines[-1] == "… and 52 more"


FILE = """# slots = 3
[worker]
rate = 1.0
slots = 0        # too few

[log]
level = "loud"
"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("x.toml: worker.slots is 0; it must be 1 to 10000", 4),
        ("x.toml: log.level: invalid enum value 'loud'", 7),
        ("x.toml: unknown key 'worker.rate'", 3),
        ("x.toml: unknown key 'log'", 6),
        ("x.toml: worker.slots_of is wrong", 0),
        ("no such file", 0),
    ],
)
def test_the_line_of_a_wrong_key_is_found(message: str, line: int) -> None:
    """The longest key that the message names as a whole word."""
    assert line_of(FILE, message) == line


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ('["eu", "eu"]', "'eu' twice"),
        ('[""]', "'' is not a label"),
        ('["e u"]', "'e u' is not a label"),
        (f'["{"x" * 64}"]', "has 64 characters"),
        ('"eu"', "worker.labels"),
        (str([f"l{n}" for n in range(51)]), "at most 16"),
    ],
)
def test_labels_that_no_job_could_ask_for_are_refused(labels: str, words: str) -> None:
    """By the name of the key."""
    with pytest.raises(ConfigError) as caught:
        config(f"[worker]\nlabels = {labels}\n")
    assert "worker.labels" in str(caught.value)
    assert words in str(caught.value)


def test_labels_can_come_from_the_environment() -> None:
    """As a list with commas or spaces, like other lists."""
    resolved = resolve(None, "x", {"ZCRAWL_WORKER__LABELS": "eu, gpu"})
    assert resolved.config.worker.labels == ("eu", "gpu")
