"""Decide whether a job may run a command: what a worker's configuration allows, and the masters'.

Masters call `with_shell_right` for each submission and for each stored job, workers ask
`ShellRights.refusal` before each command. Pure. Nothing is allowed by default:

- A worker runs a command only if its own `[worker.shell]` allows it: any command, or those that a
  pattern of `allow` covers. With `allow`, a job may set only the environment variables in `env`,
  and choose only folders below `folders`, because both can change what a program does.
- Masters do not know the workers' configuration. They accept shell jobs only with
  `cluster.allow_shell = true`. The master of `crawl` and `up` has the same configuration as its
  workers, and refuses at once what these would refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from zcrawl.errors import RefusedError
from zcrawl.model.reasons.failure import SHELL_NOT_ALLOWED
from zcrawl.model.reasons.reason import with_detail
from zcrawl.model.spec import SHELL, JobSpec, ShellTask
from zcrawl.submit.prefixes import place_of, prefix_above, prefix_of
from zcrawl.text.commands import CommandPattern, parse_command_pattern

SEED: Final = "${seed}"
PARAMS: Final = "${params."  # filled in when a run begins


class ShellRights(msgspec.Struct, frozen=True):
    """The commands that a configuration allows. `by_masters`: it is the masters' configuration,
    which allows all commands or none."""

    any: bool = False
    allow: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    by_masters: bool = False
    processes: int = 64  # of a command whose job does not say how many it needs
    max_processes: int = 1_024

    @property
    def is_used(self) -> bool:
        """Whether any command is allowed."""
        return self.any or bool(self.allow)

    def refusal(self, task: ShellTask, args: Iterable[str] | None = None) -> str:
        """Return why the command may not run; empty if it may.

        `args` are the arguments as they will be; None: as the job has them, where what is not
        known yet (`${params.key}`, `${seed}`) may become anything."""
        if task.max_processes > self.max_processes and not self.by_masters:
            return (
                f"worker.shell.max_processes allows {self.max_processes} processes, and the job "
                f"has shell.max_processes = {task.max_processes}"
            )
        if self.any:
            return ""
        if not self.allow:
            return self._nothing()
        patterns = [parse_command_pattern(text) for text in self.allow]
        words = tuple(task.args if args is None else args)
        unknown = args is None and any(SEED in word or PARAMS in word for word in words)
        if not any(_covers(pattern, task.command, words, unknown) for pattern in patterns):
            return (
                f"no pattern of worker.shell.allow covers {task.command[:200]!r} with these "
                "arguments"
            )
        for name in task.env:
            if name not in self.env:
                return f"worker.shell.env does not allow jobs to set the variable {name[:80]!r}"
        if task.cwd and not _is_below(task.cwd, self.folders):
            return f"worker.shell.folders does not allow the folder {task.cwd[:200]!r}"
        return ""

    def _nothing(self) -> str:
        if self.by_masters:
            return (
                "this cluster does not accept shell jobs; it needs cluster.allow_shell = true in "
                "the configuration of its masters, and [worker.shell] in that of its workers"
            )
        return (
            "the configuration allows no commands; put allow = ['/usr/bin/rsync *'] or any = true "
            "into its section [worker.shell]"
        )


NO_COMMANDS: Final = ShellRights(by_masters=True)
ALL_COMMANDS: Final = ShellRights(any=True, by_masters=True)


def of_masters(allow_shell: bool) -> ShellRights:
    """Return what the masters of a cluster allow by their `cluster.allow_shell`."""
    return ShellRights(any=allow_shell, by_masters=True)


def _covers(pattern: CommandPattern, program: str, args: tuple[str, ...], unknown: bool) -> bool:
    if unknown:
        return pattern.allows_program(program)
    return pattern.allows((program, *args))


def _is_below(folder: str, folders: Iterable[str]) -> bool:
    prefixes = tuple(map(prefix_of, folders))
    try:
        place = place_of(folder)
    except ValueError:
        return False
    return place in prefixes or prefix_above(place, prefixes) is not None


def with_shell_right(spec: JobSpec, rights: ShellRights) -> None:
    """Raise RefusedError if the job runs a command that this configuration does not allow."""
    if spec.kind != SHELL:
        return
    why = rights.refusal(spec.shell)
    if why:
        raise RefusedError(f"kind = 'shell': {why}", code=SHELL_NOT_ALLOWED)


def waiting_for_right(spec: JobSpec, rights: ShellRights) -> str:
    """Return why a stored run of this job waits; empty if it may go on."""
    why = rights.refusal(spec.shell) if spec.kind == SHELL else ""
    return with_detail(SHELL_NOT_ALLOWED, why) if why else ""


def secret_patterns(secrets: Mapping[str, Iterable[str]]) -> dict[str, tuple[CommandPattern, ...]]:
    """Return name → the patterns of commands that may get this secret."""
    return {name: tuple(map(parse_command_pattern, texts)) for name, texts in secrets.items()}
