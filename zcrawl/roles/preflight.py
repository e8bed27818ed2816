"""Check before a crawl that this machine has all it needs. Called by `crawl` and `test`.

Their workers are on this machine, so they lack the same things: an engine or plugin, an optional
package, a secret, a spider that does not load. A cluster's workers may have what its
client lacks, so `submit` asks the cluster instead. Each refusal is one JobError that names the key
of the job, what is missing and what to do.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from zcrawl import plugins
from zcrawl.errors import JobError, PluginError, SpiderError
from zcrawl.fetch.keyring import PREFIX, STORED, names_in
from zcrawl.model.formats import FORMATS
from zcrawl.model.reasons.usage import (
    MISSING_EXTRA,
    NO_BROWSER,
    NO_HANDLER,
    NO_PLUGIN,
    NO_SECRET,
    NO_START,
    UNREADABLE,
)
from zcrawl.model.spec import ENGINES, KINDS, JobSpec
from zcrawl.roles.extras import BROWSERS, PACKAGES, extras_of, has_browser
from zcrawl.submit import outputs
from zcrawl.text.spelling import near_names

# extra → (a module of it, what it is for)
EXTRAS: Final = {
    **PACKAGES,
    **{
        format.extra: (format.package, f"{format.title} output")
        for format in FORMATS.values()
        if format.extra
    },
    "s3": ("obstore", "output to s3://"),
}


def check_machine(
    spec: JobSpec, output: tuple[str, str] | None, environ: Mapping[str, str]
) -> None:
    """Raise JobError for the first thing that this machine lacks for a crawl of this job.

    `output` is the file that the command line names, with its format."""
    _check_engine(spec)
    _check_plugins(spec)
    check_extras(spec, output)
    _check_secrets(spec, environ)
    _check_files(spec)
    _check_handlers(spec)


def _check_engine(spec: JobSpec) -> None:
    name = spec.fetch.engine
    if name in ENGINES:
        return
    if plugins.find_entry_point("fetchers", name) is None:
        _refuse("fetch.engine", name, [*ENGINES, *plugins.names("fetchers")], "engine")
    _check_plugin("fetch.engine", "fetchers", name, spec)


def _check_plugins(spec: JobSpec) -> None:
    stores = (
        entry.partition(":")[2]
        for entry in spec.output.to
        if entry.startswith(f"{outputs.PLUGIN}:")
    )
    uses = {
        "middlewares": ("middlewares", spec.middlewares),
        "parsers": ("parsers", spec.parsers),
        "output.to": ("stores", tuple(stores)),
        "kind": ("executors", () if spec.kind in KINDS else (spec.kind,)),
    }
    for key, (group, names) in uses.items():
        for name in names:
            if plugins.find_entry_point(group, name) is None:
                builtin = [*KINDS] if key == "kind" else []
                _refuse(key, name, [*builtin, *plugins.names(group)], group.removesuffix("s"))
            _check_plugin(key, group, name, spec)


def _check_plugin(key: str, group: str, name: str, spec: JobSpec) -> None:
    """Create the plugin's object once, as a worker will; the object is not used."""
    try:
        plugins.make(group, name, spec.plugins.get(name))
    except PluginError as error:
        raise JobError(f"{key}: {error}", code=error.code) from None


def _refuse(key: str, name: str, choices: Iterable[str], what: str) -> None:
    present = sorted(set(choices))
    near = near_names(name, present)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    listed = f"known: {', '.join(present)}" if present else "no installed package has one"
    raise JobError(
        f"{key}: no {what} {name!r} is installed on this machine; {listed}{meant}",
        code=NO_PLUGIN,
    )


