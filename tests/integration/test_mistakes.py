"""Mistakes of users, each through the real command: the message, its stream, and the exit code.

All of these end before a page is fetched: nothing listens at the address of the seeds.
"""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.crawling import wait_until

URL = "http://127.0.0.1:9/"  # the port of `discard`: nobody answers there
SPIDER = """
from zcrawl.spider import Request, Spider

class Books(Spider):
    def parse(self, page):
        yield Request("book", handler="{handler}")

    def parse_book(self, page):
        yield {{"url": page.url}}
{more}
"""


def zcrawl(
    *arguments: str, folder: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zcrawl", *arguments],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def told_before_the_crawl(done: subprocess.CompletedProcess[str], words: str) -> None:
    assert words in done.stderr
    assert done.stderr.count("\n") == 1, "one line"
    assert done.stdout == ""
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["./index.html"], "is a file's path"),
        (["index.html"], "python3 -m http.server"),
        (["example.com"], "has no scheme. Try https://example.com"),
        (["http://127.0.0.1:99999/"], "has port 99999; ports go from 1 to 65535"),
        ([URL, "--out", "x.json"], "name the file x.jsonl"),
        ([URL, "--max-pages", "many"], "'many' is not a whole number"),
        ([URL, "--depth", "-1"], "-1 is too small; at least 0"),
        ([URL, "--workers", "5000"], "5000 is not allowed; from 1 to 1000"),
        ([URL, "--data", "a-file"], "a-file is a file; name a folder"),
        (["http://127.0.0.1:0/"], "has port 0; ports go from 1 to 65535"),
        (["http://127.0.0.1:abc/"], "has port abc; ports go from 1 to 65535"),
        (["https:///books"], "has no host"),
        (["https://exa mple.com/"], "has a space in its host"),
        (["localhost:8000"], "Try http://localhost:8000"),
        (["-"], "write --seeds -"),
        (["jobs.toml"], "jobs.toml: no such file; did you mean job.toml?"),
        (["job.toml", URL], "zcrawl crawl --job job.toml URL..."),
        (["job.toml"], "nothing to crawl: job.toml has no seeds; add seeds = ["),
        (["config.json"], "A job file is TOML, and its name ends in .toml"),
        ([URL, "--out", "no/a.csv"], "no does not exist; make it first"),
        ([URL, "--include", "*.html"], "a regular expression is not a wildcard: write .*"),
        ([URL, "--config", "missing.toml"], "--config missing.toml: no such file"),
    ],
)
def test_a_mistake_on_the_command_line_is_told_with_its_remedy(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    """The sentence says what to write instead, in words of people who do not program."""
    (tmp_path / "a-file").touch()
    (tmp_path / "job.toml").write_text('name = "a"\n')
    told_before_the_crawl(zcrawl("crawl", *arguments, folder=tmp_path), words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f'seeds = "{URL}"',
            'a list is needed, not text in quotes (write it in brackets: ["..."])',
        ),
        ("seeds = []", "nothing to crawl: job.toml has no seeds"),
        ("[politeness]\nrobots = no", "line 4: not valid TOML: Invalid value: robots = no (texts"),
        ("[politeness]\nrobots = 'no'", "politeness.robots: true or false is needed, not text"),
        ("[fetch]\nheaders = { X = 1 }", "fetch.headers.X: text in quotes is needed, not a whole"),
        ("[fetch]\nca_file = 'my.pem'", "fetch.ca_file: my.pem cannot be read: No such file"),
        ("[fetch]\ntimeout = '20'", "(write it without quotes)"),
        ("[fetch]\nauth = { host = 'a' }", "(write it in brackets: [{ ... }])"),
        ("[login]\nurl = 'login'", "login.url: not a valid URL: 'login' has no scheme"),
        ("[output]\nto = ['json']", "one object a line; write 'jsonl'"),
        ("[output]\nfile = 'a.jsonl'", "did you mean 'output.to'?"),
        ("output = 'a.jsonl'", "(write a section, [output], with keys below it)"),
        ("depth = 3", "did you mean 'scope.max_depth'?"),
        ("[extract]\ntitle = 'h1'", "fields of an item are written below [extract.fields]"),
        ("[extract.fields]\na = { css = 'b', attr = 5 }", "extract.fields.a.attr: text in quotes"),
        ("[extract.fields]\na = { xpath = '//h1' }", "XPath is not supported, write css"),
        ("[extract.fields]\na = { css = 'p:contains(x)' }", "CSS has no :contains()"),
        ("[extract.fields]\na = { json = 'a..b' }", "not a JMESPath expression: 'a..b', at char"),
        ("[extract.fields]\na = 5", "extract.fields.a is a whole number; write a CSS selector"),
        ("seeds = [1]", "seeds, entry 1: text in quotes is needed, not a whole number"),
        ('allowed_domains = ["a"]', "unknown key 'allowed_domains'; did you mean 'scope.hosts'?"),
        ('[schedule]\ncron = "0 3 * *"', "a line has five fields"),
        ("[extract.fields]\ntitle = 'h1::text'", "is taken by itself: write 'h1'"),
        ("[extract.fields]\ntitle = 'a::attr(href)'", "write { css = 'a', attr = 'href' }"),
        ("[extract.fields]\ntitle = '//h1'", "XPath is not supported"),
        (
            "[extract.fields]\ntitle = 'h1'\n[extract.schema]\nrequired = ['titel']",
            "extract.schema: the block has no field 'titel'; it has title; did you mean 'title'?",
        ),
        (
            "schema = { properties = { price = { type = 'number' } } }\n"
            "[[extract]]\nfields = { title = 'h1' }\n[[extract]]\nfields = { date = 'time' }",
            "schema: no block fills the field 'price'; the [extract] blocks have date, title",
        ),
        ("[fetch]\nengine = 'splash'", "no engine 'splash' is installed on this machine; known:"),
        ("[fetch]\nengine = 'htp'", "did you mean 'http"),
        ("middlewares = ['stamp']", "middlewares: no middleware 'stamp' is installed"),
        ("parsers = ['pdf']", "parsers: no parser 'pdf' is installed"),
        ("[output]\nto = ['plugin:kafka']", "output.to: no store 'kafka' is installed"),
        (
            "[fetch]\nheaders = { X = '${TOKEN}' }",
            "fetch.headers.X uses the secret ${TOKEN}, which is not set: export ZCRAWL_SECRET_TOK",
        ),
    ],
)
@pytest.mark.parametrize("command", [["crawl"], ["test"]], ids=["crawl", "test"])
def test_a_mistake_in_a_job_file_is_told_before_the_crawl(
    command: list[str], text: str, words: str, tmp_path: Path
) -> None:
    """With the key, what is wrong with it and what to write."""
    seeds = "" if "seeds" in text else f'seeds = ["{URL}"]\n'
    (tmp_path / "job.toml").write_text(f'name = "a"\n{seeds}{text}\n')
    told_before_the_crawl(zcrawl(*command, "job.toml", folder=tmp_path), words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([URL], f"To crawl it: `zcrawl crawl {URL}`"),
        (["job.toml"], "To crawl it: `zcrawl crawl job.toml`"),
        (["run", "job.toml"], "To run a job file: `zcrawl crawl job.toml`"),
        (["status"], "Did you mean 'jobs'?"),
        (["stop", "1"], "Did you mean 'cancel'?"),
        (["--verbose", "crawl", URL], "write it after: `zcrawl crawl --verbose`"),
        (["jobs", "1"], "To see one job: `zcrawl job 1`"),
        (["up", "job.toml"], "To give it a job: `zcrawl submit job.toml`"),
        (["demo", URL], f"To crawl a site: `zcrawl crawl {URL}`"),
        (["crawl", URL, "--format", "csv"], "The ending of --out FILE sets the format"),
        (["crawl", URL, "--out", "a.xlsx"], "(spreadsheets open .csv)"),
        (["crawl", "urls.txt"], "For a list of URLs in a file: --seeds FILE"),
        (["crawl", "sp.py"], "For a spider in a file: --spider sp.py:Name"),
        (["crawl", URL, "--spider", "sp:Books"], "for the file sp.py write sp.py:Books"),
        (["crawl", "me@example.com"], "an e-mail address at example.com. For its site write http"),
        (["crawl", "--seeds", "folder"], "--seeds folder is a folder; name a file"),
        (["crawl", "--resume"], "--data DIR names the folder of the crawl"),
        (["crawl", URL, "--config", "job.toml"], "job.toml is a job file, not a configuration"),
        (["resume"], "`zcrawl crawl --resume` continues a crawl"),
        (["init", URL], f"give a name too: zcrawl init NAME --seed {URL}"),
        (["master"], "give --config FILE (configs/master.toml is an example)"),
    ],
)
def test_what_a_newcomer_tries_is_answered_with_what_to_write(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    """Commands, options and files that are not what zcrawl calls them."""
    (tmp_path / "job.toml").write_text(f'name = "a"\nseeds = ["{URL}"]\n')
    (tmp_path / "urls.txt").write_text(URL)
    (tmp_path / "sp.py").write_text(SPIDER.format(handler="parse_book", more=""))
    (tmp_path / "folder").mkdir()
    told_before_the_crawl(zcrawl(*arguments, folder=tmp_path), words)


def test_a_number_of_the_environment_that_is_a_word_is_told_with_the_variable(
    tmp_path: Path,
) -> None:
    """A variable has no quotes, so the message speaks of none."""
    done = zcrawl("jobs", folder=tmp_path, env={"ZCRAWL_WORKER__SLOTS": "many"})
    words = "ZCRAWL_WORKER__SLOTS: worker.slots: a whole number is needed, not a text ["
    told_before_the_crawl(done, words)


@pytest.mark.parametrize(
    "command", ["jobs", "nodes", "job a", "export a", "crawl --resume", "submit job.toml"]
)
def test_a_file_instead_of_a_data_folder_is_told_by_every_command(
    command: str, tmp_path: Path
) -> None:
    """Not that there is no database in it, or no cluster."""
    (tmp_path / "a-file").touch()
    done = zcrawl(*command.split(), "--data", "a-file", folder=tmp_path)
    told_before_the_crawl(done, "a-file is a file; name a folder")


LONG = "x" * 300  # longer than the name of a file may be


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"jobs --data {LONG}", "cannot be read: File name too long. Use a folder of your own"),
        (f"crawl {URL} --out {LONG}.csv", ".csv: cannot be written: File name too long"),
        (f"init {LONG}/a", ".toml: cannot be written: File name too long"),
        (f"init {LONG}/a --force", ".toml: cannot be written: File name too long"),
        (f"crawl {URL} --out ./a", "a: the format is not known. The ending of the file's name"),
        (f"crawl {URL} --out /", "/: the format is not known"),
        ("config validate job.toml", "check it and one of its pages: zcrawl test job.toml"),
        ("jobs --data job.toml/x", "is not a folder: "),
    ],
)
def test_a_path_that_cannot_be_used_is_not_an_internal_error(
    command: str, words: str, tmp_path: Path
) -> None:
    """The message has the path, the reason and what to do."""
    (tmp_path / "job.toml").write_text(f'name = "a"\nseeds = ["{URL}"]\n')
    told_before_the_crawl(zcrawl(*command.split(), folder=tmp_path), words)


