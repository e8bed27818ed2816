"""The table of `zcrawl test`: values, problems and what was set aside."""

from __future__ import annotations

from zcrawl.cli.commands.test import SHOWN_ITEMS, extraction_rows, shown


def test_values_problems_and_rejections_have_their_rows() -> None:
    """Long values are cut, nested ones are JSON on one line."""
    report = {
        "items": [{"t": "x", "tags": ["a", "b"], "none": None}],
        "extraction": {
            "matched": True,
            "problems": [{"errors": {"price": "not a number: 'call us'"}}],
            "rejected": [{"reason": "required: t", "errors": {}, "item": {"t": None}}],
        },
    }
    assert extraction_rows(report) == [
        (1, "t", "x", ""),
        (1, "tags", '["a", "b"]', ""),
        (1, "none", "–", ""),
        ("?", "price", "", "not a number: 'call us'"),
        ("-", "", '{"t": null}', "set aside: required: t"),
    ]
    assert len(shown("long " * 100)) == 80
    assert shown("a\n\n b") == "a b"
    report["items"] = [{"t": "x"}] * (SHOWN_ITEMS + 5)
    assert ("…", "5 more items", "", "--json has all") in extraction_rows(report)
