"""The command crawls two real manuals, served by nginx, and finds exactly what is there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.crawling import command, items
from tests.servers.nginx_site import NginxSite, nginx_site
from tests.servers.reference_set import POSTGRES_MANUAL, PYTHON_MANUAL, reference_set


def crawled(site: NginxSite, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The job's view after a crawl by command from /index.html, and the paths of its HTML items."""
    out, data = folder / "o.jsonl", folder / "d"
    done = command(
        *("crawl", site.url + "index.html", "--rate", 0, "--concurrency", 32, "--workers", 2),
        *("--out", out, "--data", data, "--json"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    view = json.loads(command("job", 1, "--data", data, "--json", cwd=folder).stdout)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {key: view[key] for key in summary} == summary
    html = [item for item in items(out) if "html" in item["content_type"]]
    return view, [item["url"].removeprefix(site.url.rstrip("/")) for item in html]


def asked_twice(site: NginxSite) -> dict[str, int]:
    return {path: n for path, n in Counter(site.requests()).items() if n > 1}


def test_the_postgres_manual_is_found_whole_and_each_page_is_fetched_once(tmp_path: Path) -> None:
    """All pages, none failed, each requested once as nginx counts, robots.txt per worker."""
    expected = reference_set(POSTGRES_MANUAL).pages
    with nginx_site(POSTGRES_MANUAL) as site:
        view, paths = crawled(site, tmp_path)
        twice, requested_paths = asked_twice(site), set(site.requests())
    assert len(expected) > 1_000  # 1,169 or 1,167, by the release that Debian has
    assert len(paths) == len(set(paths))
    assert set(paths) == expected
    assert (view["state"], view["failed"], view["queued"]) == ("completed", 0, 0)
    assert view["pages"] == view["items"] == len(paths)
    assert requested_paths == expected | {"/robots.txt"}
    assert twice.keys() <= {"/robots.txt"}
    assert twice.get("/robots.txt", 2) == 2


def test_the_python_manual_is_found_whole_with_its_one_dead_link(tmp_path: Path) -> None:
    """All pages; the one link that leads nowhere is failed: http_404, and listed."""
    expected = reference_set(PYTHON_MANUAL)
    with nginx_site(PYTHON_MANUAL) as site:
        view, paths = crawled(site, tmp_path)
        twice = asked_twice(site)
    assert len(expected.pages) > 500
    assert len(expected.missing) == 1
    assert len(paths) == len(set(paths))
    assert set(paths) == expected.pages
    assert (view["state"], view["queued"]) == ("completed", 0)
    assert (view["failed"], view["failed_reasons"]) == (1, {"http_404": 1})
    assert view["pages"] == view["items"]
    assert twice.keys() <= {"/robots.txt"}
    listed = command("export", 1, "--failed", "--data", tmp_path / "d", cwd=tmp_path)
    dead = [row for row in map(json.loads, listed.stdout.splitlines()) if row["state"] == "dead"]
    assert [row["url"].removeprefix(site.url.rstrip("/")) for row in dead] == [*expected.missing]
    assert (dead[0]["status"], dead[0]["attempts"]) == (404, 1)
