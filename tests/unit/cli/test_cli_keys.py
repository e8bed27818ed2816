"""`zcrawl keys`: files are made, lists are written, and no secret reaches a screen."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from zcrawl.cli.main import run
from zcrawl.mesh.roles import KeyRole
from zcrawl.mesh.security import AllowedKey
from zcrawl.mesh.sockets.keys import AllowList, read_key_file


def test_new_writes_a_file_and_prints_the_public_key_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` prints the same; the secret is in the file and nowhere else."""
    file = tmp_path / "w1.key"
    assert run(["keys", "new", str(file)]) == 0
    first = capsys.readouterr()
    assert run(["keys", "show", str(file)]) == 0
    second = capsys.readouterr()
    pair = read_key_file(file)
    assert first.out == second.out == pair.public + "\n"
    assert pair.secret not in first.out + first.err + second.out + second.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_new_does_not_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, the file is as it was."""
    file = tmp_path / "w1.key"
    assert run(["keys", "new", str(file)]) == 0
    before = file.read_text()
    assert run(["keys", "new", str(file)]) == 2
    assert "[file_exists]" in capsys.readouterr().err
    assert file.read_text() == before


def test_allow_appends_to_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A key twice is refused; the way from `new` to `allow` needs no quoting."""
    allowed = tmp_path / "allowed"
    publics = []
    for name in ("w1", "w2"):
        assert run(["keys", "new", str(tmp_path / name), "--json"]) == 0
        publics.append(json.loads(capsys.readouterr().out)["public"])
        assert run(["keys", "allow", publics[-1], "--name", name, "--file", str(allowed)]) == 0
        capsys.readouterr()
    lines = [AllowedKey("w1"), AllowedKey("w2")]
    assert AllowList(allowed).poll() == dict(zip(publics, lines, strict=True))
    assert run(["keys", "allow", publics[0], "--file", str(allowed)]) == 2
    assert "already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--role", "worker"], AllowedKey("x", frozenset({KeyRole.WORKER}), (), True)),
        (["--watch"], AllowedKey("x", frozenset({KeyRole.VIEWER}), (), True)),
        (["--role", "watch"], AllowedKey("x", frozenset({KeyRole.VIEWER}), (), True)),
        (
            ["--role", "worker", "--role", "operator", "--names", "pool-*,w*"],
            AllowedKey("x", frozenset({KeyRole.WORKER, KeyRole.OPERATOR}), ("pool-*", "w*"), True),
        ),
        (
            ["--role", "worker,viewer"],
            AllowedKey("x", frozenset({KeyRole.WORKER, KeyRole.VIEWER}), (), True),
        ),
        ([], AllowedKey("x")),
    ],
)
def test_allow_writes_roles_and_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], line: AllowedKey
) -> None:
    """A master reads what the flags say; without a role the command says what that means."""
    file = tmp_path / "allowed"
    assert run(["keys", "allow", "a" * 64, "--name", "x", "--file", str(file), *flags]) == 0
    said = capsys.readouterr().err
    assert AllowList(file).poll() == {"a" * 64: line}
    assert all(role in said for role in line.roles)
    assert ("--role" in said) == (not flags)


@pytest.mark.parametrize(
    "arguments",
    [
        ["zz"],
        ["a" * 64, "--name", "a b"],
        ["a" * 64, "--role", "master"],
        ["a" * 64, "--role", "viewer", "--names", "w*"],
        ["a" * 64, "--role", "worker", "--names", "w*,"],
        ["a" * 64, "--name", "masters"],
    ],
)
def test_allow_refuses_what_is_no_key_or_no_name(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, and no file is made."""
    file = tmp_path / "allowed"
    assert run(["keys", "allow", *arguments, "--file", str(file)]) == 2
    assert capsys.readouterr().err.startswith("zcrawl: ")
    assert not file.exists()


def test_show_of_an_open_file_tells_how_to_mend_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json the error is an object."""
    file = tmp_path / "k"
    run(["keys", "new", str(file)])
    capsys.readouterr()
    file.chmod(0o644)
    assert run(["keys", "show", str(file), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "open_key_file"
    assert "chmod 600" in error["message"]


def test_revoke_removes_a_name_or_a_key_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Comments, other lines, the mode and a link to the file stay; all keys of a name go, also
    those written in capitals. What is not there is an error that changes nothing."""
    real, allowed = tmp_path / "real", tmp_path / "allowed"
    first, second, third, fourth = ("ab" * 32, "cd" * 32, "ef" * 32, "fa" * 32)
    real.write_text(
        f"# ours\n{first} ann viewer\n{second.upper()} bob # of bob\n{third} bob\n\n{fourth} eve\n"
    )
    real.chmod(0o640)
    allowed.symlink_to(real)
    command = ["keys", "revoke", "--file", str(allowed)]
    assert run([*command, "bob"]) == 0
    assert capsys.readouterr().err.count("may not join any more") == 2
    assert real.read_text() == f"# ours\n{first} ann viewer\n\n{fourth} eve\n"
    assert run([*command, fourth.upper(), "--json"]) == 0
    removed = json.loads(capsys.readouterr().out)["removed"]
    assert removed == [{"public": fourth, "name": "eve"}]
    for wrong in ("bob", fourth, "ours", "#"):
        assert run([*command, wrong]) == 2
        assert "[no_such_key]" in capsys.readouterr().err
    assert real.read_text() == f"# ours\n{first} ann viewer\n\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert allowed.is_symlink()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".new")] == []


def test_a_missing_or_wrong_list_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is removed from a list that is half understood."""
    allowed = tmp_path / "allowed"
    assert run(["keys", "revoke", "ann", "--file", str(allowed)]) == 2
    assert "[bad_allow_list]" in capsys.readouterr().err
    assert not allowed.exists()
    text = f"{'ab' * 32} ann\nno key at all\n"
    allowed.write_text(text)
    assert run(["keys", "revoke", "ann", "--file", str(allowed)]) == 2
    assert allowed.read_text() == text


@pytest.mark.parametrize("role", ["submitter", "admin", "gateway"])
def test_a_role_of_people_and_gateways_can_be_given(role: str, tmp_path: Path) -> None:
    """Beside those of workers, viewers and operators."""
    allowed = tmp_path / "allowed"
    key = "ab" * 32
    assert run(["keys", "allow", key, "--name", "x", "--role", role, "--file", str(allowed)]) == 0
    assert AllowList(allowed).poll() == {key: AllowedKey("x", frozenset({KeyRole(role)}), (), True)}
