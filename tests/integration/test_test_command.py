"""`zcrawl test`: one page, and what happened on its way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command
from tests.web import MisbehavingWeb, WebThread
from tests.web.static_site import static_site


def report(tmp_path: Path, *args: object, code: int = 0) -> Any:
    done = command("test", *args, "--json", cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_page_is_explained(tmp_path: Path) -> None:
    """Decisions, hops, headers, item and links; for people and as JSON."""
    robots = b"User-agent: *\nDisallow: /no\nCrawl-delay: 2\n"
    with WebThread(MisbehavingWeb(robots=robots)) as web:
        result = report(tmp_path, web.url("/redirect-to?/good/5/1"), "--depth", 1)
        assert result["outcome"] == "done"
        assert result["robots"]["allowed"] is True
        assert result["robots"]["crawl_delay_s"] == 2
        assert result["guard"] == {
            "allowed": True,
            "why": "",
            "addresses": {"127.0.0.1": "allowed"},
        }
        assert [hop["status"] for hop in result["hops"]] == [200, 302, 200]
        assert all(hop["ms"] >= 0 for hop in result["hops"])
        assert ["Content-Type", "text/html"] in result["hops"][-1]["headers"]
        assert (result["final_url"], result["charset"]) == (web.url("/good/5/1"), "utf-8")
        assert result["items"][0]["title"] == "1"
        assert {link["scope"] for link in result["links"]} == {"followed"}
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
        result = report(tmp_path, "job.toml", web.url("/good/2/1"))
        assert [hop["status"] for hop in result["hops"]] == [302, 200, 200]
        assert (result["robots"]["url"], result["robots"]["status"]) == (
            there.url("/robots.txt"),
            200,
        )
        refused = report(tmp_path, "job.toml", web.url("/no/way"), code=1)
        assert (refused["reason"], refused["robots"]["allowed"]) == ("robots", False)


def test_the_guard_is_explained(tmp_path: Path) -> None:
    """Also when a page redirects inside: the hop has the reason."""
    with WebThread() as web:
        result = report(tmp_path, web.url("/redirect-to?http://169.254.169.254/"), code=1)
    assert result["reason"] == "blocked_address: metadata (169.254.169.254)"
    assert result["hops"][-1]["error"] == result["reason"]
    assert result["guard"]["allowed"] is True


def test_a_job_file_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first seed, or the URL behind it; its scope is applied and its secrets are hidden."""
    monkeypatch.setenv("ZCRAWL_SECRET_PW", "hunter2")
    with WebThread() as web:
        auth = f'auth = [{{ host = "127.0.0.1:{web.port}", user = "me", password = "${{PW}}" }}]'
        auth += '\nheaders = { X-Key = "${PW}" }'
        text = f'name = "j"\nseeds = ["{web.url("/good/4/0")}"]\n[fetch]\n{auth}\n'
        text += '[scope]\nexclude = ["/2$"]\n'
        (tmp_path / "j.toml").write_text(text)
        result = report(tmp_path, "j.toml")
        scopes = {link["url"].rpartition("/")[2]: link["scope"] for link in result["links"]}
        assert scopes == {"1": "followed", "2": "excluded", "0": "same"}
        assert result["hops"][-1]["sent"]["Authorization"] == "(hidden)"
        assert result["hops"][-1]["sent"]["X-Key"] == "(hidden)"
        assert "authorization" in web.log[-1].headers
        assert web.log[-1].headers["x-key"] == "hunter2"
        other = report(tmp_path, "j.toml", web.url("/good/4/3"))
        assert other["items"][0]["title"] == "3"
        assert "hunter2" not in json.dumps([result, other])


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
    """Shows what `start` and a page's handler yield; an exception is shown with its line."""
    with WebThread() as web:
        (tmp_path / "s.py").write_text(SPIDER.format(url=web.url("/good/4/1")))
        (tmp_path / "s.toml").write_text('name = "s"\nspider = "s.py:Test"\n')
        begun = report(tmp_path, "s.toml", "--allow-private")
        (first,) = begun["requests"]
        assert (first["url"], first["handler"]) == (web.url("/good/4/1"), "first")
        result = report(tmp_path, "s.toml", web.url("/good/4/1"))
        assert result["items"] == [{"title": "1"}]
        assert [request["url"] for request in result["requests"]] == [web.url("/good/4/2")]
        shown = command("test", "s.toml", web.url("/good/4/1"), cwd=tmp_path)
        assert f"request    GET {web.url('/good/4/2')}" in shown.stdout
        (tmp_path / "s.py").write_text(SPIDER.format(url="x").replace('"title")', '"title", 1/0)'))
        failed = report(tmp_path, "s.toml", web.url("/good/4/1"), code=1)
        assert failed["reason"] == "spider_error"
        assert "line 9" in failed["detail"]


def test_what_a_job_lacks_is_named(tmp_path: Path) -> None:
    """A plugin that is not installed here is named before anything is fetched."""
    seeds = 'seeds = ["http://a.invalid/"]\n'
    for text, name in (
        (f'{seeds}middlewares = ["nobody-has-it"]\n', "middleware"),
        (f'{seeds}parsers = ["nobody-has-it"]\n', "parser"),
        ('kind = "nobody-has-it"\n', "executor"),
    ):
        (tmp_path / "x.toml").write_text(f'name = "x"\n{text}')
        error = report(tmp_path, "x.toml", code=2)["error"]
        assert error["code"] == "no_plugin"
        assert f"no {name} 'nobody-has-it' is installed" in error["message"]


