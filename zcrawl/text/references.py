"""Find and replace the references of a configuration: `${env:NAME}`, `${file:PATH}`,
`${sealed:TEXT}`.

Used by `config.resolve`; `roles.config_references` opens them. Pure. An error names the key and
the reference, never a value. A sealed text is long and of no use to people, so it is named by its
first characters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from zcrawl.text.patterns import lazy_pattern

ENV: Final = "env"
FILE: Final = "file"
SEALED: Final = "sealed"
KINDS: Final = (ENV, FILE, SEALED)
_REFERENCE: Final = lazy_pattern(r"\$\{(env|file|sealed):([^{}]*)\}")
_SHOWN: Final = 12  # characters of a sealed text


class Reference(msgspec.Struct, frozen=True):
    """One reference in a value of the configuration."""

    kind: str
    target: str  # a variable, a file, a sealed text

    def __str__(self) -> str:
        shown = self.target
        if self.kind == SEALED and len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}…"
        return f"${{{self.kind}:{shown}}}"


OpenReference: TypeAlias = Callable[[Reference], str]


def references_in(value: Any) -> list[Reference]:
    """Return the references in a value: a text, or a list or table with texts."""
    return [
        Reference(match[1], match[2])
        for text in _texts(value)
        if "${" in text
        for match in _REFERENCE.finditer(text)
    ]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _texts(inner)]
    return []


def opened(value: Any, open_reference: OpenReference) -> Any:
    """Return the value with its references replaced. What replaces one is not read again."""
    if isinstance(value, str):
        if "${" not in value:
            return value
        return _REFERENCE.sub(lambda match: open_reference(Reference(match[1], match[2])), value)
    if isinstance(value, dict):
        return {name: opened(inner, open_reference) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [opened(inner, open_reference) for inner in value]
    return value


def shown_value(value: Any) -> Any:
    """Return the value as it was written, with sealed texts cut."""
    return opened(value, str)
