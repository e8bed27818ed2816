"""Compile the regular expressions and JMESPath expressions of a job. No other module does.

Called by `submit` on the leader, and by `frontier.scope`, `parse.extract` and
`worker.pipeline.login` before a run. Pure. Jobs come from clients, and their expressions are
applied to untrusted texts, so:

- Regular expressions run on RE2. Its time grows with the text only; Python's `re` can need years
  for `(a+)+$`, and blocks everything else in the process meanwhile.
- The cost of an expression is limited when it is compiled: MAX_LENGTH characters, MAX_PROGRAM
  instructions, MAX_MEMORY bytes. In the worst case RE2 takes each instruction for each byte (7 ns,
  measured), so a search of a text that is too long for its expression raises TooManySteps.
- An invalid expression is refused with the reason, the position and another way to write it.
  RE2 itself does not report a position: `_explain` finds it.

tests/architecture forbids `re` with a pattern that is not written in the source, so that no
expression of a job gets around this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from zcrawl.errors import BadExpression, JobError, TooManySteps
from zcrawl.model.reasons.usage import BAD_PATH

MAX_LENGTH: Final = 1_000  # characters of an expression
MAX_PROGRAM: Final = 5_000  # RE2's instructions; `.` has 8, `\pL` 1,200
MAX_MEMORY: Final = 1 << 20  # bytes that one expression may take: program and cached states
MAX_STEPS: Final = 4_000_000_000  # instructions × bytes, of all searches in one text
MAX_GROWTH: Final = 1_000  # how often a JMESPath expression may repeat what it reads


class Pattern:
    """A compiled regular expression. Texts are searched as bytes, because for strings the library
    converts every offset, which takes three times as long as the search."""

    def __init__(self, compiled: Any, size: int) -> None:
        self._search = compiled.search
        self._group = 1 if compiled.groups else 0
        self.size = size  # of its program, in instructions

    def found_in(self, text: str) -> bool:
        return self._search(self._encoded(text)) is not None

    def first(self, text: str) -> str | None:
        match = self._search(self._encoded(text))
        return None if match is None else self._value(match)

    def all(self, text: str, most: int) -> list[str]:
        """Return the values of up to `most` matches. Each match begins a new search, which may read
        the whole rest of the text: `a.*b|a` does in a text without b."""
        data = self._encoded(text)
        values: list[str] = []
        steps = position = 0
        while len(values) < most and position <= len(data):
            steps += (len(data) - position) * self.size
            if steps > MAX_STEPS:
                raise _too_many_steps(len(data))
            match = self._search(data, position)
            if match is None:
                break
            value = self._value(match)
            if value is not None:
                values.append(value)
            position = match.end() + (match.end() == position)  # an empty match moves on, too
        return values

    def _encoded(self, text: str) -> bytes:
        data = text.encode("utf-8", "replace")
        if len(data) * self.size > MAX_STEPS:
            raise _too_many_steps(len(data))
        return data

    def _value(self, match: Any) -> str | None:
        value = match[self._group]
        return None if value is None else value.decode("utf-8", "replace")


def _too_many_steps(length: int) -> TooManySteps:
    return TooManySteps(
        f"the expression would take too long on a text of {length} bytes; make one of them shorter"
    )


def compile_pattern(text: str, path: str) -> Pattern:
    """Compile a regular expression of a job; `path` is the key that has it, for the error."""
    import re2  # few jobs have expressions

    if len(text) > MAX_LENGTH:
        reason = f"{len(text)} characters; an expression has at most {MAX_LENGTH}"
        raise _refused(path, text[:60] + "…", Problem(MAX_LENGTH, reason))
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise _refused(path, text, Problem(error.start, "not a Unicode character")) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    try:
        compiled = re2.compile(data, options=options)
    except re2.error as error:
        message = error.args[0]
        if isinstance(message, bytes):
            message = message.decode("utf-8", "replace")
        raise _refused(path, text, _explain(text, message)) from None
    size: int = compiled.programsize  # read once, because it takes longer than compiling
    if size > MAX_PROGRAM:
        raise _refused(path, text, _too_large(text))
    return Pattern(compiled, size)


def _refused(path: str, text: str, problem: Problem) -> BadExpression:
    hint = f"; {problem.hint}" if problem.hint else ""
    return BadExpression(
        f"{path}: {text!a} is not an RE2 expression: {problem.reason}, at character "
        f"{problem.position + 1}{hint}",
        position=problem.position,
    )


# ---------------------------------------------------------------- explanations of errors


class Problem(msgspec.Struct, frozen=True):
    position: int
    reason: str
    hint: str = ""


_LOOK_AROUND: Final = (
    "RE2 has no look-around. For 'has A but not B' write A in `include` and B in `exclude`; for a "
    "value, put the part that you want into a group"
)
# Constructs that Python's `re` has and RE2 does not, by their beginning.
_GROUPS: Final = {
    "(?=": ("look-ahead", _LOOK_AROUND),
    "(?!": ("negative look-ahead", _LOOK_AROUND),
    "(?<=": ("look-behind", _LOOK_AROUND),
    "(?<!": ("negative look-behind", _LOOK_AROUND),
    "(?>": ("an atomic group", "write (?:…): RE2 never backtracks"),
    "(?P=": ("a back-reference", "RE2 has none; write the text itself, or several expressions"),
    "(?P>": ("a recursive group", "RE2 has none"),
    "(?#": ("a comment", "leave it out"),
    "(?(": ("a conditional group", "write both cases with |"),
}
_ESCAPES: Final = {
    "Z": ("the escape \\Z", "write \\z for the end of the text"),
    "u": ("the escape \\u", "write \\x{20ac} for a character by its number"),
    "U": ("the escape \\U", "write \\x{1f600} for a character by its number"),
    "N": ("the escape \\N", "write \\x{20ac} for a character by its number"),
    "G": ("the escape \\G", "RE2 has none"),
    "k": ("a back-reference", "RE2 has none; write the text itself, or several expressions"),
    "g": ("a back-reference", "RE2 has none; write the text itself, or several expressions"),
}
_BACK_REFERENCE: Final = _ESCAPES["k"]
_BAD_FLAGS: Final = frozenset("aLux")


def _explain(text: str, message: str) -> Problem:
    """Return RE2's message with its position, or the unsupported construct that caused it."""
    reason, _, fragment = message.partition(": ")
    if "too large" in reason:
        return _too_large(text)
    scan = _scan(text)
    if scan.foreign is not None:
        return scan.foreign
    if reason == "missing )" and scan.open_groups:
        return Problem(scan.open_groups[0], "a ( without its )")
    if reason == "unexpected )" and scan.stray is not None:
        return Problem(scan.stray, "a ) without its (")
    last = reason.startswith(("trailing", "invalid repetition"))
    position = text.rfind(fragment) if last else text.find(fragment)
    hint = "at most 1000, also of what it repeats" if "repetition size" in reason else ""
    if reason.startswith("no argument"):
        hint = "a regular expression is not a wildcard: write .* for any text and \\. for a dot"
    return Problem(max(0, min(position, len(text) - 1)), message, hint)


