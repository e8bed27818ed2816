"""Plugins: the example package is installed, keeps the contract, and works in a real crawl."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crawling import command, items
from tests.web.echo_site import echo_site
from tests.web.static_site import serving, static_site
from zcrawl import plugins
from zcrawl.errors import PluginError
from zcrawl.testing.plugin_contract import MiddlewareContract, ParserContract, StoreContract

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "zcrawl-stamp"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built and installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("stamp")
    shutil.copytree(EXAMPLE, folder / "source")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"),
            *("--quiet", "--no-index", "--target", str(folder / "installed")),
            str(folder / "source"),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder


def crawl_command(
    tmp_path: Path, package: Path | None, job: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "job.toml").write_text(job)
    paths = [os.environ.get("PYTHONPATH", "")]
    if package is not None:
        paths.insert(0, str(package / "installed"))
    return command(
        *("crawl", "--job", "job.toml", "--data", "d", "--out", "out.jsonl", "--workers", 1),
        *("--rate", 0, "--json", "--allow-private"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


def crawled(
    tmp_path: Path, package: Path | None, job: str
) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    done = crawl_command(tmp_path, package, job)
    assert done.returncode in (0, 1), done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    return summary, items(tmp_path / "out.jsonl"), done.stderr


def test_the_examples_own_tests_pass(package: Path) -> None:
    """The contract suite is usable from a plugin's own folder, with pytest and nothing else."""
    paths = os.pathsep.join([str(package / "installed"), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=package / "source",
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "25 passed" in done.stdout


def test_middleware_and_parser_of_an_installed_package_work_in_a_crawl(
    package: Path, tmp_path: Path
) -> None:
    """The header is sent, items are stamped or dropped, plain text is read, its links followed."""
    with echo_site() as site:
        site.pages = {"/": b"<a href=/text.txt>t</a>"}
        text = "first\n\n/second\n"
        with static_site({"/lines": ("text/plain", text.encode())}) as plain:
            summary, crawled_items, _ = crawled(
                tmp_path,
                package,
                f'name = "stamped"\nseeds = ["{site.origin}/", "{plain}/lines"]\n'
                'middlewares = ["stamp"]\nparsers = ["lines"]\n[plugins.stamp]\nkey = "mine"\n',
            )
        assert {request["headers"].get("x-stamp") for request in site.of("/")} == {"mine"}
        lines = [item for item in crawled_items if "line" in item]
        assert [(item["line"], item["stamp"]) for item in lines] == [
            ("first", "mine"),
            ("/second", "mine"),
        ]
        assert all(item["stamp"] == "mine" and item["of"] for item in crawled_items)
        assert summary["failed"] == 1, "/second was followed, and is not there"
        view = json.loads(
            command("job", summary["job"], "--data", "d", "--json", cwd=tmp_path).stdout
        )
        assert view["rejected_items"] == {"dropped by middleware stamp": 1}, "the empty line"


def test_a_middleware_may_skip_a_page_by_its_answer(package: Path, tmp_path: Path) -> None:
    """With its reason; nothing of the page is kept, not in an archive either."""

    class Unwanted(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<title>Home</title><a href=/x>x</a>"
            self.send_response(404 if self.path == "/robots.txt" else 200)
            self.send_header("Content-Type", "text/html")
            if self.path == "/x":
                self.send_header("X-Not-Wanted", "1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A test's output is not the place for access logs."""

    with serving(Unwanted) as site:
        job = f'name = "m"\nseeds = ["{site}/"]\nmiddlewares = ["stamp"]\n'
        summary, crawled_items, said = crawled(
            tmp_path, package, f'{job}[output]\nto = ["p.warc.gz"]\n'
        )
    assert (summary["pages"], summary["skipped"]) == (1, 1)
    assert [item["title"] for item in crawled_items] == ["Home"]
    process = command("job", "m", "--data", "d", "--json", cwd=tmp_path)
    assert json.loads(process.stdout)["skipped_reasons"] == {"not_wanted": 1}
    archive = gzip.decompress((tmp_path / "d" / "p.warc.gz").read_bytes())
    assert archive.count(b"WARC-Type: response") == 1
    assert "middleware 'stamp' runs inside the workers" in said


def test_an_engine_a_spider_and_a_store_of_an_installed_package_work_in_a_crawl(
    package: Path, tmp_path: Path
) -> None:
    """No byte goes over a network: the plugin answers, the package's spider reads."""
    summary, crawled_items, _ = crawled(
        tmp_path,
        package,
        'name = "files"\nseeds = ["http://files.test/"]\nspider = "zcrawl_stamp.spiders:Titles"\n'
        '[fetch]\nengine = "files"\n[politeness]\nrobots = false\n'
        f'[output]\nto = ["plugin:folder"]\n[plugins.folder]\npath = "{tmp_path / "kept"}"\n',
    )
    assert sorted(item["title"] for item in crawled_items) == ["A", "Home"]
    assert summary["pages"] == 2
    kept = [
        line
        for file in (tmp_path / "kept").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sorted(json.loads(line)["title"] for line in kept) == ["A", "Home"], "in the store too"


FILES = '[fetch]\nengine = "files"\n[politeness]\nrobots = false\n'


def test_an_engine_gets_the_jobs_options(package: Path, tmp_path: Path) -> None:
    """Its pages are those of the job file."""
    pages = (
        '[plugins.files]\npages = { "/" = "<title>Mine</title><a href=/b>", "/b" = "<title>B" }\n'
    )
    job = f'name = "o"\nseeds = ["http://files.test/"]\n{FILES}{pages}'
    summary, crawled_items, _ = crawled(tmp_path, package, job)
    assert sorted(item["title"] for item in crawled_items) == ["B", "Mine"]
    assert (summary["pages"], summary["failed"]) == (2, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('pages = { "a" = "" }', "ValueError: pages: 'a' is no path"),
        ("folder = 1", "TypeError: Files.__init__() got an unexpected keyword argument 'folder'"),
    ],
)
def test_options_that_an_engine_does_not_take_are_told_before_the_crawl(
    package: Path, tmp_path: Path, options: str, says: str
) -> None:
    """The error has the plugin's message, and is raised before any page is requested."""
    job = f'name = "o"\nseeds = ["http://files.test/"]\n{FILES}'
    done = crawl_command(tmp_path, package, f"{job}[plugins.files]\n{options}\n")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "plugin_broken"
    assert says in error["message"]


def test_a_job_of_a_kind_that_a_package_adds_is_executed(package: Path, tmp_path: Path) -> None:
    """Once for a job without seeds, once for each seed of one that has some; nothing is fetched."""
    (tmp_path / "f").mkdir()
    for name in ("a.txt", "b.txt", "c.md"):
        (tmp_path / "f" / name).touch()
    plugin = f'[plugins.count]\nfolder = "{tmp_path / "f"}"\npattern = "*.txt"\n'
    summary, crawled_items, _ = crawled(tmp_path, package, f'name = "c"\nkind = "count"\n{plugin}')
    assert crawled_items == [{"job": "c", "about": None, "files": 2}]
    assert (summary["state"], summary["pages"], summary["failed"]) == ("completed", 1, 0)
    seeds = 'seeds = ["http://a.invalid/1", "http://b.invalid/2"]\n'
    summary, crawled_items, _ = crawled(
        tmp_path, package, f'name = "s"\nkind = "count"\n{seeds}{plugin}'
    )
    assert sorted(item["about"] for item in crawled_items) == [
        "http://a.invalid/1",
        "http://b.invalid/2",
    ]
    assert summary["skipped"] == summary["failed"] == 0, "no robots.txt, no host was asked"


def test_an_executor_may_skip_its_task(package: Path, tmp_path: Path) -> None:
    """With its reason, and without an item."""
    job = 'name = "c"\nkind = "count"\n[plugins.count]\nfolder = "/no/such/folder"\n'
    summary, crawled_items, _ = crawled(tmp_path, package, job)
    assert crawled_items == []
    assert summary["skipped"] == 1
    process = command("job", "c", "--data", "d", "--json", cwd=tmp_path)
    assert json.loads(process.stdout)["skipped_reasons"] == {"no_folder": 1}


def test_a_store_that_is_not_installed_is_told_before_the_crawl(tmp_path: Path) -> None:
    """The error is raised at the start, not after hours when the items cannot be written."""
    job = 'name = "x"\nseeds = ["http://files.test/"]\n[output]\nto = ["plugin:nobody"]\n'
    done = crawl_command(tmp_path, None, job)
    assert done.returncode == 2
    assert (
        "output.to: no store 'nobody' is installed" in json.loads(done.stdout)["error"]["message"]
    )


def test_plugins_are_named_when_they_are_missing_or_broken(package: Path) -> None:
    """Nothing of that name; an entry point whose code raises."""
    with pytest.raises(PluginError) as missing:
        plugins.make("middlewares", "nobody")
    assert (missing.value.code, str(missing.value)) == ("plugin_missing", "middleware 'nobody'")
    probe = (
        "import sys; from zcrawl import plugins\n"
        "try: plugins.make('middlewares', 'stamp', {'wrong': 1})\n"
        "except Exception as error: print(error.code, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env={**os.environ, "PYTHONPATH": f"{package / 'installed'}:{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("plugin_broken middleware 'stamp' (zcrawl_stamp:Stamp): TypeErr")


class _Bad(plugins.Middleware):
    def before_request(self, request: plugins.Outgoing) -> None:
        request.headers["X"] = "a\r\nb"


class _Greedy:
    def accepts(self, url: str, content_type: str) -> bool:
        return True

    def parse(self, url: str, content_type: str, body: bytes) -> plugins.Parsed:
        return plugins.Parsed([{"n": {1, 2}}])


class _Twice:
    def __init__(self) -> None:
        self.items: list[bytes] = []

    def put(self, name: str, items: list[bytes]) -> None:
        self.items += items

    def close(self) -> None: ...


def test_the_contract_finds_plugins_that_break_it() -> None:
    """A header that splits, a parser that takes everything, a store that keeps things twice."""
    middleware = type("_", (MiddlewareContract,), {"make": lambda self: _Bad()})()
    with pytest.raises(AssertionError):
        middleware.test_a_request_stays_one_that_can_be_sent()
    fields = {"make": lambda self: _Greedy(), "accepted": ("http://a.test/", "x/y", b"z")}
    parser = type("_", (ParserContract,), fields)()
    with pytest.raises(AssertionError):
        parser.test_it_leaves_others_alone()
    with pytest.raises(TypeError):
        parser.test_it_reads_its_own_page()
    fields = {"make": lambda self: _Twice(), "read": lambda self, store: store.items}
    store = type("_", (StoreContract,), fields)()
    with pytest.raises(AssertionError):
        store.test_the_same_name_twice_is_once()
