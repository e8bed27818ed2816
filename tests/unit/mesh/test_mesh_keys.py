"""Keys, their files, the masters' list, and the decision about a handshake."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from zcrawl.errors import ConfigError
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.security import (
    AllowedKey,
    KeyPair,
    MeshKeys,
    check_bind,
    check_key,
    judge,
    parse_allow_list,
)
from zcrawl.mesh.sockets.keys import (
    AllowList,
    new_pair,
    read_key_file,
    read_mesh_keys,
    write_key_file,
)

A, B = "a" * 64, "b" * 64
KEYS = MeshKeys(KeyPair(A, B), A)


def refused(call: object, *arguments: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        call(*arguments)  # type: ignore[operator]
    return caught.value


# ---------------------------------------------------------------- what may be bound


@pytest.mark.parametrize("part", ["control", "reports", "events"])
@pytest.mark.parametrize(
    "address",
    ["tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://10.0.0.1:1", "tcp://node7:1"],
)
def test_an_open_address_without_keys_is_refused_by_its_name(part: str, address: str) -> None:
    """Any of the three; keys or a plain word of consent make it right."""
    local = {"control": "ipc:///c", "reports": "tcp://127.0.0.1:1", "events": "tcp://[::1]:1"}
    endpoints = Endpoints("m1", **{**local, part: address})
    error = refused(check_bind, endpoints, None)
    assert error.code == "insecure_bind"
    assert error.exit_code == 2
    assert address in str(error)
    check_bind(endpoints, KEYS)
    check_bind(endpoints, None, insecure=True)


def test_local_addresses_need_no_keys() -> None:
    """Unix sockets have file permissions, and loopback is this machine."""
    check_bind(Endpoints("m1", "ipc:///c", "tcp://127.0.0.1:*", "tcp://localhost:1"), None)


def test_a_bad_endpoint_is_refused_even_with_keys() -> None:
    """Nothing is bound by a misunderstanding."""
    error = refused(check_bind, Endpoints("m1", "tcp://x", "ipc:///r", "ipc:///e"), KEYS)
    assert error.code == "bad_endpoint"


# ---------------------------------------------------------------- keys and lists


def test_no_representation_shows_a_secret() -> None:
    """Keys end up in logs and tracebacks."""
    for shown in (repr(KEYS), str(KEYS), repr(KEYS.own), f"{KEYS.own}", str([KEYS])):
        assert B not in shown
        assert A in shown


@pytest.mark.parametrize("bad", ["", "x" * 64, "a" * 63, "a" * 65, "a" * 32 + " " + "a" * 31])
def test_what_is_no_key_is_refused_without_being_repeated(bad: str) -> None:
    """Somebody may have pasted the secret."""
    error = refused(check_key, bad)
    assert error.code == "bad_key"
    assert not bad or bad not in str(error)


def test_a_list_has_a_key_and_a_name_a_line() -> None:
    """Comments and empty lines are left out; upper case is the same key."""
    text = f"# ours\n\n{A} w1\n  {B.upper()}  # no name yet\n"
    assert parse_allow_list(text, "f") == {A: AllowedKey("w1"), B: AllowedKey("unnamed")}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{A} w1\n{A} w2\n", "f:2: this key is in the list already, as w1"),
        ("w1\n", "f:1: a key is 64"),
        (
            f"{A} two words\n",
            "f:1: 'words' is not a role; there are worker, viewer, submitter, operator",
        ),
        (f"{A} w1 worker,\n", "f:1: '' is not a role"),
        (f"{A} w1 master\n", "f:1: 'master' is not a role"),
        (f"{A} w1 worker operator\n", "f:1: write KEY NAME"),
        (f"{A} w1 names=w* worker\n", "f:1: write KEY NAME"),
        (f"{A} w1 worker names=\n", "f:1: '' is not a pattern of names"),
        (f"{A} w1 worker names=w/*\n", "is not a pattern of names"),
        (f"{A} ann viewer names=w*\n", "f:1: names= is for workers"),
        (f"{A} masters operator\n", "f:1: the name masters is taken"),
        (f"{A} w/1\n", "is not a name for a key"),
    ],
)
def test_a_wrong_line_is_named(text: str, what: str) -> None:
    """A list that is half understood would lock somebody out, or let somebody in."""
    with pytest.raises(ConfigError, match=what):
        parse_allow_list(text, "f")


def question(key: bytes, mechanism: bytes = b"CURVE", version: bytes = b"1.0") -> list[bytes]:
    return [version, b"7", b"zcrawl", b"10.0.0.9", b"", mechanism, key]


def test_a_handshake_is_judged_by_its_key() -> None:
    """On the list, or the masters' own; the answer carries the question's number."""
    stranger, listed_key, master = (bytes.fromhex(digits * 64) for digits in "cab")
    yes = judge(question(listed_key), B, {A: AllowedKey("w1")})
    assert yes is not None
    assert yes.admitted
    assert yes.reply == [b"1.0", b"7", b"200", b"OK", A.encode(), b""]
    also = judge(question(master), B, {A: AllowedKey("w1")})
    assert also is not None
    assert also.admitted
    no = judge(question(stranger), B, {A: AllowedKey("w1")})
    assert no is not None
    assert not no.admitted
    assert no.reply[:3] == [b"1.0", b"7", b"400"]
    assert (no.address, no.key) == ("10.0.0.9", "c" * 64)


def test_a_handshake_of_another_kind_is_not_admitted() -> None:
    """NULL and PLAIN prove nothing; what is no question gets no answer."""
    listed_key = bytes.fromhex(A)
    for mechanism in (b"NULL", b"PLAIN"):
        verdict = judge(question(listed_key, mechanism), B, {A: AllowedKey("w1")})
        assert verdict is not None
        assert not verdict.admitted
    assert judge(question(listed_key, version=b"2.0"), B, {A: AllowedKey("w1")}) is None
    assert judge([], B, {A: AllowedKey("w1")}) is None


# ---------------------------------------------------------------- files


def test_a_key_file_is_for_its_owner_and_never_overwritten(tmp_path: Path) -> None:
    """Mode 600 whatever the umask; a second write leaves the first one's keys."""
    path, pair = tmp_path / "k", new_pair()
    before = os.umask(0)
    try:
        write_key_file(path, pair)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert refused(write_key_file, path, new_pair()).code == "file_exists"
    assert read_key_file(path) == pair
    assert read_mesh_keys(path) == MeshKeys(pair, pair.public)
    assert read_mesh_keys(path, A) == MeshKeys(pair, A)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """As ssh does."""
    path = tmp_path / "k"
    write_key_file(path, new_pair())
    path.chmod(0o640)
    assert refused(read_key_file, path).code == "open_key_file"


