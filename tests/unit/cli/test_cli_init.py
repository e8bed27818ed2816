"""`zcrawl init` and `zcrawl config schema`: a beginning, and what a file may hold."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from zcrawl.cli.main import run
from zcrawl.cli.specs import prepare
from zcrawl.submit.read import job_schema, parse_job

CONFIGS = Path(__file__).parents[3] / "configs"


def test_init_writes_a_job_that_is_valid_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its comments taken away, too; a file that is there is not replaced by mistake."""
    monkeypatch.chdir(tmp_path)
    assert run(["init", "news", "--seed", "https://news.test/"]) == 0
    text = (tmp_path / "news.toml").read_text()
    spec = parse_job(text, "news.toml")
    assert spec.name == "news"
    assert spec.seeds == ("https://news.test/",)
    assert spec.scope.max_depth is None, "a depth would leave out pages that nobody misses"
    whole = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and ("=" in line or "[" in line) else line
        for line in text.splitlines()
    )
    assert len(parse_job(whole, "whole").extract[0].fields) > 4, "the commented keys exist"
    assert run(["init", "news"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert run(["init", "news", "--force"]) == 0
    assert run(["init", "12"]) == 2, "digits would be taken for an id"
    assert run(["init", 'a"b']) == 2
    assert run(["init", "x", "--seed", "nonsense:"]) == 2
    assert not (tmp_path / "x.toml").exists()


def test_init_writes_a_spider_whose_own_test_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job file that is valid with its spider, and a test that runs without a crawl."""
    monkeypatch.chdir(tmp_path)
    assert run(["init", "my_news", "--spider", "--seed", "https://news.test/", "--json"]) == 0
    files = ["my_news.toml", "my_news.py", "test_my_news.py"]
    assert json.loads(capsys.readouterr().out)["files"] == files
    spec = prepare((), "my_news.toml", None, {}).spec
    assert spec.scope.max_depth is None
    assert (spec.spider, spec.spider_args) == ("my_news.py:MyNews", {"root": "https://news.test/"})
    monkeypatch.syspath_prepend(str(tmp_path))
    tests: dict[str, Any] = {}
    exec((tmp_path / "test_my_news.py").read_text(), tests)
    for name in [name for name in tests if name.startswith("test_")]:
        tests[name]()
    (tmp_path / "my_news.toml").unlink()
    assert run(["init", "my_news", "--spider"]) == 2, "the spider is there already"
    assert not (tmp_path / "my_news.toml").exists()
    assert run(["init", "my-news", "--spider"]) == 2, "no module's name"
    assert run(["init", "class", "--spider"]) == 2, "nor that"


@pytest.mark.parametrize("of", ["job", "config"])
def test_the_schema_is_json_and_closed(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Editors complete keys by it and mark those that do not exist."""
    assert run(["config", "schema", of]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].endswith("2020-12/schema")
    objects = [
        definition for definition in schema["$defs"].values() if definition["type"] == "object"
    ]
    assert objects
    assert all(definition["additionalProperties"] is False for definition in objects)


@pytest.mark.parametrize("file", ["job-example.toml", "jobs/books.toml"])
def test_job_files_that_ship_follow_the_schema(file: str) -> None:
    """Short forms as well as long ones."""
    schema = job_schema()
    assert fits(tomllib.loads((CONFIGS / file).read_text()), schema["$ref"], schema["$defs"])
    wrong = {"name": "x", "extract": {"fields": {"a": {"csss": "b"}}}}
    assert not fits(wrong, schema["$ref"], schema["$defs"])


def fits(value: Any, schema: Any, definitions: dict[str, Any]) -> bool:
    """The part of JSON Schema that the schemas here use."""
    if isinstance(schema, str):
        schema = {"$ref": schema}
    if "$ref" in schema:
        return fits(value, definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return any(fits(value, option, definitions) for option in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    match schema.get("type"):
        case "object":
            inner, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
            return isinstance(value, dict) and all(
                fits(member, inner[key], definitions)
                if key in inner
                else rest is True or (rest is not False and fits(member, rest, definitions))
                for key, member in value.items()
            )
        case "array" if "prefixItems" in schema:  # of a fixed length
            inner = schema["prefixItems"]
            return len(value) == len(inner) and all(
                map(fits, value, inner, [definitions] * len(inner))
            )
        case "array":
            return isinstance(value, list) and all(
                fits(element, schema.get("items", {}), definitions) for element in value
            )
        case "string":
            return isinstance(value, str)
        case "integer" | "number":
            return isinstance(value, int | float)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case _:
            return True
