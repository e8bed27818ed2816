"""Match command lines with the patterns that an operator allows.

Used by the configuration (`[worker.shell] allow`, `[secrets.NAME] commands`), by masters and by
workers. Pure. A pattern is written like a command line: `/usr/bin/rsync -a * /srv/backup/`.

- The first word is the absolute path of the program. A `*` in its last part matches any characters
  but `/`.
- Each further word matches one argument; `*` in it matches any characters.
- A last word that is only `*` matches any number of arguments, also none.
- Quotes work as in a shell: `'/usr/bin/touch' "/srv/a file"`.

No argument is read by a shell, so nothing in it can end the command and begin another one. But what
a program does with its arguments is its own affair: `/usr/bin/find *` can run every program.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from zcrawl.text.wildcards import matches


def is_plain_path(path: str) -> bool:
    """Return whether a path is absolute, and has no part that leads elsewhere (`..`, `.`, `//`)."""
    parts = path.split("/")
    return path.startswith("/") and len(path) > 1 and not {"", ".", ".."} & set(parts[1:])


class CommandPattern(msgspec.Struct, frozen=True):
    program: str
    words: tuple[str, ...]
    open_end: bool  # more arguments may follow

    def allows(self, argv: Sequence[str]) -> bool:
        """Return whether the pattern covers this whole command line."""
        program, *args = argv
        if not is_plain_path(program) or not self.allows_program(program):
            return False
        if len(args) < len(self.words) or (len(args) > len(self.words) and not self.open_end):
            return False
        return all(map(matches, args, self.words))

    def allows_program(self, program: str) -> bool:
        folder, _, name = program.rpartition("/")
        own_folder, _, own_name = self.program.rpartition("/")
        return folder == own_folder and matches(name, own_name)


def parse_command_pattern(text: str) -> CommandPattern:
    """Return the pattern; ValueError says what is wrong with it."""
    try:
        words = shlex.split(text)
    except ValueError as error:  # a quote is not closed
        raise ValueError(f"{text!r}: {error}") from None
    if not words:
        raise ValueError("a pattern is empty; write a command line, such as '/usr/bin/rsync *'")
    program, *rest = words
    if not is_plain_path(program) or "*" in program.rpartition("/")[0]:
        raise ValueError(
            f"{text!r}: begin with the absolute path of a program, such as '/usr/bin/rsync *'; "
            "only its last part may have a *"
        )
    open_end = bool(rest) and rest[-1] == "*"
    return CommandPattern(program, tuple(rest[:-1] if open_end else rest), open_end)