@pytest.mark.parametrize(
    "text", ["", "public = 1", f'public = "{A}"', f'public = "{A}"\nsecret = "{B}"', "\0"]
)
def test_a_spoilt_key_file_is_refused_without_its_contents(tmp_path: Path, text: str) -> None:
    """Also one whose two halves are no pair."""
    path = tmp_path / "k"
    path.write_text(text)
    path.chmod(0o600)
    error = refused(read_key_file, path)
    assert error.code == "bad_key"
    assert str(path) in str(error)
    assert B not in str(error)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    """With the reason."""
    assert "No such file" in str(refused(read_key_file, tmp_path / "none"))


def test_a_list_is_read_again_only_when_it_changed(tmp_path: Path) -> None:
    """None: as before. A bad line is told, and the next change is seen."""
    path = tmp_path / "allowed"
    path.write_text(f"{A} w1\n")
    allowed = AllowList(path)
    assert allowed.poll() == {A: AllowedKey("w1")}
    assert allowed.poll() is None
    path.write_text(f"{A} w1\nnonsense\n")
    assert "allowed:2" in str(refused(allowed.poll))
    assert allowed.poll() is None
    path.write_text(f"{A} w1\n{B} w2\n")
    assert allowed.poll() == {A: AllowedKey("w1"), B: AllowedKey("w2")}
    path.unlink()
    assert refused(allowed.poll).code == "bad_allow_list"


def test_a_key_is_added_on_a_line_of_its_own(tmp_path: Path) -> None:
    """Also to a file whose last line has no end; a known key changes nothing."""
    path = tmp_path / "allowed"
    AllowList(path).add(A, "w1")
    path.write_text(path.read_text().rstrip("\n"))
    AllowList(path).add(B, "w2")
    assert AllowList(path).poll() == {A: AllowedKey("w1"), B: AllowedKey("w2")}
    before = path.read_text()
    assert "already" in str(refused(AllowList(path).add, A, "other"))
    assert path.read_text() == before
