"""Remove the values of secrets from texts that are stored or logged.

Used by workers for what tasks give back: a server may repeat a request's headers in its answer, a
command may print its environment. Pure. A value is also found as JSON, as part of a URL and in
base64. Values of fewer than 4 characters are not looked for, because ordinary text has them too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, quote_plus

LEAST_LENGTH: Final = 4


class Redactor:
    def __init__(self, secrets: Mapping[str, str]) -> None:
        """Take name → value; a value is replaced by `${name}`."""
        forms: dict[str, str] = {}
        for name, value in secrets.items():
            if len(value) < LEAST_LENGTH:
                continue
            for form in (
                value,
                json.dumps(value)[1:-1],
                json.dumps(value, ensure_ascii=False)[1:-1],
                quote(value, safe=""),
                quote_plus(value),
                base64.b64encode(value.encode("utf-8", "surrogateescape")).decode(),
            ):
                forms.setdefault(form, "${" + name + "}")
        # The longest first: a value may contain another one.
        self._forms = sorted(forms.items(), key=lambda form: -len(form[0]))
        self._bytes = [
            (form.encode("utf-8", "surrogateescape"), shown.encode()) for form, shown in self._forms
        ]

    def piece(self, data: bytes, *, cut_before: bool = False, cut_after: bool = False) -> bytes:
        """Return a piece of something longer, without values and without the bytes at its edges
        that may be a part of one."""
        data = self.data(data)
        start = self.longest if cut_before else 0
        return data[start : max(start, len(data) - self.longest)] if cut_after else data[start:]

    @property
    def longest(self) -> int:
        """The bytes of the longest text that is removed; 0: none is."""
        return max((len(form) for form, _ in self._bytes), default=0)

    def text(self, text: str) -> str:
        for form, shown in self._forms:
            text = text.replace(form, shown)
        return text

    def data(self, data: bytes) -> bytes:
        for form, shown in self._bytes:
            data = data.replace(form, shown)
        return data