def test_a_data_folder_in_use_says_who_takes_jobs_there(tmp_path: Path) -> None:
    """`submit` gives the job to the cluster that runs; or another folder."""
    up = ["up", "--workers", "1", "--data", "data"]
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "zcrawl", *up],
            cwd=tmp_path,
            stderr=err,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait_until(lambda: "submit with" in (tmp_path / "err").read_text())
        done = zcrawl("crawl", URL, "--data", "data", folder=tmp_path)
        assert "Give it the job with `zcrawl submit`, or use another folder" in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.returncode == 1
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_a_group_of_commands_alone_shows_its_help(tmp_path: Path) -> None:
    """On several lines, as help is; exit 2, because nothing was done."""
    done = zcrawl("config", folder=tmp_path)
    assert "\n  validate  Check a file" in done.stderr
    assert (done.stdout, done.returncode) == ("", 2)


def test_init_prints_a_command_that_can_be_copied(tmp_path: Path) -> None:
    """A name with a space stands in quotes."""
    done = zcrawl("init", "my job", folder=tmp_path)
    assert "then: zcrawl crawl 'my job.toml'" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("more", "name", "handler", "words"),
    [
        ("", "Books", "pars_book", "the spider has no handler 'pars_book'; did you mean 'parse_b"),
        ("", "Bookz", "parse_book", "sp.py:Bookz cannot be loaded: LookupError"),
        ("import not_there", "Books", "parse_book", "No module named 'not_there' (sp.py, line"),
    ],
)
def test_a_spider_that_cannot_work_is_told_before_the_crawl(
    more: str, name: str, handler: str, words: str, tmp_path: Path
) -> None:
    """With the last line of what Python said, and the place in the file."""
    (tmp_path / "sp.py").write_text(SPIDER.format(handler=handler, more=more))
    done = zcrawl("crawl", URL, "--spider", f"sp.py:{name}", folder=tmp_path)
    told_before_the_crawl(done, words)


