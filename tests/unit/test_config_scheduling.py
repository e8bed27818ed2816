"""The sections [tasks] and [schedules] of the masters' configuration: what is accepted."""

from __future__ import annotations

import pytest

from zcrawl.config import Config, resolve
from zcrawl.config_changes import KeyUse, NodeKind, changes
from zcrawl.errors import ConfigError


def config(text: str, **environ: str) -> Config:
    return resolve(text, "zcrawl.toml", environ).config


def test_limits_of_labels_come_from_the_file_or_from_a_variable() -> None:
    """The variable wins over the file, as for every key."""
    text = "[tasks]\nlabel_limits = { gpu = 4, licence = 1 }"
    assert config(text).tasks.label_limits == {"gpu": 4, "licence": 1}
    limits = config(text, ZCRAWL_TASKS__LABEL_LIMITS="gpu=2, eu-1=7").tasks.label_limits
    assert limits == {"gpu": 2, "eu-1": 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tasks]\nlabel_limits = { GPU = 4 }", "tasks.label_limits: 'GPU' is not a label"),
        ("[tasks]\nlabel_limits = { gpu = 0 }", "tasks.label_limits.gpu is 0; it must be 1 to"),
        ('[tasks]\nlabel_limits = { gpu = "4" }', "tasks.label_limits"),
        ("[tasks]\nlabel_limit = { gpu = 4 }", "did you mean 'tasks.label_limits'?"),
        ("[tasks]\nlabel_limits = 4", "tasks.label_limits"),
        ('[schedules]\ntimezone = "Europe/Berln"', "did you mean 'Europe/Berlin'?"),
        ('[schedules]\ntimezone = ""', "schedules.timezone '' does not exist"),
        ('[schedules]\noverlap = "wait"', "schedules.overlap is 'wait'; use one of skip, queue"),
        ('[schedules]\ncatch_up = "some"', "schedules.catch_up is 'some'; use one of none, last"),
        ('[schedules]\njitter = "soon"', "schedules.jitter is 'soon', which is not a duration"),
        ('[schedules]\njitter = "2d"', "schedules.jitter is '2d'; it can be at most 1d"),
        ('[schedules]\ncron = "0 3 * * *"', "unknown key 'schedules.cron'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_key(text: str, message: str) -> None:
    """As the same mistake in a job is."""
    with pytest.raises(ConfigError) as refused:
        config(text)
    assert message in str(refused.value)
    assert str(refused.value).startswith("zcrawl.toml: ")


@pytest.mark.parametrize("kind", [NodeKind.MASTER, NodeKind.EMBEDDED])
def test_both_are_live_on_masters_and_are_shown_old_and_new(kind: NodeKind) -> None:
    """A worker does not read them."""
    new = config('[tasks]\nlabel_limits = { gpu = 4 }\n[schedules]\njitter = "0s"')
    change = changes(Config(), new, kind)
    assert change.report.changed == [
        "tasks.label_limits: {} → {gpu = 4}",
        "schedules.jitter: (empty) → 0s",
    ]
    assert change.uses == {KeyUse.LIVE}
    assert changes(Config(), new, NodeKind.WORKER).report.changed == []
