"""What others can add to zcrawl, and how it is found: entry points by name, loaded when first used.

A package declares `[project.entry-points."zcrawl.middlewares"] stamp = "my_package:Stamp"`; a job
names `stamp`. Called by the worker for jobs that name plugins; nothing here runs for others. What
an entry point leads to is called once per run with the job's `[plugins.NAME]` table and gives an
object of the group's Protocol. docs/plugins.md is the guide, `testing.plugin_contract` the test.
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
    """Raised by a middleware: this page is not wanted. The reason is kept with the page."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Drop(Exception):
    """Raised by a middleware's `before_item`: this item is not stored. Counted by the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Outgoing(msgspec.Struct):
    """A request before it is sent. Headers, body and method may be changed; the URL may not: its
    host was paced, and it was judged by robots.txt and the scope."""

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
    """The page that an item is of."""

    url: str
    final_url: str
    status: int
    depth: int
    fetched_at: float  # UTC seconds


class Parsed(msgspec.Struct, frozen=True):
    """What a parser found. Links may be relative to the page."""

    items: Sequence[Mapping[str, Any]] = ()
    links: Sequence[str] = ()
    title: str | None = None


class Task(msgspec.Struct, frozen=True):
    """One piece of a job that is no crawl. After a crash it comes again."""

    job: Mapping[str, Any]  # the job file's table, with all defaults
    run: int
    url: str | None  # the seed that it is about; None: the job has no seeds, and this one task
    attempt: int  # from 1


Maybe: TypeAlias = _T | Awaitable[_T]


class Middleware:
    """Three points on a page's way; override what is needed, plain or async. Each may raise Skip;
    any other exception fails the page (`middleware_error`) and nothing else. A middleware need not
    inherit from this: an object with any of the three methods is one."""

    def before_request(self, request: Outgoing) -> Maybe[None]:
        """Change the request that is about to be sent; also before each redirect's."""
        return None

    def after_response(
        self, request: Outgoing, response: httpx.Response
    ) -> Maybe[httpx.Response | None]:
        """Another answer instead of this one; None: it stays."""
        return None

    def before_item(self, item: dict[str, Any], page: PageFacts) -> Maybe[dict[str, Any] | None]:
        """The item as it is to be stored; None, or Drop with a reason: it is not stored."""
        return item


class _Adapted(Middleware):
    """An object with some of the methods of a Middleware, completed by those that do nothing."""

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
    """Reads pages of a kind, instead of zcrawl. Called in a thread."""

    def accepts(self, url: str, content_type: str) -> bool: ...

    def parse(self, url: str, content_type: str, body: bytes) -> Parsed: ...


@runtime_checkable
class Fetcher(Protocol):
    """One way to do one request: `fetch.ports.Engine`, where the arguments are explained. It never
    follows redirects, raises FetchError and nothing else, and asks `limits.guard` before it
    connects."""

    async def get(self, url: str, headers: Mapping[str, str], limits: Any) -> httpx.Response: ...

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: Any
    ) -> httpx.Response: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class ItemStore(Protocol):
    """A place for items outside, on the master that leads: `output.to = ["plugin:NAME"]`. After a
    crash `put` comes again with the same name, the same items and maybe more behind them: it
    replaces what the name held. A run without items is one `put` of none. May block; what it raises
    is tried again."""

    def put(self, name: str, items: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class Executor(Protocol):
    """Does a job that is no crawl: its `kind` is the plugin's name. Called once per seed, or once
    for a job without any; plain (in a thread) or async. What it gives is kept as an item. It may
    raise Skip, or a FetchError that says whether to try again; whatever else it raises is tried
    again, as often as the job says."""

    def execute(self, task: Task) -> Maybe[Mapping[str, Any] | None]: ...


PROTOCOLS: Final[dict[str, type]] = {
    "fetchers": Fetcher,
    "parsers": Parser,
    "stores": ItemStore,
    "middlewares": Middleware,
    "executors": Executor,
}


def found(group: str, name: str) -> EntryPoint | None:
    """The entry point, if a package that is installed here declares it."""
    assert group in GROUPS, group
    from importlib.metadata import entry_points  # 10 ms of a start that most jobs do not need

    return next(iter(entry_points(group=f"zcrawl.{group}", name=name)), None)


def names(group: str) -> list[str]:
    """The names of all plugins of a group that packages here declare."""
    from importlib.metadata import entry_points

    return sorted({entry.name for entry in entry_points(group=f"zcrawl.{group}")})


def make(group: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """The plugin's object. PluginError names what is missing or wrong."""
    kind = group.removesuffix("s")
    entry = found(group, name)
    if entry is None:
        raise PluginError(f"{kind} {name!r}", code=PluginError.MISSING)
    try:
        made = entry.load()(**(options or {}))
    except Exception as error:  # foreign code: whatever it raises, the job learns of it
        raise PluginError(
            f"{kind} {name!r} ({entry.value}): {raised_text(error)}", code=PluginError.BROKEN
        ) from error
    problem = problem_of(group, made)
    if problem:
        raise PluginError(
            f"{kind} {name!r} ({entry.value}) makes a {type(made).__name__}, which is no "
            f"zcrawl.plugins.{PROTOCOLS[group].__name__}: {problem}",
            code=PluginError.BROKEN,
        )
    return made


def problem_of(group: str, plugin: object) -> str:
    """Why an object cannot be a plugin of the group, with the method's name; empty if it can.

    It needs the methods of the group's Protocol, of a middleware at least one, and each must take
    the arguments that zcrawl calls it with. A base class is never needed."""
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
    """Its public methods, each with the names of the arguments that it is called with."""
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
    except ValueError:  # written in C, and it does not say: the call will show
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
    """A middleware with all its methods, whichever of them the plugin has."""
    return plugin if isinstance(plugin, Middleware) else _Adapted(plugin)


def make_executor(name: str, options: Mapping[str, Any]) -> Executor:
    return cast(Executor, make("executors", name, options))


def make_parser(name: str, options: Mapping[str, Any]) -> Parser:
    return cast(Parser, make("parsers", name, options))
