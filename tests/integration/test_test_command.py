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


def test_rules_at_another_host_are_told_from_there(tmp_path: Path) -> None:
    """A robots.txt that is redirected is followed at once: a single fetch has no pace to wait for.
    The answer is judged by the rules at the end of the way."""
    with (
        WebThread(MisbehavingWeb(robots=b"User-agent: *\nDisallow: /no\n")) as there,
        WebThread(MisbehavingWeb(robots=b"", robots_status=302)) as web,
    ):
        web.robots_headers = (f"Location: {there.url('/robots.txt')}",)
        job = f'name = "j"\n[fetch]\nprivate_hosts = ["127.0.0.1:{there.port}"]\n'
        (tmp_path / "job.toml").write_text(job)
        told = report(tmp_path, "job.toml", web.url("/good/2/1"))
        assert [hop["status"] for hop in told["hops"]] == [302, 200, 200]
        assert (told["robots"]["url"], told["robots"]["status"]) == (
            there.url("/robots.txt"),
            200,
        )
        refused = report(tmp_path, "job.toml", web.url("/no/way"), code=1)
        assert (refused["reason"], refused["robots"]["allowed"]) == ("robots", False)


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
        auth += '\nheaders = { X-Key = "${PW}" }'
        text = f'name = "j"\nseeds = ["{web.url("/good/4/0")}"]\n[fetch]\n{auth}\n'
        text += '[scope]\nexclude = ["/2$"]\n'
        (tmp_path / "j.toml").write_text(text)
        told = report(tmp_path, "j.toml")
        scopes = {link["url"].rpartition("/")[2]: link["scope"] for link in told["links"]}
        assert scopes == {"1": "followed", "2": "excluded", "0": "same"}
        assert told["hops"][-1]["sent"]["Authorization"] == "(hidden)"
        assert told["hops"][-1]["sent"]["X-Key"] == "(hidden)"
        assert "authorization" in web.log[-1].headers
        assert web.log[-1].headers["x-key"] == "hunter2"
        other = report(tmp_path, "j.toml", web.url("/good/4/3"))
        assert other["items"][0]["title"] == "3"
        assert "hunter2" not in json.dumps([told, other])


SPIDER = """
from zcrawl.spider import Request, Spider

class Test(Spider):
    def start(self):
        yield Request("{url}", handler="first")

    def first(self, page):
        yield {{"title": page.text_of("title")}}
        yield Request("/good/4/2")

    parse = first
"""


def test_a_spider_is_tried(tmp_path: Path) -> None:
    """What `start` yields; what a page's handler yields; what raises is told with its line."""
    with WebThread() as web:
        (tmp_path / "s.py").write_text(SPIDER.format(url=web.url("/good/4/1")))
        (tmp_path / "s.toml").write_text('name = "s"\nspider = "s.py:Test"\n')
        begun = report(tmp_path, "s.toml", "--allow-private")
        (first,) = begun["requests"]
        assert (first["url"], first["handler"]) == (web.url("/good/4/1"), "first")
        told = report(tmp_path, "s.toml", web.url("/good/4/1"))
        assert told["items"] == [{"title": "1"}]
        assert [one["url"] for one in told["requests"]] == [web.url("/good/4/2")]
        shown = command("test", "s.toml", web.url("/good/4/1"), cwd=tmp_path)
        assert f"request    GET {web.url('/good/4/2')}" in shown.stdout
        (tmp_path / "s.py").write_text(SPIDER.format(url="x").replace('"title")', '"title", 1/0)'))
        failed = report(tmp_path, "s.toml", web.url("/good/4/1"), code=1)
        assert failed["reason"] == "spider_error" and "line 9" in failed["detail"]


def test_what_a_job_lacks_is_named(tmp_path: Path) -> None:
    """A plugin that is not installed here: the reason has its name, and nothing breaks."""
    for key, name in (("middlewares", "middleware"), ("parsers", "parser")):
        text = f'name = "x"\nseeds = ["http://a.invalid/"]\n{key} = ["nobody-has-it"]\n'
        (tmp_path / "x.toml").write_text(text)
        told = report(tmp_path, "x.toml", code=1)
        assert told["reason"] == "plugin_missing"
        assert told["detail"] == f"{name} 'nobody-has-it'"
    (tmp_path / "x.toml").write_text('name = "x"\nkind = "nobody-has-it"\n')
    assert report(tmp_path, "x.toml", code=1)["detail"] == "executor 'nobody-has-it'"


@pytest.mark.parametrize("args", [[], ["http://a/", "http://b/"], ["no url"]])
def test_what_makes_no_sense_is_a_usage_error(tmp_path: Path, args: list[str]) -> None:
    """Exit 2 with one line."""
    done = command("test", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("zcrawl: ")