@pytest.mark.parametrize("args", [[], ["http://a/", "http://b/"], ["no url"]])
def test_what_makes_no_sense_is_a_usage_error(tmp_path: Path, args: list[str]) -> None:
    """Exit 2 with one line."""
    done = command("test", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("zcrawl: ")


def test_links_are_those_that_a_crawl_fetches(tmp_path: Path) -> None:
    """Whoever finds them: rules that pick other elements, JSON, a page that is not kept. The URLs
    that `test` calls followed are the ones that a crawl of depth 1 asks for."""
    pages = {
        "/rules": ("text/html", b'<img src="/picked"><a href="/plain">x</a>'),
        "/json": ("application/json", b'{"next": ["/second", "/third"]}'),
        "/hidden": ("text/html", b'<meta name="robots" content="noindex"><a href="/on">x</a>'),
        **{f"/{name}": ("text/html", b"") for name in ("picked", "second", "third", "on")},
    }
    blocks = """
[[extract]]
match = "/rules"
follow = ["img"]
[[extract]]
match = "/json"
follow = [{ json = "next" }]
"""
    with static_site(pages) as origin:
        for page, expected in (
            ("/rules", {"/picked"}),
            ("/json", {"/second", "/third"}),
            ("/hidden", {"/on"}),
        ):
            (tmp_path / "j.toml").write_text(f'name = "j"\nseeds = ["{origin}{page}"]\n{blocks}')
            code = 1 if page == "/hidden" else 0
            result = report(tmp_path, "j.toml", code=code)
            followed = {link["url"] for link in result["links"] if link["scope"] == "followed"}
            assert followed == {origin + path for path in expected}
            folder = f"d{page.strip('/')}"
            crawl = ("crawl", "--job", "j.toml", "--data", folder, "--depth", 1, "--rate", 0)
            done = command(*crawl, "--out", "out.jsonl", "--workers", 1, "--json", cwd=tmp_path)
            summary = json.loads(done.stdout.splitlines()[-1])
            assert summary["pages"] + summary["skipped"] == 1 + len(expected), done.stderr


def test_hosts_of_the_jobs_seeds_are_in_scope_wherever_the_page_is(tmp_path: Path) -> None:
    """A page of the job links to another of its hosts: a crawl follows that, so `test` says so."""
    with (
        static_site({"/": ("text/html", b"")}) as first,
        static_site({"/": ("text/html", b"")}) as second,
        static_site({"/": ("text/html", b"")}) as outside,
    ):
        with static_site({"/p": ("text/html", f'<a href="{first}/">1</a>'.encode())}) as third:
            seeds = [f"{first}/", f"{second}/", f"{third}/"]
            (tmp_path / "j.toml").write_text(f'name = "j"\nseeds = {json.dumps(seeds)}\n')
            result = report(tmp_path, "j.toml", f"{third}/p")
        assert [link["scope"] for link in result["links"]] == ["followed"]
        assert result["scope"] is None
        open_too = f"{outside}/".split("/")[2]
        job = f'name = "j"\nseeds = ["{first}/"]\n[fetch]\nprivate_hosts = ["{open_too}"]\n'
        (tmp_path / "j.toml").write_text(job)
        result = report(tmp_path, "j.toml", f"{outside}/")
        assert result["scope"] == "out_of_scope_host"
        shown = command("test", "j.toml", f"{outside}/", cwd=tmp_path).stdout
        assert "out_of_scope_host: a crawl of this job follows no link to it" in shown


def test_a_seed_that_redirects_elsewhere_brings_its_target_into_scope(tmp_path: Path) -> None:
    """As the leader does it: links at the new place are followed."""
    with static_site({"/": ("text/html", b'<a href="/more">x</a>')}) as target, WebThread() as web:
        result = report(tmp_path, web.url(f"/redirect-to?{target}/"), "--allow-private")
    assert [(link["url"], link["scope"]) for link in result["links"]] == [
        (f"{target}/more", "followed")
    ]


def test_the_guard_refuses_what_it_refuses_in_a_crawl(tmp_path: Path) -> None:
    """A page on a private host that is no seed of the job: typing its URL behind the job file
    opens nothing, because a crawl of the file would not open it either."""
    links = b'<a href="http://127.0.0.1:8099/">x</a>'
    with (
        static_site({"/page": ("text/html", b"")}) as private,
        static_site({"/": ("text/html", links)}) as seed,
    ):
        scope = '[scope]\nhosts = ["127.0.0.1"]\n'
        (tmp_path / "j.toml").write_text(f'name = "j"\nseeds = ["{seed}/"]\n{scope}')
        result = report(tmp_path, "j.toml", f"{private}/page", code=1)
        assert result["guard"]["allowed"] is False
        assert result["reason"].startswith("blocked_address")
        assert report(tmp_path, "j.toml", f"{private}/page", "--allow-private")["outcome"] == "done"
        (link,) = report(tmp_path, "j.toml")["links"]
        assert link["guard"] == "loopback (127.0.0.1)"
        (tmp_path / "j.toml").write_text('name = "j"\n')  # no seeds: the URL is the seed
        assert report(tmp_path, "j.toml", f"{private}/page")["outcome"] == "done"