def _too_large(text: str) -> Problem:
    """Return the problem at the last repetition, because repetitions make expressions large."""
    position = max(text.rfind("{"), 0)
    return Problem(
        position,
        f"it becomes too large, more than {MAX_PROGRAM} instructions",
        "repeat less often, or write * or + instead of {n}",
    )


class _Scan(msgspec.Struct, frozen=True):
    foreign: Problem | None  # the first construct that RE2 does not have
    open_groups: list[int]
    stray: int | None = None  # the first ) without its (


def _scan(text: str) -> _Scan:
    """Read an expression as its parser does: the content of escapes, classes and quotes is
    skipped."""
    open_groups: list[int] = []
    position, length = 0, len(text)
    stray: int | None = None
    repeats = False  # there is a repetition operator before `position`
    while position < length:
        char = text[position]
        if char == "\\":
            name = text[position + 1 : position + 2]
            if name == "Q":
                end = text.find("\\E", position)
                position = length if end < 0 else end + 2
                continue
            if name and name in "123456789":
                return _Scan(Problem(position, *_BACK_REFERENCE), open_groups)
            if name in _ESCAPES:
                return _Scan(Problem(position, *_ESCAPES[name]), open_groups)
            position, repeats = position + 2, False
        elif char == "[":
            position, repeats = _end_of_class(text, position), False
        elif char == "(":
            for begin, (construct, hint) in _GROUPS.items():
                if text.startswith(begin, position):
                    return _Scan(Problem(position, construct, hint), open_groups)
            flags = text[position + 2 :].split(":", 1)[0].split(")", 1)[0]
            if text.startswith("(?", position) and flags.isalpha() and _BAD_FLAGS & set(flags):
                hint = "RE2 has the flags i, m, s and U"
                return _Scan(Problem(position, f"the flags {flags!a}", hint), open_groups)
            open_groups.append(position)
            position += 3 if text.startswith("(?", position) else 1
            repeats = False
        elif char == ")":
            if open_groups:
                open_groups.pop()
            elif stray is None:
                stray = position
            position, repeats = position + 1, False
        elif char == "+" and repeats:
            hint = "leave the second + out: RE2 never backtracks"
            return _Scan(Problem(position, "a possessive repetition", hint), open_groups)
        else:
            repeats = char in "*+?" or (char == "}" and "{" in text[:position])
            position += 1
    return _Scan(None, open_groups, stray)


