"""Job files and spiders are held to one list of request headers."""

from __future__ import annotations

import msgspec
import pytest

from zcrawl.errors import JobError
from zcrawl.mesh.messages import RunConfig
from zcrawl.model.spec import FORBIDDEN_HEADERS, Fetch, JobSpec
from zcrawl.submit.validate import check
from zcrawl.worker.results.context import RunContext
from zcrawl.worker.results.spider_requests import asked_of
from zcrawl.worker.spider_protocol import Wanted

URL = "http://a.test/"


def spec(headers: dict[str, str]) -> JobSpec:
    return JobSpec("j", seeds=(URL,), fetch=Fetch(headers=headers))


@pytest.mark.parametrize(
    "name", ["Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "HOST"]
)
def test_a_header_that_only_zcrawl_sets_is_refused_from_jobs_and_spiders(name: str) -> None:
    """The same list holds for both: neither can end a request early or name another host."""
    with pytest.raises(JobError, match=f"(?i){name}"):
        check(spec({name: "x"}))
    context = RunContext(RunConfig(1, 1, msgspec.json.encode(spec({})), ["a.test"]))
    request = Wanted(URL, "GET", b"", {name: "x"}, "", {}, 0)
    requests, refused = asked_of([request], URL, context, 1)
    assert (requests, refused.rejected) == ([], {"bad_header": 1})
    assert name.lower() in FORBIDDEN_HEADERS


@pytest.mark.parametrize("name", ["Accept-Language", "X-Upgrade", "Cookie"])
def test_other_headers_are_allowed_to_spiders(name: str) -> None:
    """The list is about framing and the host, not about content."""
    context = RunContext(RunConfig(1, 1, msgspec.json.encode(spec({})), ["a.test"]))
    request = Wanted(URL, "GET", b"", {name: "x"}, "", {}, 0)
    assert asked_of([request], URL, context, 1)[1].rejected == {}
