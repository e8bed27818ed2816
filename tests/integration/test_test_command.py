"""`zcrawl test`: one page, and what happened on its way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command
from tests.web import MisbehavingWeb, WebThread


def report(tmp_path: Path, *args: object, code: int = 0) -> Any:
    done = command("test", *args, "--json", cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_page_is_explained(tmp_path: Path) -> None:
    """Decisions, hops, headers, item and links; for people and as JSON."""
    robots = b"User-agent: *\nDisallow: /no\nCrawl-delay: 2\n"
    with WebThread(MisbehavingWeb(robots=robots)) as web:
        told = report(tmp_path, web.url("/redirect-to?/good/5/1"), "--depth", 1)
        assert told["outcome"] == "done"
        assert told["robots"]["allowed"] is True
        assert told["robots"]["crawl_delay_s"] == 2
        assert told["guard"] == {"allowed": True, "why": "", "addresses": {"127.0.0.1": "allowed"}}
        assert [hop["status"] for hop in told["hops"]] == [200, 302, 200]
        assert all(hop["ms"] >= 0 for hop in told["hops"])
        assert ["Content-Type", "text/html"] in told["hops"][-1]["headers"]
        assert (told["final_url"], told["charset"]) == (web.url("/good/5/1"), "utf-8")
        assert told["items"][0]["title"] == "1"
        assert {link["scope"] for link in told["links"]} == {"followed"}
        shown = command("test", web.url("/good/5/1"), cwd=tmp_path)
        assert shown.returncode == 0
        for words in (
            "outcome    done",
            "robots     allowed",
            "guard      allowed",
            "links      3",
        ):
            assert words in shown.stdout
        refused = report(tmp_path, web.url("/no/way"), code=1)
        assert (refused["reason"], refused["robots"]["allowed"]) == ("robots", False)
        failed = report(tmp_path, web.url("/status/404"), "--no-robots", code=1)
        assert (failed["reason"], failed["robots"]["asked"]) == ("http_404", False)
    assert not list(tmp_path.iterdir())


def test_the_guard_is_explained(tmp_path: Path) -> None:
    """Also when a page redirects inside: the hop has the reason."""
    with WebThread() as web:
        told = report(tmp_path, web.url("/redirect-to?http://169.254.169.254/"), code=1)
    assert told["reason"] == "blocked_address: metadata (169.254.169.254)"
    assert told["hops"][-1]["error"] == told["reason"]
    assert told["guard"]["allowed"] is True


def test_a_job_file_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first seed, or the URL behind it; its scope is applied and its secrets are hidden."""
    monkeypatch.setenv("ZCRAWL_SECRET_PW", "hunter2")
    with WebThread() as web:
        auth = f'auth = [{{ host = "127.0.0.1:{web.port}", user = "me", password = "${{PW}}" }}]'
        text = f'name = "j"\nseeds = ["{web.url("/good/4/0")}"]\n[fetch]\n{auth}\n'
        text += '[scope]\nexclude = ["/2$"]\n'
        (tmp_path / "j.toml").write_text(text)
        told = report(tmp_path, "j.toml")
        scopes = {link["url"].rpartition("/")[2]: link["scope"] for link in told["links"]}
        assert scopes == {"1": "followed", "2": "excluded", "0": "same"}
        assert told["hops"][-1]["sent"]["Authorization"] == "(hidden)"
        assert "authorization" in web.log[-1].headers
        other = report(tmp_path, "j.toml", web.url("/good/4/3"))
        assert other["items"][0]["title"] == "3"
        assert "hunter2" not in json.dumps([told, other])


@pytest.mark.parametrize("args", [[], ["http://a/", "http://b/"], ["no url"]])
def test_what_makes_no_sense_is_a_usage_error(tmp_path: Path, args: list[str]) -> None:
    """Exit 2 with one line."""
    done = command("test", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("zcrawl: ")
