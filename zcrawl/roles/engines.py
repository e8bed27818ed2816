"""Create fetch engines by their names in job files; each is imported when it is first needed.

Called by workers and by `zcrawl test`. Most need one engine, and the others are slow to load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from zcrawl.errors import JobError, PluginError
from zcrawl.model.reasons.usage import NO_BROWSER
from zcrawl.model.spec import ENGINES, JobSpec
from zcrawl.roles.extras import missing_here
from zcrawl.runtime import clock

if TYPE_CHECKING:
    from zcrawl.fetch.ports import Engine

Note = Callable[[str, str], None]


class Engines:
    """The engines of one worker. Those of zcrawl are created once and shared by all runs."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._shared: dict[str, Engine] = {}

    def of(self, spec: JobSpec) -> Engine:
        """Return the engine of a job. The run owns and closes a plugin's engine."""
        name = spec.fetch.engine
        _require_extras(spec)
        return self.shared(name) if name in ENGINES else make_engine(spec, self._plain)

    def shared(self, name: str) -> Engine:
        engine = self._shared.get(name)
        if engine is None:
            engine = self._shared[name] = _own_engine(name, self._plain, self._note)
        return engine

    async def aclose(self) -> None:
        for engine in self._shared.values():
            await engine.aclose()

    def _plain(self) -> Engine:
        return self.shared("http")


def make_engine(
    spec: JobSpec, plain: Callable[[], Engine], note: Note = lambda name, detail: None
) -> Engine:
    """Create an engine. `plain` returns the engine for requests that need no browser; `note` logs.

    PluginError: the plugin is missing or refuses the job's options, or an optional package or the
    browser is missing. Then other workers get the pages of the run.
    """
    name = spec.fetch.engine
    _require_extras(spec)
    if name in ENGINES:
        return _own_engine(name, plain, note)
    from zcrawl.plugins import make_fetcher

    return cast("Engine", make_fetcher(name, spec.plugins.get(name, {})))


def _require_extras(spec: JobSpec) -> None:
    missing = missing_here(spec)
    if missing:
        raise PluginError(missing, code=PluginError.MISSING)


def _own_engine(name: str, plain: Callable[[], Engine], note: Note) -> Engine:
    if name == "httpx":
        from zcrawl.fetch.http2.engine import HttpxEngine

        return HttpxEngine()
    if name == "browser":
        try:
            from zcrawl.fetch.browser.engine import BrowserEngine
        except ImportError as error:
            raise JobError(
                f"no browser engine here ({error}); install zcrawl[browser] and Chromium",
                code=NO_BROWSER,
            ) from error
        from zcrawl.fetch.browser.engine import BrowserEngine

        return BrowserEngine(plain(), clock.now, clock.utc, note=note)
    from zcrawl.fetch.wire.engine import HttpEngine

    return HttpEngine()
