"""The interfaces of plugins, and how plugins are found: entry points, loaded when first used.

A package declares `[project.entry-points."zcrawl.middlewares"] stamp = "my_package:Stamp"`; a job
names `stamp`. Called by the worker for jobs that name plugins; nothing here runs for other jobs.
The object of an entry point is called once per run with the job's `[plugins.NAME]` table, and must
return an object of the group's Protocol. docs/plugins.md is the guide, `testing.plugin_contract`
has tests for authors of plugins.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import msgspec

from zcrawl.errors import PluginError
from zcrawl.text.raised import raised_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import httpx

GROUPS: Final = ("fetchers", "parsers", "stores", "middlewares", "executors")
_T = TypeVar("_T")


class Skip(Exception):
    """Raised by a middleware to skip the page. The reason is stored with the page."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Drop(Exception):
    """Raised by a middleware's `before_item` to drop the item. Drops are counted by reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Outgoing(msgspec.Struct):
    """A request before it is sent. Headers, body and method may be changed, but not the URL,
    because pace, robots.txt and scope were checked for this URL."""

    url: str
    method: str
    headers: dict[str, str]
    body: bytes
    meta: Mapping[str, Any]  # of a spider's request
    attempt: int

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "url" and hasattr(self, "url"):
            raise AttributeError("a middleware cannot change the URL of a request")
        object.__setattr__(self, name, value)


class PageFacts(msgspec.Struct, frozen=True):
    """The page of an item."""

    url: str
    final_url: str
    status: int
    depth: int
    fetched_at: float  # UTC seconds


class Parsed(msgspec.Struct, frozen=True):
    """The result of a parser. Links may be relative to the page."""

    items: Sequence[Mapping[str, Any]] = ()
    links: Sequence[str] = ()
    title: str | None = None


class Task(msgspec.Struct, frozen=True):
    """One part of a job that is not a crawl. After a crash it may run again."""

    job: Mapping[str, Any]  # the job file's table, with all defaults
    run: int
    url: str | None  # the seed of this task; None: the job has no seeds and only this task
    attempt: int  # from 1


Maybe: TypeAlias = _T | Awaitable[_T]


class Middleware:
    """Three methods that are called while a page is processed; override the needed ones, plain or
    async. Each may raise Skip. Any other exception fails only this page (`middleware_error`). A
    middleware need not inherit from this class: any of the three methods is enough."""

    def before_request(self, request: Outgoing) -> Maybe[None]:
        """Change the request before it is sent; called for each redirect, too."""
        return None

    def after_response(
        self, request: Outgoing, response: httpx.Response
    ) -> Maybe[httpx.Response | None]:
        """Return another response instead of this one; None: keep it."""
        return None

    def before_item(self, item: dict[str, Any], page: PageFacts) -> Maybe[dict[str, Any] | None]:
        """Return the item to store. To drop it, return None, or raise Drop with a reason."""
        return item


class _Adapted(Middleware):
    """An object with some methods of a Middleware; the missing ones do nothing."""

    def __init__(self, plugin: Any) -> None:
        self._before_request = getattr(plugin, "before_request", None) or super().before_request
        self._after_response = getattr(plugin, "after_response", None) or super().after_response
        self._before_item = getattr(plugin, "before_item", None) or super().before_item

    def before_request(self, request: Outgoing) -> Any:
        return self._before_request(request)

    def after_response(self, request: Outgoing, response: httpx.Response) -> Any:
        return self._after_response(request, response)

    def before_item(self, item: dict[str, Any], page: PageFacts) -> Any:
        return self._before_item(item, page)


@runtime_checkable
class Parser(Protocol):
    """Parse pages of some kind instead of zcrawl's own parser. Called in a thread."""

    def accepts(self, url: str, content_type: str) -> bool: ...

    def parse(self, url: str, content_type: str, body: bytes) -> Parsed: ...