def check_extras(spec: JobSpec, output: tuple[str, str] | None) -> None:
    """Raise JobError for an optional package, or a browser, that the job needs."""
    targets = outputs.targets(spec.output, "job") + ([output] if output else [])
    formats, captures = {form for _, form in targets}, outputs.wants_capture(spec)
    needs = {
        **dict.fromkeys(extras_of(spec), True),
        **{
            format.extra: format.name in formats or (format.captures and captures)
            for format in sorted(FORMATS.values(), key=lambda format: not format.captures)
            if format.extra
        },
        "s3": any(outputs.is_remote(place) for place, _ in targets),
    }
    for extra, needed in needs.items():
        module, reason = EXTRAS[extra]
        if needed and importlib.util.find_spec(module) is None:
            raise JobError(
                f"{reason} needs the package {module}: pip install 'zcrawl[{extra}]'",
                code=MISSING_EXTRA,
            )
    if "browser" in needs and not has_browser():
        raise JobError(
            f"fetch.engine = 'browser' needs Chromium, and none of {', '.join(BROWSERS)} is on the "
            "PATH; Debian's package is chromium",
            code=NO_BROWSER,
        )


# What has ${seed} or ${resource}; a job with secrets in them is refused (`submit.tasks`).
_WITHOUT_SECRETS: Final = frozenset({"shell.args", "http.url"})


def _check_secrets(spec: JobSpec, environ: Mapping[str, str]) -> None:
    for key, text in _texts(msgspec.to_builtins(spec), ""):
        if key in _WITHOUT_SECRETS:
            continue
        for name in names_in(text):
            if not name.startswith(STORED) and PREFIX + name not in environ:
                raise JobError(
                    f"{key} uses the secret ${{{name}}}, which is not set: "
                    f"export {PREFIX}{name}=...",
                    code=NO_SECRET,
                )


def _check_files(spec: JobSpec) -> None:
    """Check that certificates can be read; workers read them from the current folder."""
    for key in ("ca_file", "client_cert", "client_key"):
        name = getattr(spec.fetch, key)
        try:
            if name and "${" not in name:
                Path(name).read_bytes()
        except OSError as error:
            raise JobError(
                f"fetch.{key}: {name} cannot be read: {error.strerror}", code=UNREADABLE
            ) from None


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield every text that may refer to secrets, with its key."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if path or key in ("fetch", "login", "http", "shell"):
                yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)


def _check_handlers(spec: JobSpec) -> None:
    """Raise JobError for `handler="name"` in the spider's file where no function has that name."""
    if spec.code is None:
        return
    tree = ast.parse(spec.code.source)
    functions = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            name = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg != "handler" or not isinstance(name, str) or not name:
                continue
            # A base class in another module may have the handler, so such spiders are not checked.
            if name not in functions and not _has_foreign_bases(tree):
                near = near_names(name, functions)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise JobError(
                    f"{spec.spider.partition(':')[0]}, line {keyword.value.lineno}: the spider has "
                    f"no handler {name!r}{meant}",
                    code=NO_HANDLER,
                )


def _has_foreign_bases(tree: ast.Module) -> bool:
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    bases = (
        base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases
    )
    return any(ast.unparse(base).rpartition(".")[2] not in {"Spider", *classes} for base in bases)


async def check_spider(spec: JobSpec, seeds: bool) -> None:
    """Raise JobError for a spider that does not load, or that has neither seeds nor `start`.
    `seeds`: the crawl has seeds."""
    from zcrawl.worker.extensions.spiders import SpiderProcess
    from zcrawl.worker.spider_protocol import Load

    source = b"" if spec.code is None else spec.code.source.encode()
    load = Load(spec.spider, source, spec.spider_args, spec.spider_limits.memory, os.getpid())
    process = SpiderProcess(load, spec.spider_limits.timeout)
    try:
        starts = await process.load()
    except SpiderError as error:
        raise JobError(f"spider: {error}{_file_beside(spec)}", code=error.code) from None
    finally:
        await process.close()
    if not starts and not seeds:
        raise JobError(
            f"spider {spec.spider}: nothing to begin with. Give seeds (a URL, or `seeds` in the "
            "job file), or write a method `start` that yields requests",
            code=NO_START,
        )


def _file_beside(spec: JobSpec) -> str:
    """Return a hint how to write a spider in a file, if such a file exists."""
    module, _, name = spec.spider.partition(":")
    if spec.code is not None or not Path(f"{module}.py").is_file():
        return ""
    return f"; for the file {module}.py write {module}.py:{name}"
