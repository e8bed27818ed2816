"""The test servers and the reference sets are right themselves, by independent means."""

from __future__ import annotations

import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.servers.nginx_site import NginxFailed, nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL, PYTHON_MANUAL, reference_set


def wget2_set(folder: Path, target: Path) -> set[str]:
    """The HTML pages that wget2 gets from the folder, by nginx's log."""
    with nginx_site(folder) as site:
        command = ["wget2", "-q", "-r", "-l", "inf", "--max-threads=2", f"{site.url}index.html"]
        subprocess.run(command, cwd=target, check=False)  # 8 when any link was a 404
        lines = site.access_log.read_text().splitlines()
    got = [line.removeprefix("200 GET ") for line in lines if line.startswith("200 GET ")]
    return {path for path in got if path.endswith(".html")}


@pytest.mark.parametrize(("folder", "least"), [(POSTGRES_MANUAL, 1_000), (PYTHON_MANUAL, 500)])
def test_the_reference_set_is_what_wget2_finds(folder: Path, least: int, tmp_path: Path) -> None:
    """Read from the files or crawled by wget2, a manual has the same pages."""
    expected = reference_set(folder)
    assert len(expected.pages) > least  # the figure itself changes with Debian's releases
    assert wget2_set(folder, tmp_path) == expected.pages


def test_the_reference_set_follows_the_four_kinds_of_links(tmp_path: Path) -> None:
    """a, area, iframe and frame count, base moves them, other hosts and fragments do not."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        "<base href='/sub/'><a href='a.html#x'>1</a><area href=b.html><iframe src=c.html></iframe>"
        "<frame src='d%20d.html'><a href='http://other.test/e.html'>5</a><a name=x>6</a>"
        "<a href='mailto:a@b'>7</a><a href='gone.html'>8</a><a href='a.txt'>9</a>"
        "<!-- <a href='comment.html'> --><link href='style.html'>"
    )
    for name in ("a.html", "b.html", "c.html", "d d.html", "a.txt", "comment.html", "style.html"):
        (tmp_path / "sub" / name).write_text("")
    reference = reference_set(tmp_path)
    assert reference.pages == {"/index.html"} | {f"/sub/{x}.html" for x in ("a", "b", "c", "d%20d")}
    assert reference.others == {"/sub/a.txt"}
    assert reference.missing == {"/sub/gone.html"}


def test_a_missing_manual_is_an_error_that_tells_the_remedy(tmp_path: Path) -> None:
    """No folder means no test, and no silent pass."""
    with pytest.raises(FileNotFoundError, match="make test"):
        reference_set(tmp_path)


def test_nginx_serves_and_counts_and_is_gone(tmp_path: Path) -> None:
    """Each request is in the log once, and after the block nobody listens."""
    (tmp_path / "page.html").write_text("<title>x</title>")
    with nginx_site(tmp_path) as site:
        with urllib.request.urlopen(f"{site.url}page.html?q=1") as answer:
            assert answer.headers["Content-Type"] == "text/html"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{site.url}none")
        caught.value.close()
        assert site.requests() == ["/page.html?q=1", "/none"]
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", site.port)):
        pass


def test_nginx_with_a_bad_config_tells_its_complaint(tmp_path: Path) -> None:
    """A site that cannot start is an error with nginx's own words, not a hang."""
    with pytest.raises(NginxFailed, match="unknown directive"), nginx_site(tmp_path, extra="x y;"):
        pass


def test_a_machine_without_nginx_fails_clearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing server is a failure that names the remedy; tests are not skipped."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(NginxFailed, match="apt install nginx"), nginx_site(tmp_path):
        pass
