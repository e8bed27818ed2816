"""References in the configuration: `${env:NAME}`, `${file:PATH}`, `${sealed:TEXT}`."""

from __future__ import annotations

from pathlib import Path

import pytest

from zcrawl.config import Config, Resolved, resolve
from zcrawl.config_changes import NodeKind, changes
from zcrawl.errors import ConfigError
from zcrawl.mesh.sockets.keys import new_pair, write_key_file
from zcrawl.roles.config_references import MOST_BYTES, ReferenceOpener
from zcrawl.text.sealing import seal_for

VALUE = "Hunter2-planted-value"


def read(text: str, **environ: str) -> Resolved:
    return resolve(text, "z.toml", environ, None, ReferenceOpener(environ).open)


def refusal(text: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        read(text, **environ)
    assert VALUE not in str(refused.value)
    return refused.value


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_variable_replaces_its_reference_in_texts_and_lists() -> None:
    """`${env:NAME}` is replaced by the variable, also inside a longer text of a list."""
    text = '[database]\nurls = ["mysql://z:${env:PW}@db/zcrawl"]\n[consul]\ntoken = "${env:PW}"\n'
    config = read(text, PW=VALUE).config
    assert config.database.urls == (f"mysql://z:{VALUE}@db/zcrawl",)
    assert config.consul.token == VALUE


def test_a_variable_of_the_configuration_may_hold_a_reference() -> None:
    """A value that comes from ZCRAWL_SECTION__KEY is opened like one of the file."""
    assert read("", ZCRAWL_CONSUL__TOKEN="${env:PW}", PW=VALUE).config.consul.token == VALUE


def test_what_replaces_a_reference_is_not_read_again() -> None:
    """A value that looks like a reference stays as it is."""
    config = read('[consul]\ntoken = "${env:A}"', A="${env:B}", B=VALUE).config
    assert config.consul.token == "${env:B}"


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_loses_one_newline_at_its_end(tmp_path: Path, end: str) -> None:
    """Editors and `echo` end a file with a newline, which is not part of the secret."""
    path = tmp_path / "token"
    path.write_bytes(f" {VALUE}{end}".encode())
    path.chmod(0o600)
    assert read(f'[consul]\ntoken = "${{file:{path}}}"').config.consul.token == f" {VALUE}"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_read_or_a_group_may_change_is_refused(
    tmp_path: Path, mode: int
) -> None:
    """The mode is checked, and the refusal names key, reference and mode."""
    path = private(tmp_path / "token", VALUE)
    path.chmod(mode)
    error = refusal(f'[consul]\ntoken = "${{file:{path}}}"')
    assert error.code == "open_secret_file"
    assert "consul.token" in str(error)
    assert str(path) in str(error)
    assert f"{mode:o}" in str(error)


def test_a_large_file_a_folder_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    """A reference reads at most MOST_BYTES of a regular file."""
    large = private(tmp_path / "large", "x" * (MOST_BYTES + 1))
    for path in (large, tmp_path, tmp_path / "none", Path("relative")):
        error = refusal(f'[consul]\ntoken = "${{file:{path}}}"')
        assert error.code == "bad_reference"
        assert "consul.token" in str(error)


def test_a_missing_variable_is_named_with_its_key() -> None:
    """The error says which key has which reference."""
    text = str(refusal('[consul]\ntoken = "${env:NOWHERE}"'))
    assert "consul.token" in text
    assert "${env:NOWHERE}" in text


def test_an_error_of_the_value_does_not_show_the_value() -> None:
    """A value that is wrong for its key is refused by key and reference only."""
    error = refusal('[cluster]\nname = "${env:PW}"', PW=f"{VALUE} /with spaces/")
    assert "cluster.name" in str(error)
    assert "${env:PW}" in str(error)


def test_the_key_file_opens_sealed_values_and_only_its_own(tmp_path: Path) -> None:
    """A value sealed for a node's public key is opened with its key file, by nobody else."""
    pair, other = new_pair(), new_pair()
    write_key_file(tmp_path / "node.key", pair)
    write_key_file(tmp_path / "other.key", other)
    sealed = seal_for(pair.public, VALUE, bytes(range(32)))
    assert VALUE not in sealed
    text = '[mesh]\nkey_file = "{}"\n[consul]\ntoken = "${{sealed:{}}}"'
    good = read(text.format(tmp_path / "node.key", sealed))
    assert good.config.consul.token == VALUE
    assert refusal(text.format(tmp_path / "other.key", sealed)).code == "bad_sealed"
    changed = sealed[:-4] + ("AAAA" if sealed[-4:] != "AAAA" else "BBBB")
    assert refusal(text.format(tmp_path / "node.key", changed)).code == "bad_sealed"
    assert "mesh.key_file" in str(refusal(f'[consul]\ntoken = "${{sealed:{sealed}}}"'))


def test_config_show_has_the_reference_and_not_the_value() -> None:
    """What is shown is what was written; keys that are always hidden stay hidden."""
    text = '[mesh]\nserver_key = "${env:PW}"\n[consul]\ntoken = "${env:PW}"'
    values = read(text, PW=VALUE).values()
    assert values["mesh.server_key"] == "${env:PW}"
    assert values["consul.token"] == "(set)"
    assert VALUE not in str(values)


def test_a_reload_compares_values_and_hides_them() -> None:
    """A new value behind the same reference is a change, and its line does not show it."""
    text = '[outputs]\nallow = ["${env:PLACE}"]'
    old, new = (read(text, PLACE=f"/{VALUE}/{n}").config for n in "ab")
    assert isinstance(new, Config)
    report = changes(old, new, NodeKind.EMBEDDED).report
    assert report.changed == ["outputs.allow: (hidden) → (hidden)"]
