"""Expressions of modules are compiled when they are first used, and all of them can be compiled."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import zcrawl
from zcrawl.text.patterns import _Uncompiled, lazy_pattern

# Loaded by programs of their own, or with packages that may be missing.
ALONE = ("zcrawl.__main__", "zcrawl.fetch.browser")


def modules() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(zcrawl.__path__, "zcrawl.")]
    return [name for name in names if not name.startswith(ALONE)]


def test_an_expression_behaves_like_a_compiled_one() -> None:
    """All methods, groups and flags; a second use takes the same method."""
    lazy, compiled = lazy_pattern(r"(?P<a>X+)y", re.IGNORECASE), re.compile(r"(?P<a>X+)y", re.I)
    assert lazy.fullmatch("xxY")["a"] == "xx"  # type: ignore[index]
    assert lazy.sub("-", "xy xxy") == compiled.sub("-", "xy xxy")
    assert (lazy.pattern, lazy.flags, lazy.groups) == (compiled.pattern, compiled.flags, 1)
    assert lazy.search is lazy.search
    assert lazy_pattern(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_a_wrong_expression_is_an_error_at_its_first_use() -> None:
    """Not when its module is loaded: hence the next test."""
    lazy = lazy_pattern("(")
    with pytest.raises(re.error):
        lazy.search("x")


@pytest.mark.parametrize("name", modules())
def test_every_expression_of_every_module_can_be_compiled(name: str) -> None:
    """A mistake in one is found here, not in a crawl."""
    for value in vars(importlib.import_module(name)).values():
        values = value.values() if isinstance(value, dict) else [value]
        for each in values:
            if isinstance(each, _Uncompiled):
                assert each.pattern
