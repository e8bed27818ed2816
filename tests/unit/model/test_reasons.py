"""The registry of reasons: complete texts, names that exist, codes that do not change."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from zcrawl import errors
from zcrawl.cli.main import COMMANDS, cli
from zcrawl.config import Config
from zcrawl.fetch.policy import RETRY_CLASS_OF, classify_status
from zcrawl.frontier.breaker import SILENT
from zcrawl.frontier.scope import SCOPE_REASONS
from zcrawl.model.reasons.cluster import lacks
from zcrawl.model.reasons.failure import blocked_address, http_status
from zcrawl.model.reasons.reason import Reason, ReasonKind, skip
from zcrawl.model.reasons.registry import (
    MODULES,
    REASONS,
    all_reasons,
    find_reason,
    reasons_page,
    similar_codes,
)
from zcrawl.model.reasons.skip import duplicate_of, is_duplicate, required, schema_broken
from zcrawl.model.spec import JobSpec
from zcrawl.submit.keys import dotted_keys

REPOSITORY = Path(__file__).resolve().parents[3]
KEY = re.compile(r"(?<![\w./-])([a-z]+)\.([a-z_0-9]+)\b(?!\.)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
CALL = re.compile(r"`zcrawl ([a-z-]+)")
SECTIONS = ("scope", "politeness", "traps", "sitemaps", "fetch", "login", "browser", "output",
            "recrawl", "duplicates", "spider_limits", "worker", "data", "cluster", "consul",
            "database", "mesh", "bodies", "outputs", "console")  # fmt: skip


def texts() -> list[tuple[Reason, str]]:
    return [(reason, text) for reason in all_reasons() for text in (reason.meaning, reason.remedy)]


def test_the_page_of_the_docs_is_the_registry() -> None:
    """docs/reasons.md is generated; `make docs/reasons.md` brings it up to date."""
    assert (REPOSITORY / "docs" / "reasons.md").read_text("utf-8") == reasons_page()


def test_each_reason_has_short_plain_sentences() -> None:
    """A meaning is a sentence, and no text is longer than a reader takes in at once."""
    for reason, text in texts():
        assert 5 < len(text) <= 160, (reason.code, len(text))
        assert "\n" not in text, reason.code
        assert "  " not in text, reason.code
    for reason in all_reasons():
        assert reason.meaning.endswith("."), reason.code


def test_the_keys_that_texts_name_exist() -> None:
    """A remedy that names a key of a job or configuration names one that can be set."""
    keys = {*dotted_keys(JobSpec), *dotted_keys(Config)}
    named = {
        (reason.code, f"{section}.{key}")
        for reason, text in texts()
        for section, key in KEY.findall(text)
        if section in SECTIONS
    }
    assert len(named) > 60
    assert sorted(pair for pair in named if pair[1] not in keys) == []


def test_the_commands_and_flags_that_texts_name_exist() -> None:
    """A remedy that names a command or a flag names one that can be typed."""
    flags = {"--help"}

    def collect(command: click.Command) -> None:
        flags.update(flag for param in command.params for flag in param.opts)
        for inner in getattr(command, "commands", {}).values():
            collect(inner)

    for name in COMMANDS:
        collect(cli.load(name))
    named = {(reason.code, flag) for reason, text in texts() for flag in FLAG.findall(text)}
    assert len(named) > 20
    assert sorted(pair for pair in named if pair[1] not in flags) == []
    called = {(reason.code, name) for reason, text in texts() for name in CALL.findall(text)}
    assert sorted(pair for pair in called if pair[1] not in COMMANDS) == []


def test_each_member_is_its_code() -> None:
    """A member is a plain text and is called after its code, so stored and sent forms stay."""
    for module in MODULES:
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, str):
                assert type(value) is str
                assert name == value.upper().replace(" ", "_")
                assert value in REASONS


def test_a_code_cannot_be_registered_twice() -> None:
    """Two meanings of one code would leave a user with the wrong one."""
    with pytest.raises(ValueError, match="registered twice"):
        skip("robots", "Other.", "Other.")
    assert REASONS["robots"].kind is ReasonKind.SKIP


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (http_status(404), "http"),
        ("http_503", "http"),
        (duplicate_of("https://a.example/"), "duplicate"),
        ("duplicate", "duplicate"),
        (lacks("parser 'x'"), "lacks"),
        (blocked_address("private (10.1.2.3)"), "blocked_address"),
        ("blocked_address", "blocked_address"),
        (required("price"), "required"),
        (schema_broken("price"), "schema"),
        ("bad_spec: the stored job cannot be read", "bad_spec"),
        ("paused by request", "paused by request"),
        ("http2", "http2"),
    ],
)
def test_a_reason_is_found_with_and_without_its_parameter(text: str, code: str) -> None:
    """What is stored, counted or shown leads to the entry."""
    reason = find_reason(text)
    assert reason is not None
    assert reason.code == code


@pytest.mark.parametrize("text", ["", "http", "http_", "http_4x4", "http_40400", "robots: x",
                                  "duplicates", "nope", "robots_"])  # fmt: skip
def test_a_text_that_is_no_reason_is_not_found(text: str) -> None:
    """Only the documented forms count."""
    assert find_reason(text) is None


def test_the_forms_of_reasons_are_what_databases_and_peers_hold() -> None:
    """Written out once more: other versions wrote these, and have to read them."""
    assert http_status(404) == "http_404"
    assert duplicate_of("https://a.example/") == "duplicate of https://a.example/"
    assert len(duplicate_of("x" * 1_000)) == 255
    assert is_duplicate("duplicate of x")
    assert not is_duplicate("duplicate")
    assert lacks("spider 'a'") == "lacks spider 'a'"
    assert blocked_address("loopback (localhost)") == "blocked_address: loopback (localhost)"
    assert required("price") == "required: price"
    assert schema_broken("price") == "schema: price"


def test_a_mistyped_code_leads_to_those_that_are_near() -> None:
    """`robot` and `time-out` find what was meant; nonsense finds nothing."""
    assert similar_codes("robot")[0] == "robots"
    assert "connect_timeout" in similar_codes("connect-timeout")
    assert "too_large" in similar_codes("TOO_LARG")
    assert similar_codes("qqqqqqqq") == []


def test_all_tables_of_the_product_have_registered_reasons() -> None:
    """Each error class, each retry class, each HTTP status, each verdict of a scope."""

    def codes(kind: type[errors.ZcrawlError]) -> set[str]:
        return {kind.code}.union(*(codes(inner) for inner in kind.__subclasses__()))

    statuses = {classify_status(status).reason for status in range(100, 600)} - {""}
    for code in {*codes(errors.ZcrawlError), *RETRY_CLASS_OF, *statuses, *SILENT, *SCOPE_REASONS}:
        assert find_reason(code) is not None, code
    failures = (REASONS[code] for code in RETRY_CLASS_OF)
    assert [reason.code for reason in failures if ReasonKind.FAILURE not in reason.kinds] == []
