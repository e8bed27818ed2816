"""`zcrawl init NAME`: a job file with comments, to be edited and run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from zcrawl.cli.base import Command
from zcrawl.errors import JobError, UsageError
from zcrawl.model.formats import FORMATS
from zcrawl.model.reasons.usage import EXISTS

JOB: Final = """\
# A zcrawl job. Run it here:      zcrawl crawl {file}
# or give it to a cluster:        zcrawl submit {file}
# Every key: docs/job-file.md, docs/extraction.md, docs/outputs.md; `zcrawl config schema`.
name = "{name}"
seeds = ["{seed}"]
# tags = ["docs", "daily"]    # words that jobs are grouped by: zcrawl jobs --tag daily

[scope]                       # without this section: the hosts of the seeds
max_pages = 1000
# max_depth = 5               # steps from a seed; deeper pages are left out, and counted
# include = ['/articles/']    # patterns; one of them must be found in a URL
# exclude = ['/login', '\\.pdf$']

[politeness]                  # per host
rate = 2.0                    # requests a second
concurrency = 2

# What is kept of a page. Without it: one item per page with URL, status, title and the like.
[extract]
# match = '/articles/'        # only pages whose URL has this; {{ css = "article" }} is a selector
# item = "article"            # one item per match instead of one per page
# follow = ["h3 a", {{ css = "a.next", paging = true }}]   # only these links; without it: all
#                             # within the scope. `paging` links add no depth
[extract.fields]
title = {{ css = "h1", required = true }}     # an item without it is set aside, with the reason
text = {{ css = "main, article, body", type = "text" }}
# price = {{ css = ".price", type = "float" }}
# image = {{ css = "img", attr = "src", type = "url" }}
# tags = {{ css = ".tag", list = true }}
# number = {{ css = ".sku", re = 'No\\. (\\d+)', type = "int", default = 0 }}

# [extract.schema.properties] # what items must satisfy, as JSON Schema says it
# price = {{ type = "number", minimum = 0 }}

[output]
to = ["sql", "jsonl"]         # beside the database: {formats}, or names of files
"""


@click.command("init", cls=Command)
@click.argument("name")
@click.option("--seed", default="https://example.com/", metavar="URL", help="Where it starts.")
@click.option("--spider", is_flag=True, help="A Python spider, its job file and a test.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def init_command(name: str, seed: str, spider: bool, force: bool, as_json: bool) -> int:
    """Write a job file with comments.

    Its name is NAME.toml. It is a valid job, and its comments explain further keys. With --spider
    a Python spider, NAME.py, and its test, test_NAME.py, are written too.
    """
    from zcrawl.cli import output

    if "://" in name:
        raise UsageError(f"{name!r} is a URL; give a name too: zcrawl init NAME --seed {name}")
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if spider:
        from zcrawl.cli.commands.init_spider import spider_files

        texts = spider_files(path.name.removesuffix(".toml"), seed)
        files = {path.with_name(file): text for file, text in texts.items()}
    else:
        files = {path: job_text(path, seed)}
    if not force:
        for file_path in files:
            if _exists(file_path):
                raise UsageError(f"{file_path} exists already; --force replaces it", code=EXISTS)
    for file_path, text in files.items():
        _write(file_path, text, force)
    if as_json:
        output.print_json({"file": str(path), "files": [str(file_path) for file_path in files]})
    else:
        names = ", ".join(str(file_path) for file_path in files)
        verb = "are" if spider else "is"
        output.note(f"{names} {verb} written; edit, then: zcrawl crawl {shlex.quote(str(path))}")
    return 0


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder that may not be entered, a name that is too long
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None


def _write(path: Path, text: str, force: bool) -> None:
    from zcrawl.runtime.files import give_to_user

    new = not _exists(path)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
        if new:
            give_to_user(path)
    except FileExistsError:
        raise UsageError(f"{path} exists already; --force replaces it", code=EXISTS) from None
    except FileNotFoundError:
        raise UsageError(
            f"{path}: the folder {path.parent} does not exist; make it first"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None


def job_text(path: Path, seed: str) -> str:
    """Return the text of the file, checked: a bad name or seed is an error before writing."""
    from zcrawl.submit.read import parse_job

    name = path.name.removesuffix(".toml")
    if '"' in name + seed or "\\" in name + seed:
        raise JobError(f"{name!r} or {seed!r} has characters that a job file cannot hold")
    text = JOB.format(name=name, seed=seed, file=path, formats=", ".join(FORMATS))
    parse_job(text, str(path))
    return text
