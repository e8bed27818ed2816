"""The outputs of a job: the meaning of entries of `output.to`, and the names of their parts.

Called by `validate`, by the store when a run begins, by the output files and by the CLI. Pure.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from zcrawl.errors import JobError
from zcrawl.model.formats import FORMATS, all_endings, ending_of, format_of, is_capture
from zcrawl.model.reasons.usage import PATH_NOT_ALLOWED, SECRET_WRITTEN_OUT
from zcrawl.model.spec import JobSpec, OutputSpec
from zcrawl.submit.code import PLUGIN_NAME
from zcrawl.text.patterns import lazy_pattern

SQL: Final = "sql"  # the database, always used, because all other outputs derive from it
PLUGIN: Final = "plugin"  # a store that a package adds, on the masters: plugin:NAME
REMOTE: Final = ("s3://",)
_PLACEHOLDER = lazy_pattern(r"\{(\w*)\}")
_KNOWN: Final = frozenset(("run", "name", "part"))
MAX_TARGETS: Final = 20


def is_remote(path: str) -> bool:
    return path.startswith(REMOTE)


def refuse_login(place: str) -> None:
    """Raise JobError for a remote place with a password in it: places are stored and shown.

    A bucket's name has no colon, so a colon means a password, which may contain a slash."""
    scheme, remote, rest = place.partition("://")
    bucket = rest.partition("/")[0]
    if remote and ("@" in bucket or ":" in bucket):
        raise JobError(
            f"an output at {scheme}://…{rest.rpartition('@')[2] if '@' in rest else ''}: a user "
            f"name or password is written out; write {scheme}://bucket/key, and the masters take "
            "their credentials from their environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)",
            code=SECRET_WRITTEN_OUT,
        )


def check_outputs(output: OutputSpec) -> None:
    if len(output.to) > MAX_TARGETS:
        raise JobError(f"output.to has {len(output.to)} entries; at most {MAX_TARGETS}")
    for entry in output.to:
        if entry == SQL or entry in FORMATS:
            continue
        if entry.startswith(f"{PLUGIN}:"):
            if not PLUGIN_NAME.fullmatch(entry.partition(":")[2]):
                raise JobError(
                    f"output.to: {entry!r}: write plugin:NAME, with letters, digits and . _ -"
                )
            continue
        refuse_login(entry)
        if entry.lower() == "json" or entry.lower().endswith(".json"):
            raise JobError(
                f"output.to: {entry!r}: items are written as JSON lines, one object a line; write "
                f"{entry + 'l'!r}"
            )
        if format_of(entry) is None:
            names = ", ".join((SQL, *FORMATS))
            endings = ", ".join(all_endings())
            raise JobError(
                f"output.to: {entry!r} is not an output; use one of {names}, plugin:NAME, or a "
                f"file that ends in one of {endings}"
            )
        if not entry.isprintable():
            raise JobError("output.to: a path has control characters")
        if not is_remote(entry) and (entry.startswith("~") or ".." in entry.split("/")):
            # An absolute path is for the master to judge: its configuration may name a prefix.
            raise JobError(
                f"output.to: {entry!r} leads out of the outputs folder; write a path without ~ "
                "and .. (`--out FILE` of `zcrawl crawl` writes anywhere)",
                code=PATH_NOT_ALLOWED,
            )
        if "://" in entry and not is_remote(entry):
            raise JobError(
                f"output.to: {entry!r}: the only remote place is s3://bucket/key",
                code=PATH_NOT_ALLOWED,
            )
        for name in _PLACEHOLDER.findall(entry):
            if name not in _KNOWN:
                raise JobError(
                    f"output.to: unknown {{{name}}} in {entry!r}; use {{run}}, {{name}}, {{part}}"
                )
    for entry in output.to:
        if output.to.count(entry) > 1:
            raise JobError(f"output.to has {entry!r} twice; remove one")
    for key in ("rotate_bytes", "rotate_seconds"):
        if getattr(output, key) < 0:
            raise JobError(f"output.{key} is {getattr(output, key)}; it cannot be negative")


def targets(output: OutputSpec, stem: str) -> list[tuple[str, str]]:
    """Return (path, format) of each file; `{run}` stays, because the number is not known here."""
    files = []
    for entry in output.to:
        if entry == SQL:
            continue
        if entry.startswith(f"{PLUGIN}:"):
            files.append((entry, PLUGIN))
            continue
        if entry in FORMATS:
            entry = f"{{name}}-{{run}}{FORMATS[entry].ending}"
        file_format = format_of(entry)
        assert file_format is not None  # check_outputs refused it
        files.append((entry.replace("{name}", stem), file_format))
    return files


def wants_capture(spec: JobSpec) -> bool:
    """Return whether requests and responses are stored for archives."""
    archives = (is_capture(entry) or is_capture(format_of(entry)) for entry in spec.output.to)
    return spec.output.capture or any(archives)


def part_path(path: str, part: int, rotates: bool) -> str:
    """Return the name of a part. It is always the same, so a repeat replaces the part."""
    number = f"{part:05}"
    if "{part}" in path:
        return path.replace("{part}", number)
    if not rotates and part == 0:
        return path  # a run that is reopened after its end has further parts, though
    return _before_ending(path, f"-{number}")


def beside_path(path: str, run: int, epoch: int) -> str:
    """Return another name for a part whose file was changed by a person."""
    return _before_ending(path, f".run-{run}-{epoch}")


def _before_ending(path: str, text: str) -> str:
    folder, slash, name = path.rpartition("/")
    ending = ending_of(name)
    if not ending:
        return f"{path}{text}"
    cut = len(name) - len(ending)
    return f"{folder}{slash}{name[:cut]}{text}{name[cut:]}"


def key_of(url: str) -> tuple[str, str]:
    """Return the bucket's URL and the key of `s3://bucket/a/b`."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", str(PurePosixPath(key)) if key else ""
