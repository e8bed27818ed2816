"""Which engine fetches for which run, and when a plugin's is closed."""

from __future__ import annotations

from typing import Any

import pytest

from zcrawl.errors import PluginError
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.worker.pipeline.engines import EngineBook


class Closable:
    def __init__(self, options: Any = None) -> None:
        self.options = options
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        raise RuntimeError("a plugin that cannot even be closed")


SHARED: Any = Closable()


def engine_of(spec: JobSpec) -> Any:
    if spec.fetch.engine == "nobody":
        raise PluginError("fetcher 'nobody'", code=PluginError.MISSING)
    return Closable(spec.plugins) if spec.fetch.engine == "mine" else SHARED


def unheard(name: str, detail: str, *, run: int = 0) -> None:
    raise AssertionError(f"{name}: {detail}")


def job(engine: str, **options: Any) -> JobSpec:
    return JobSpec("x", fetch=Fetch(engine=engine), plugins={engine: options} if options else {})


async def test_a_plugins_engine_is_its_runs_own_and_ends_with_it() -> None:
    """Two runs with other options have two; a newer revision of a run keeps the one it has. What
    it raises when it is closed is told, and ends nothing."""
    notes: list[tuple[str, str, int]] = []
    book = EngineBook(engine_of, lambda *note, run=0: notes.append((*note, run)))
    adopted: list[Any] = [book.adopt(1, job("mine", a=1)), book.adopt(2, job("mine", a=2))]
    first, second = adopted
    assert (first.options, second.options) == ({"mine": {"a": 1}}, {"mine": {"a": 2}})
    assert id(book.adopt(1, job("mine", a=3))) == id(book.of_run[1]) == id(first)
    book.forget(1)
    book.forget(1)
    assert 1 not in book.of_run
    await book.close()
    assert (first.closed, second.closed) == (1, 1)
    assert [(name, run) for name, _, run in notes] == [
        ("plugin_not_closed", 1),
        ("plugin_not_closed", 2),
    ]
    assert "RuntimeError: a plugin that cannot" in notes[0][1]


async def test_an_engine_of_zcrawls_own_is_shared_and_stays() -> None:
    """Who made it closes it."""
    book = EngineBook(engine_of, unheard)
    adopted: list[object] = [book.adopt(1, job("http")), book.adopt(2, job("http"))]
    assert [engine is SHARED for engine in adopted] == [True, True]
    book.forget(1)
    assert book.of_run == {2: SHARED}
    await book.close()
    assert SHARED.closed == 0


async def test_what_this_worker_lacks_is_raised_and_leaves_nothing() -> None:
    """The run is rejected by that name."""
    book = EngineBook(engine_of, unheard)
    with pytest.raises(PluginError, match="nobody"):
        book.adopt(1, job("nobody"))
    assert book.of_run == {}
    await book.close()
