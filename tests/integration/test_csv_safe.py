"""A page whose title is a formula, in the CSV files of a real crawl."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.integration.crawling import command
from tests.web.echo_site import echo_site


def titles(path: Path) -> set[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row["title"] for row in csv.DictReader(file)}


def test_formulas_are_text_in_files_that_ask_for_it(tmp_path: Path) -> None:
    """By the job file, by the flags of `crawl` and `export`; else the title is what it is."""
    with echo_site() as site:
        site.pages = {"/": b"<title>=1+1</title><a href=/b>b</a>", "/b": b"<title>-3.5</title>"}
        plain, safe = {"=1+1", "-3.5"}, {"'=1+1", "-3.5"}
        (tmp_path / "j.toml").write_text(
            f'name = "j"\nseeds = ["{site.origin}/"]\n[output]\nto = ["csv"]\ncsv_safe = true\n'
            "[politeness]\nrate = 0.0\n[fetch]\nallow_private = true\n"
        )
        crawl = ["crawl", f"{site.origin}/", "--allow-private", "--rate", "0", "--name"]
        assert command("crawl", "--job", "j.toml", "--data", "d", cwd=tmp_path).returncode == 0
        for name, more in (("plain", []), ("flag", ["--csv-safe"])):
            out = f"{name}.csv"
            done = command(*crawl, name, "--data", "d", "--out", out, *more, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
    assert titles(tmp_path / "d" / "j-1.csv") == safe
    assert titles(tmp_path / "plain.csv") == plain
    assert titles(tmp_path / "flag.csv") == safe
    for job, more, expected in (
        ("plain", [], plain),
        ("plain", ["--csv-safe"], safe),
        ("j", [], safe),
    ):
        done = command("export", job, "--out", "x.csv", "--data", "d", *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert titles(tmp_path / "x.csv") == expected
    wrong = command("export", "j", "--csv-safe", "--out", "x.jsonl", "--data", "d", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--csv-safe is for CSV" in wrong.stderr
