"""Parameters of a run: `${params.key}` in the values of a job.

Called by `validate` (does the job declare what it uses, and use what it declares?) and by the
leader for each run: `filled` replaces the references by the run's values. Pure.

`[params]` has a default value for each key, so a run that nobody gives values to is complete. The
references of secrets, `${NAME}`, have no dot and are left alone. A value is never read again for
references, and it cannot contain any: a parameter must not get at a secret that the job does not
name itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from zcrawl.errors import JobError
from zcrawl.model.reasons.usage import BAD_PARAMS
from zcrawl.model.spec import JobSpec
from zcrawl.text.patterns import lazy_pattern
from zcrawl.text.spelling import near_names

MOST_PARAMS: Final = 100
MOST_VALUE: Final = 2_000  # characters of one value
_KEY = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_USE = lazy_pattern(r"\$\{params\.([^}]{0,100})\}?")
# Name, schedule and retention belong to the job and not to a run; the code has a hash.
_NEVER_FILLED: Final = frozenset(
    {"name", "kind", "tags", "params", "schedule", "retention", "code"}
)


def check_params(spec: JobSpec) -> None:
    """Raise JobError if the job does not declare just the parameters that it uses."""
    if len(spec.params) > MOST_PARAMS:
        raise JobError(f"params has {len(spec.params)} entries; at most {MOST_PARAMS}")
    for key, value in spec.params.items():
        if not _KEY.fullmatch(key):
            raise JobError(
                f"params: {key[:70]!r} is not a parameter's name; use up to 64 letters, digits and "
                "_, and begin with a letter",
                code=BAD_PARAMS,
            )
        _check_value(f"params.{key}", value)
    used = set()
    if not spec.params and not _may_use(spec):
        return
    for section in spec.__struct_fields__:
        if section in ("params", "code"):
            continue
        for path, text in _texts(msgspec.to_builtins(getattr(spec, section)), section):
            for match in _USE.finditer(text) if "${params." in text else ():
                used.add(_check_use(spec, section, path, match[0], match[1]))
    for key in spec.params:
        if key not in used:
            raise JobError(
                f"params.{key} is not used: no value of the job has ${{params.{key}}}; remove it, "
                "or use it",
                code=BAD_PARAMS,
            )


def _may_use(spec: JobSpec) -> bool:
    """Return whether a value may have a reference: one look at the whole spec, for most jobs."""
    try:
        return b"${params." in msgspec.json.encode(spec)
    except UnicodeEncodeError:  # a later check refuses the text
        return True


def _check_use(spec: JobSpec, section: str, path: str, reference: str, key: str) -> str:
    """Return the key of a reference; JobError if it cannot be replaced."""
    if section in _NEVER_FILLED:
        raise JobError(
            f"{path} has {reference}; parameters belong to a run, and {section} belongs to the job:"
            " write the value itself",
            code=BAD_PARAMS,
        )
    if not reference.endswith("}") or not _KEY.fullmatch(key):
        raise JobError(
            f"{path}: {reference!r} is not a reference; write ${{params.key}} with a key of "
            "[params]",
            code=BAD_PARAMS,
        )
    if key not in spec.params:
        raise JobError(
            f"{path} has {reference}, and params has no {key!r}{_hint(key, spec.params)}; add "
            f'{key} = "…" to [params], with the default value',
            code=BAD_PARAMS,
        )
    return key


def _check_value(key: str, value: str) -> None:
    if len(value) > MOST_VALUE:
        raise JobError(
            f"{key} has {len(value)} characters; at most {MOST_VALUE} are allowed", code=BAD_PARAMS
        )
    if "${" in value:
        raise JobError(
            f"{key} contains ${{…}}; a parameter cannot name secrets or other parameters. Write "
            "the reference where the parameter is used",
            code=BAD_PARAMS,
        )
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise JobError(f"{key} has control characters; remove them", code=BAD_PARAMS)


def merged(spec: JobSpec, values: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a run: the job's defaults with `values` in their place. JobError for
    a key that the job does not declare."""
    for key, value in values.items():
        if key not in spec.params:
            names = f"it has {', '.join(spec.params)}" if spec.params else "it has none"
            hint = _hint(key, spec.params) or f"; {names}"
            raise JobError(
                f"--set {key[:70]}: the job has no such parameter{hint}", code=BAD_PARAMS
            )
        _check_value(f"params.{key}", value)
    return {**spec.params, **values}


def handed_on(spec: JobSpec, values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a parent's run that a child has parameters for."""
    return {key: value for key, value in values.items() if key in spec.params}


def filled(spec: JobSpec, values: Mapping[str, str]) -> JobSpec:
    """Return the spec of a run: each reference replaced by its value in `values`, or by the job's
    default. It has no parameters any more. The values are not checked: the caller checks the result
    like any spec."""
    if not spec.params:
        return spec
    values = {**spec.params, **values}
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    for section, value in plain.items():
        if section not in _NEVER_FILLED:
            plain[section] = _replaced(value, lambda text: _filled_text(text, values))
    return msgspec.convert({**plain, "params": {}}, JobSpec)


def filled_seeds(spec: JobSpec, seeds: Iterable[Any], values: Mapping[str, str]) -> list[Any]:
    """Return seeds with their references replaced, also those that are not part of the spec. What
    is not a text is left as it is, for the check of seeds."""
    values = {**spec.params, **values}
    return [_filled_text(seed, values) if isinstance(seed, str) else seed for seed in seeds]


def _filled_text(text: str, values: Mapping[str, str]) -> str:
    if "${params." not in text:
        return text
    return _USE.sub(lambda match: values.get(match[1], match[0]), text)


def _replaced(value: Any, change: Callable[[str], str]) -> Any:
    """Return `value` with each of its texts changed. Keys of tables are not values."""
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _replaced(entry, change) for key, entry in value.items()}
        case list() | tuple():
            return [_replaced(entry, change) for entry in value]
        case _:
            return value


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each text in a value with its place."""
    match value:
        case str():
            yield path, value
        case dict():
            for key, entry in value.items():
                yield from _texts(entry, f"{path}.{key}")
        case list() | tuple():
            for number, entry in enumerate(value, 1):
                yield from _texts(entry, f"{path}, entry {number}")
        case _:
            pass


def _hint(key: str, keys: Mapping[str, str]) -> str:
    near = near_names(key, keys)
    return f"; did you mean {near[0]!r}?" if near else ""