@runtime_checkable
class Fetcher(Protocol):
    """Send one request. `fetch.ports.Engine` explains the arguments. A fetcher never follows
    redirects, raises only FetchError, and calls `limits.guard` before it connects."""

    async def get(self, url: str, headers: Mapping[str, str], limits: Any) -> httpx.Response: ...

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: Any
    ) -> httpx.Response: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class ItemStore(Protocol):
    """An external store of items, called on the leading master: `output.to = ["plugin:NAME"]`.
    After a crash, `put` is called again with the same name and the same items, perhaps followed by
    more; it must replace what it stored under that name. A run without items is one `put` without
    items. The methods may block. After an exception the call is repeated."""

    def put(self, name: str, items: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class Executor(Protocol):
    """Run a job that is not a crawl; the job's `kind` is the name of the plugin. Called once per
    seed, or once for a job without seeds; plain (in a thread) or async. The returned mapping is
    stored as an item. It may raise Skip, or a FetchError that says whether to try again. After any
    other exception the task is tried again, as often as the job allows."""

    def execute(self, task: Task) -> Maybe[Mapping[str, Any] | None]: ...


PROTOCOLS: Final[dict[str, type]] = {
    "fetchers": Fetcher,
    "parsers": Parser,
    "stores": ItemStore,
    "middlewares": Middleware,
    "executors": Executor,
}


def find_entry_point(group: str, name: str) -> EntryPoint | None:
    """Return the entry point of a plugin, or None if no installed package declares it."""
    assert group in GROUPS, group
    from importlib.metadata import entry_points  # 10 ms of a start that most jobs do not need

    return next(iter(entry_points(group=f"zcrawl.{group}", name=name)), None)


def names(group: str) -> list[str]:
    """Return the names of all plugins of a group that installed packages declare."""
    from importlib.metadata import entry_points

    return sorted({entry.name for entry in entry_points(group=f"zcrawl.{group}")})


def make(group: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """Create the object of a plugin. PluginError says what is missing or wrong."""
    kind = group.removesuffix("s")
    entry = find_entry_point(group, name)
    if entry is None:
        raise PluginError(f"{kind} {name!r}", code=PluginError.MISSING)
    try:
        made = entry.load()(**(options or {}))
    except Exception as error:  # foreign code can raise anything; the job gets its message
        raise PluginError(
            f"{kind} {name!r} ({entry.value}): {raised_text(error)}", code=PluginError.BROKEN
        ) from error
    problem = problem_of(group, made)
    if problem:
        raise PluginError(
            f"{kind} {name!r} ({entry.value}) returns a {type(made).__name__}, "
            f"which is not a zcrawl.plugins.{PROTOCOLS[group].__name__}: {problem}",
            code=PluginError.BROKEN,
        )
    return made


def problem_of(group: str, plugin: object) -> str:
    """Return why an object cannot be a plugin of the group, with the method; empty if it can.

    It needs the methods of the group's Protocol (a middleware needs at least one of them), and each
    must accept the arguments that zcrawl passes. A base class is never needed."""
    needed = _methods(PROTOCOLS[group])
    present = [name for name in needed if getattr(plugin, name, None) is not None]
    if group == "middlewares":
        if not present:
            return f"it has none of the methods {', '.join(needed)}"
    elif len(present) < len(needed):
        missing = (name for name in needed if name not in present)
        return f"it has no method {', '.join(missing)}"
    for name in present:
        problem = _wrong_call(getattr(plugin, name), needed[name])
        if problem:
            return f"{name} {problem}"
    return ""


def _methods(protocol: type) -> dict[str, tuple[str, ...]]:
    """Return the public methods of a Protocol, each with the names of its arguments."""
    return {
        name: tuple(inspect.signature(method).parameters)[1:]  # without self
        for name, method in vars(protocol).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


def _wrong_call(method: object, arguments: tuple[str, ...]) -> str:
    if not callable(method):
        return f"is not a method but a {type(method).__name__}"
    try:
        signature = inspect.signature(method)
    except ValueError:  # written in C, without a signature: the first call will show it
        return ""
    try:
        signature.bind(*arguments)
    except TypeError as error:
        called = ", ".join(arguments)
        return f"takes {signature}, but is called as ({called}): {error}"
    return ""


def make_fetcher(name: str, options: Mapping[str, Any]) -> Any:
    return make("fetchers", name, options)


def make_middleware(name: str, options: Mapping[str, Any]) -> Middleware:
    return complete(make("middlewares", name, options))


def complete(plugin: Any) -> Middleware:
    """Return a middleware with all three methods, even if the plugin has only some of them."""
    return plugin if isinstance(plugin, Middleware) else _Adapted(plugin)


def make_executor(name: str, options: Mapping[str, Any]) -> Executor:
    return cast(Executor, make("executors", name, options))


def make_parser(name: str, options: Mapping[str, Any]) -> Parser:
    return cast(Parser, make("parsers", name, options))
