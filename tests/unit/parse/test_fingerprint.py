"""Fingerprints of texts: alike for texts that are almost the same, unlike for others."""

from __future__ import annotations

import random

import pytest
from selectolax.lexbor import LexborHTMLParser

from zcrawl.parse.fingerprint import BYTES, LEAST_WORDS, distance, fingerprint, fingerprint_of

NEAR = 20  # bits of 256: the distance that counts unless a job says otherwise

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "rt", "ssel", "")]
MENU = "<ul>" + "".join(f"<li><a href='/{n}'>Category {n}</a></li>" for n in range(40)) + "</ul>"


def prose(seed: int, words: int = 400) -> list[str]:
    """A text in which few words are frequent and many are rare, as in any language."""
    rng = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(WORDS))]
    order = rng.sample(WORDS, len(WORDS))
    return rng.choices(order, weights, k=words)


def page(text: list[str], menu: str = MENU) -> bytes:
    article = f"<article><h1>{' '.join(text[:4])}</h1><p>{' '.join(text)}</p></article>"
    footer = "<footer>© 2026 The Company. Imprint, terms, privacy, contact.</footer>"
    return fingerprint_of(
        LexborHTMLParser(f"<html><body><nav>{menu}</nav>{article}{footer}</body></html>")
    )


def test_the_same_text_has_the_same_fingerprint_in_every_process() -> None:
    """It is stored and compared by others, so no hash of this process may be in it."""
    text = " ".join(str(number) for number in range(LEAST_WORDS))
    assert (
        fingerprint(text).hex()
        == "2cdedf55dbab7ea242e6835c87134c7807185658bfe0c2bef7737e366f7cd8e7"
    )
    assert fingerprint(text.replace(" ", "\n\t")) == fingerprint(text)


def test_a_text_of_few_words_has_none() -> None:
    """A login form and an error page have little to say, and would be alike by chance."""
    assert fingerprint("word " * (LEAST_WORDS - 1)) == b""
    assert len(fingerprint("word " * LEAST_WORDS)) == BYTES
    assert fingerprint_of(LexborHTMLParser("<html><body><div id=root></div></body></html>")) == b""


def test_navigation_scripts_and_styles_have_no_vote() -> None:
    """The same article under another menu is the same text."""
    text = prose(1)
    other = page(text, menu="<script>track(1)</script><style>p{}</style><p>Something else</p>")
    assert page(text) == other != b""


def test_a_few_changed_words_change_few_bits() -> None:
    """A date, a counter, a corrected word: of 100 texts of 400 words nearly all stay near."""
    near = 0
    for seed in range(100):
        text = prose(seed)
        changed = [*text]
        changed[200] = "2026"
        near += distance(page(text), page(changed)) <= NEAR
    assert near >= 95


def test_different_texts_under_the_same_menu_are_far_apart() -> None:
    """No two of 200 articles of one site are near, however much of the page is menu."""
    prints = [page(prose(seed, words=120)) for seed in range(200)]
    closest = min(
        distance(first, other) for at, first in enumerate(prints) for other in prints[at + 1 :]
    )
    assert closest > 2 * NEAR


def test_boilerplate_that_no_tag_tells_does_not_make_pages_alike() -> None:
    """300 words of menu in a <div> and 60 of their own: 150 pages are 150 pages."""
    menu = " ".join(prose(0, words=300))
    prints = [fingerprint(f"{menu} {' '.join(prose(seed, words=60))}") for seed in range(1, 151)]
    near = sum(
        distance(first, other) <= NEAR
        for at, first in enumerate(prints)
        for other in prints[at + 1 :]
    )
    assert near == 0


def test_a_phrase_that_is_repeated_does_not_outvote_the_rest() -> None:
    """Two pages of an index: each entry is another one, and each is followed by the same words."""
    first, other = (
        " ".join(f"{word}{at} (method in module of the library)" for at, word in enumerate(text))
        for text in (prose(1, words=300), prose(2, words=300))
    )
    assert distance(fingerprint(first), fingerprint(other)) > 2 * NEAR


def test_a_script_without_spaces_is_compared_by_its_characters() -> None:
    """A text of few and very long words; a small change is a small change there too."""
    rng = random.Random(1)
    signs = [chr(0x4E00 + n) for n in range(500)]
    texts = ["".join(rng.choices(signs, k=900)) for _ in range(3)]
    prints = [fingerprint(text) for text in texts]
    assert distance(prints[0], fingerprint(texts[0][:-1] + "。")) <= NEAR
    assert min(distance(prints[0], prints[1]), distance(prints[0], prints[2])) > 2 * NEAR


@pytest.mark.parametrize("text", ["x", "\ud800 " * 60, "日本語 " * 60, "a b " * 60_000])
def test_no_text_is_too_strange(text: str) -> None:
    """Lone surrogates, other scripts, very long ones."""
    assert len(fingerprint(text)) in (0, BYTES)
