"""A task and what becomes of it: its item, its failure by name, its second try."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from zcrawl import plugins
from zcrawl.errors import FetchError, JobError, PageSkipped, PluginError, RetryClass
from zcrawl.frontier.extra import START_URL
from zcrawl.mesh.messages import Assignment
from zcrawl.model.spec import JobSpec
from zcrawl.model.states import Outcome
from zcrawl.plugins import Skip, Task
from zcrawl.submit.validate import spec_from_dict
from zcrawl.worker.extensions.executors import Executing
from zcrawl.worker.extensions.threads import Aside
from zcrawl.worker.results.attempt import Attempt

SPEC = JobSpec("nightly", kind="mine", plugins={"mine": {"say": "hi"}})


class Mine:
    def __init__(self) -> None:
        self.say = ""
        self.tasks: list[Task] = []
        self.does: Any = lambda task: {"say": self.say}

    def execute(self, task: Task) -> Any:
        self.tasks.append(task)
        return self.does(task)


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Mine:
    made = Mine()

    def make(name: str, options: Mapping[str, Any]) -> Mine:
        assert name == "mine"
        made.say = options["say"]
        return made

    monkeypatch.setattr(plugins, "make_executor", make)
    return made


async def done(url: str = START_URL, timeout_s: float = 5.0) -> Attempt:
    attempt = Attempt(Assignment(1, 2, 3, 4, url, 0, 2, None))
    return await Executing(SPEC, Aside()).do(attempt, timeout_s, lambda: 100.0)


async def test_what_an_executor_gives_becomes_the_tasks_item(mine: Mine) -> None:
    """It is told the job's table, the run, the attempt, and the seed if there is one."""
    result = await done()
    assert result.outcome is Outcome.DONE
    assert result.page is not None
    assert [json.loads(item) for item in result.items] == [{"say": "hi"}]
    (task,) = mine.tasks
    assert (task.job["name"], task.run, task.url, task.attempt) == ("nightly", 3, None, 2)
    await done("http://a.test/")
    assert mine.tasks[-1].url == "http://a.test/"


async def test_an_executor_may_be_async_and_may_give_nothing(mine: Mine) -> None:
    """A task is done without an item too."""

    async def later(task: Task) -> None:
        await asyncio.get_running_loop().run_in_executor(None, int)

    mine.does = later
    result = await done()
    assert result.outcome is Outcome.DONE
    assert result.items == []


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (lambda task: 1 / 0, "ZeroDivisionError"),
        (lambda task: [1], "not list"),
        (lambda task: {"x": object()}, "object"),
        (lambda task: {"x": "y" * 2_000_000}, "2000008 bytes"),
    ],
)
async def test_an_executor_that_fails_is_named_and_tried_again(
    mine: Mine, does: Any, words: str
) -> None:
    """Whatever it raises, and whatever it gives that cannot be kept."""
    mine.does = does
    with pytest.raises(FetchError) as caught:
        await done()
    assert (caught.value.code, caught.value.retry) == ("executor_error", RetryClass.TRANSIENT)
    assert words in str(caught.value)
    assert str(caught.value).startswith("mine: ")


async def test_an_executor_may_say_itself_what_becomes_of_its_task(mine: Mine) -> None:
    """Skip, or a FetchError of its own."""

    def skip(task: Task) -> None:
        raise Skip("not_today")

    mine.does = skip
    with pytest.raises(PageSkipped) as skipped:
        await done()
    assert skipped.value.code == "not_today"
    own = FetchError("never", code="gone", retry=RetryClass.PERMANENT)

    def fail(task: Task) -> None:
        raise own

    mine.does = fail
    with pytest.raises(FetchError) as failed:
        await done()
    assert failed.value is own


async def test_an_executor_that_hangs_is_cut_off(mine: Mine) -> None:
    """After the job's fetch.timeout, which is long enough here for its thread to hand over."""

    async def hang(task: Task) -> None:
        await asyncio.Event().wait()

    mine.does = hang
    with pytest.raises(FetchError) as caught:
        await done(timeout_s=1.0)
    assert caught.value.code == "executor_timeout"


def test_an_executor_that_is_not_installed_is_named() -> None:
    """The worker rejects the run by these words."""
    with pytest.raises(PluginError) as caught:
        Executing(JobSpec("x", kind="nobody-has-it"), Aside())
    assert (caught.value.code, str(caught.value)) == ("plugin_missing", "executor 'nobody-has-it'")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"kind": "crwal"}, "did you mean 'crawl'?"),
        ({"kind": "shell"}, "needs a command"),
        ({"kind": "../x"}, "name of a plugin"),
        ({"kind": "mine", "spider": "a.b:C"}, "spider is for crawls"),
        ({"kind": "mine", "extract": {"fields": {"t": "h1"}}}, "extract is for crawls"),
        ({"kind": "mine", "middlewares": ["stamp"]}, "middlewares is for crawls"),
    ],
)
def test_a_kind_that_makes_no_sense_is_refused(table: dict[str, Any], words: str) -> None:
    """By the key, with the remedy where there is one."""
    with pytest.raises(JobError) as caught:
        spec_from_dict({"name": "x", **table}, "job.toml")
    assert words in str(caught.value)
