"""Where a worker reads a page: in its event loop, unless the page costs too much CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec
import pytest

from zcrawl.frontier.url import LinkResolver
from zcrawl.mesh.messages import RunConfig
from zcrawl.model.spec import JobSpec
from zcrawl.worker.pipeline.reading import BUDGET_S, PageReader
from zcrawl.worker.results.context import RunContext

LINKS = 300  # the budget is checked after each 64
PAGE = b"<title>t</title>" + b"".join(b"<a href=/%d>x</a>" % number for number in range(LINKS))
URL = "http://x.test/"


def burn(seconds: float) -> None:
    """Use CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(("spend", "in_child"), [(time.sleep, False), (burn, True)])
async def test_only_cpu_time_moves_a_page_into_a_child_process(
    monkeypatch: pytest.MonkeyPatch, spend: Callable[[float], None], in_child: bool
) -> None:
    """On a busy machine a page waits for a core. It costs no more for that, and to read it again
    in a child process would make the machine busier."""
    context = RunContext(RunConfig(1, 1, msgspec.json.encode(JobSpec("j")), ["x.test"]))
    resolve_all = LinkResolver.resolve_all

    def slow(self: LinkResolver, base: str, hrefs: Iterable[str]) -> list[tuple[str, bytes]]:
        step = list(hrefs)
        spend(5 * BUDGET_S * len(step) / LINKS)
        return resolve_all(self, base, step)

    reader = PageReader()
    await reader.parse(context, PAGE, "text/html", URL, None)  # the first page imports modules
    monkeypatch.setattr(LinkResolver, "resolve_all", slow)
    try:
        page = await reader.parse(context, PAGE, "text/html", URL, None)
        assert [url for url, _ in page.links] == [f"{URL}{number}" for number in range(LINKS)]
        assert (reader._children is not None) == in_child
    finally:
        await reader.close()
