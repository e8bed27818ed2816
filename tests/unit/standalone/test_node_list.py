"""The list of standalone nodes, as people and machines write it."""

from __future__ import annotations

import pytest

from zcrawl.errors import ConfigError
from zcrawl.standalone.node_list import NodeList, parse_nodes


@pytest.mark.parametrize(
    "text",
    ['["b", "a"]', '{"a": "", "b": ""}', "a\nb\n", "- b\n- 'a'\n", "\ufeff# all\n\n- a # first\nb"],
)
def test_all_forms_give_the_same_list(text: str) -> None:
    """JSON, lines and the lines of a YAML list, in any order."""
    assert parse_nodes(text, "here") == NodeList(("a", "b"))


def test_an_address_follows_the_id() -> None:
    """In lines and in JSON."""
    expected = NodeList(("a", "b"), {"a": "tcp://10.0.0.1:7700", "b": "tcp://b.test:7700"})
    assert parse_nodes("- b=tcp://b.test:7700\n- a=tcp://10.0.0.1:7700", "here") == expected
    assert parse_nodes('{"a": "tcp://10.0.0.1:7700", "b": "tcp://b.test:7700"}', "x") == expected
    assert expected.has_addresses
    assert expected.fingerprint != NodeList(("a", "b")).fingerprint


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_node_list"),
        ("[]", "empty_node_list"),
        ("# nobody\n", "empty_node_list"),
        ('["a", "a"]', "duplicate_nodes"),
        ("a=tcp://x:1\nb=tcp://x:1", "duplicate_nodes"),
        ("a=tcp://x:1\nb", "bad_node_list"),
        ("a=x:1", "bad_node_list"),
        ("a=tcp://*:1\nb=tcp://x:1", "bad_node_list"),
        ("a=tcp://x:0", "bad_node_list"),
        ("a b", "bad_node_list"),
        ('["a"', "bad_node_list"),
        ("[1]", "bad_node_list"),
        ('{"a": 1}', "bad_node_list"),
    ],
)
def test_what_cannot_be_meant_is_an_error_with_its_name(text: str, code: str) -> None:
    """The message begins with the source."""
    with pytest.raises(ConfigError, match=r"^here: ") as caught:
        parse_nodes(text, "here")
    assert caught.value.code == code