def _end_of_class(text: str, position: int) -> int:
    """Return the position after the ] that closes the class; a ] at its beginning belongs to it."""
    position += 1
    if text.startswith("^", position):
        position += 1
    if text.startswith("]", position):
        position += 1
    while position < len(text) and text[position] != "]":
        position += 2 if text[position] == "\\" else 1
    return position + 1


# ---------------------------------------------------------------- JMESPath


def compile_path(expression: str, path: str) -> Callable[[Any], Any]:
    """Compile a JMESPath expression of a job; return a function that selects from a JSON value."""
    import jmespath  # 10 ms of a start that most jobs do not need

    if len(expression) > MAX_LENGTH:
        raise _bad_path(path, f"{len(expression)} characters; at most {MAX_LENGTH}")
    try:
        compiled = jmespath.compile(expression)
        growth = _growth(compiled.parsed)
    except jmespath.exceptions.JMESPathError as error:
        raise _bad_path(path, _path_error(expression, error)) from None
    except RecursionError:
        raise _bad_path(path, "it is nested too deeply") from None
    if growth > MAX_GROWTH:
        raise _bad_path(path, "it repeats what it reads too often; use fewer lists in lists")
    search: Callable[[Any], Any] = compiled.search
    return search


def _path_error(expression: str, error: Exception) -> str:
    """Describe an error with its position; the library's messages name internal tokens."""
    position = getattr(error, "lex_position", None)
    if position is None:
        return f"{expression!r}: {' '.join(str(error).split())}"
    return f"{expression!r}, at character {position + 1} (jmespath.org has the rules)"


def _bad_path(path: str, reason: str) -> JobError:
    return JobError(f"{path}: not a JMESPath expression: {reason}", code=BAD_PATH)


# One part is applied to the result of the other.
_APPLIED: Final = frozenset(
    {"subexpression", "pipe", "index_expression", "expref"}
    | {"projection", "value_projection", "filter_projection"}
)


def _growth(node: Mapping[str, Any]) -> float:
    """Return how many times larger than the value the result can be: `[@,@]|[@,@]|[@,@]` doubles it
    with each part, so 1,000 characters could fill any memory."""
    parts = [_growth(child) for child in node["children"] if isinstance(child, dict)]
    if not parts:
        return 1.0
    product = 1.0
    for part in parts:
        product *= part
    if node["type"] in _APPLIED:
        return product
    if node["type"] == "function_expression":
        # `map` applies one part to the other; `to_string` doubles quotes and backslashes.
        return max(sum(parts), product) * (2 if node["value"] == "to_string" else 1)
    return max(sum(parts), product)
