"""A running node reads its configuration again: as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zcrawl.config import Config, resolve
from zcrawl.config_changes import Changes, NodeKind
from zcrawl.errors import ConfigError
from zcrawl.roles.live_config import LiveConfig

OLD = "[worker]\nslots = 32\n"
NEW = "[worker]\nslots = 5\n"


class Story:
    """A node whose configuration is in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[tuple[str, str]] = []
        self.applied: list[Changes] = []
        self.wrong = ""  # why the check fails
        path.write_text(OLD)
        self.live = LiveConfig(
            self.read(),
            NodeKind.WORKER,
            read=self.read,
            files=[str(path)],
            log=lambda name, detail: self.events.append((name, detail)),
            check=self.check,
            apply=self.applied.append,
        )

    def read(self) -> Config:
        return resolve(self.path.read_text(), str(self.path), {}).config

    def check(self, config: Config) -> None:
        if self.wrong:
            raise ConfigError(self.wrong)

    def looks(self, times: int) -> list[str]:
        """Return the names of the events that so many looks brought about."""
        before = len(self.events)
        for _ in range(times):
            self.live.look()
        return [name for name, _ in self.events[before:]]


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "zcrawl.toml")


def test_a_changed_file_is_applied_once_it_stays_the_same(story: Story) -> None:
    """The first look sees it, the second one applies it, later ones do nothing."""
    assert story.looks(3) == []
    story.path.write_text(NEW)
    assert story.looks(1) == []
    assert story.looks(5) == ["config_changed"]
    assert story.live.config.worker.slots == 5
    assert len(story.applied) == 1


def test_a_file_that_is_renamed_over_the_old_one_counts(story: Story, tmp_path: Path) -> None:
    """As editors and configuration tools write files; also with the time of the old one."""
    times = story.path.stat()
    aside = tmp_path / "aside"
    aside.write_text(NEW.replace("= 5", "= 50"))  # of the same length
    os.utime(aside, ns=(times.st_atime_ns, times.st_mtime_ns))
    aside.replace(story.path)
    assert story.looks(2) == ["config_changed"]
    assert story.live.config.worker.slots == 50


def test_the_swap_of_a_link_above_the_file_counts(tmp_path: Path) -> None:
    """A ConfigMap is such a file: zcrawl.toml → ..data/zcrawl.toml, ..data → another folder."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    data = tmp_path / "..data"
    data.symlink_to("one")
    (tmp_path / "zcrawl.toml").symlink_to("..data/zcrawl.toml")
    (tmp_path / "one" / "zcrawl.toml").write_text(OLD)
    story = Story(tmp_path / "zcrawl.toml")
    (tmp_path / "two" / "zcrawl.toml").write_text(NEW)
    (tmp_path / "..data_tmp").symlink_to("two")
    (tmp_path / "..data_tmp").replace(data)
    assert story.looks(2) == ["config_changed"]
    assert story.live.config.worker.slots == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[worker]\nrate = 1.0\nslots = 0\n", "worker.slots is 0; it must be 1 to 10000 (line 3 "),
        ("[worker]\nrate = 1.0\nslot = 1\n", "unknown key 'worker.slot'; did you mean"),
        ("[worker\n", "line 1"),
        ('[worker]\nslots = 5\n[log]\nlevel = "loud"\n', "log.level: invalid enum value"),
    ],
)
def test_a_wrong_file_changes_nothing(story: Story, text: str, words: str) -> None:
    """Not even its valid values. The line and the key are named, once."""
    story.path.write_text(text)
    assert story.looks(5) == ["reload_refused"]
    assert words in story.events[-1][1]
    assert "line " in story.events[-1][1]
    assert (story.applied, story.live.config) == ([], resolve(OLD, "x", {}).config)
    story.path.write_text(NEW)
    assert story.looks(2) == ["config_changed"]


def test_a_check_that_fails_changes_nothing(story: Story) -> None:
    """For example a new key file that cannot be read: the new limits are not applied either."""
    story.wrong = "/etc/zcrawl/worker.key: no such file"
    story.path.write_text(NEW)
    report = story.live.reload()
    assert report.error == story.wrong
    assert (story.applied, story.live.config.worker.slots) == ([], 32)


def test_a_file_that_is_gone_is_told_once(story: Story) -> None:
    """The node goes on with what it has, and takes the file when it is back."""
    story.path.unlink()
    assert story.looks(5) == ["reload_refused"]
    assert "no such file" in story.events[-1][1]
    story.path.write_text(NEW)
    assert story.looks(3) == ["config_changed"]


def test_a_request_that_comes_twice_is_carried_out_once(story: Story) -> None:
    """The leader repeats it until it has the report, which is the same each time."""
    story.path.write_text(NEW)
    first = story.live.reload("r1")
    assert first.changed == ["worker.slots: 32 → 5"]
    assert story.live.reload("r1") == first
    assert len(story.applied) == 1
    assert story.live.reload("r2").is_empty
    assert story.looks(3) == [], "the file was read by the request"


def test_a_value_that_needs_a_restart_is_logged_by_name(story: Story) -> None:
    """The other values of the file are in force."""
    story.path.write_text(f'{NEW}[data]\ndir = "/elsewhere"\n')
    assert story.looks(2) == ["config_changed", "config_needs_restart"]
    assert story.events[-1][1] == "data.dir needs a restart; still the old value"
    assert story.live.config.worker.slots == 5
    assert story.live.config.data.dir == "zcrawl-data"
