"""A fuzzer for expressions of jobs: refused with a place, or cheap on a hostile text.

Real CPU limits: the searches run in a process of their own, which the kernel ends when they take
more CPU seconds than a generous multiple of what a linear search takes.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys

from zcrawl.errors import BadExpression
from zcrawl.text.expressions import compile_pattern

SEED = 20_261_117
HOW_MANY = 3_000
CPU_S = 120  # for all searches together; Python's `re` does not end the first hostile one in it
PARTS = (
    *("a", "b", "ab", "é", ".", r"\d", r"\w", r"\s", r"\b", r"\pL", "[a-z]", "[^a]", "[]a]", "$"),
    *("^", "|", r"\A", r"\z", r"\Z", r"\1", r"\2", r"\k<n>", r"\u20ac", r"\Q", r"\E", "\\", "["),
    *("]", "(", ")", "(?:", "(?i)", "(?P<n>", "(?<n>", "(?P=n)", "(?=", "(?!", "(?<=", "(?<!"),
    *("(?>", "(?#", "(?(1)", "(?x)", "(?s-i:", "*", "+", "?", "*?", "*+", "++", "{2}", "{1,9}"),
    *("{30}", "{1000}", "{1001}", "{,3}", "{5,2}", "\0", "\ud800", "\n", "-", "/", ":"),
)
NESTING = ("({}+)+", "({}*)*", "(?:{}|a)*", "({}|{})*b", "(?:{}?){{40}}", "({}{{1,20}}){{1,20}}")


def expressions(chance: random.Random) -> list[str]:
    made = ["(a+)+$", "(a|aa)+$", "(.*a){25}", "(?:a?){30}a{30}", "((a{1000}){1000})"]
    while len(made) < HOW_MANY:
        text = "".join(chance.choice(PARTS) for _ in range(chance.randrange(1, 9)))
        for _ in range(chance.randrange(3)):
            text = chance.choice(NESTING).replace("{}", text).replace("{{", "{").replace("}}", "}")
        made.append(text)
    return made


CHILD = """
import resource, sys
from tests.property.test_expressions_fuzz import CPU_S, SEED, expressions
from zcrawl.errors import BadExpression, TooManySteps
from zcrawl.text.expressions import compile_pattern
import random
resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
text = "a" * 60_000 + "ab" * 15_000 + "é/x:1" * 2_000 + "!"
taken = 0
for one in expressions(random.Random(SEED)):
    try:
        pattern = compile_pattern(one, "p")
    except BadExpression:
        continue
    taken += 1
    try:
        pattern.found_in(text)
    except TooManySteps:
        pass
print(taken)
"""


def test_every_refusal_has_a_place_inside_the_expression() -> None:
    """Whatever is written: no other error, and the position can be shown to its author."""
    refused = 0
    for text in expressions(random.Random(SEED)):
        try:
            compile_pattern(text, "p")
        except BadExpression as error:
            refused += 1
            assert 0 <= error.position < max(1, len(text)), (text, error)
            assert f"at character {error.position + 1}" in str(error)
    assert HOW_MANY / 10 < refused < HOW_MANY, "the fuzzer makes both kinds"


def test_every_accepted_expression_is_cheap_on_a_hostile_text() -> None:
    """All of them together search 100 kB each within a limit of CPU time and memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    assert int(done.stdout) > HOW_MANY / 20
    assert after.ru_utime - before.ru_utime < CPU_S