def test_a_spider_without_start_needs_seeds(tmp_path: Path) -> None:
    """Without either there is nothing to do, which is known before the crawl."""
    (tmp_path / "sp.py").write_text(SPIDER.format(handler="parse_book", more=""))
    done = zcrawl("crawl", "--spider", "sp.py:Books", folder=tmp_path)
    told_before_the_crawl(done, "nothing to begin with. Give seeds")


@pytest.mark.parametrize(
    ("module", "text", "extra"),
    [
        ("playwright", "[fetch]\nengine = 'browser'", "browser"),
        ("warcio", "[output]\nto = ['warc']", "warc"),
        ("pyarrow", "[output]\nto = ['parquet']", "parquet"),
        ("obstore", "[output]\nto = ['s3://bucket/a.jsonl']", "s3"),
        ("trafilatura", "[extract.fields]\ntext = { main = true }", "content"),
        ("h2", "[fetch]\nengine = 'httpx'\nhttp2 = true", "http2"),
    ],
)
def test_an_optional_package_that_is_missing_is_told_before_the_crawl(
    module: str, text: str, extra: str, tmp_path: Path
) -> None:
    """With the command that installs it; not after hours of crawling."""
    (tmp_path / "job.toml").write_text(f'name = "a"\nseeds = ["{URL}"]\n{text}\n')
    # A finder that knows nothing of the package, as if it were not installed.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "real = importlib.util.find_spec\n"
        f"hidden = {module!r}\n"
        "importlib.util.find_spec = lambda name, *a: None if name == hidden else real(name, *a)\n"
    )
    done = zcrawl("crawl", "job.toml", folder=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    told_before_the_crawl(done, f"pip install 'zcrawl[{extra}]'")


def closed_hours() -> str:
    """Hours of the day that neither are now nor begin within an hour."""
    now = datetime.datetime.now(datetime.UTC).hour
    return f"{(now + 3) % 24:02}:00-{(now + 5) % 24:02}:00"


def test_a_crawl_outside_its_hours_says_what_it_waits_for(tmp_path: Path) -> None:
    """Nothing happens for hours, and the display says why, as the console does."""
    (tmp_path / "job.toml").write_text(
        f'name = "a"\nseeds = ["{URL}"]\n[politeness]\nrobots = false\n'
        f'hours = ["{closed_hours()}"]\n'
    )
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "zcrawl", "crawl", "job.toml", "--data", "data"],
            cwd=tmp_path,
            stderr=err,
            stdin=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: "outside the hours of its job" in (tmp_path / "err").read_text())
            job = zcrawl("job", "a", "--data", "data", "--json", folder=tmp_path)
            assert "outside the hours of its job" in job.stdout
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
