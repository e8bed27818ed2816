"""Every engine distinguishes answers that are not HTTP from answers that were cut off."""

from __future__ import annotations

import pytest

from tests.contract.engine_tools import HEADERS, OPEN, PATIENT, failure
from tests.web import MisbehavingWeb
from tests.web.behaviours import PAGE
from tests.web.first_lines import LOW, NO_HTTP, UNFINISHED
from zcrawl.errors import FetchError, RetryClass
from zcrawl.fetch.policy import classify_status
from zcrawl.fetch.ports import Engine, HopLimits

HASTY = HopLimits(read_s=0.3, guard=OPEN)


@pytest.mark.parametrize("then", ["closes", "waits"])
@pytest.mark.parametrize("name", NO_HTTP)
async def test_a_line_that_is_no_status_line_is_a_protocol_error(
    engine: Engine, web: MisbehavingWeb, name: str, then: str
) -> None:
    """Another protocol's greeting or plain text: it will not be HTTP the next time, so the host is
    neither asked again nor counted as one that is away. The end of it is not waited for."""
    error = await failure(engine, web.url(f"/says/{name}/{then}"))
    assert (error.code, error.retry) == ("protocol", RetryClass.PERMANENT)
    assert len(web.log) == 1


@pytest.mark.parametrize("name", UNFINISHED)
async def test_an_answer_that_broke_off_may_pass(
    engine: Engine, web: MisbehavingWeb, name: str
) -> None:
    """What came is how an answer begins, or nothing."""
    error = await failure(engine, web.url(f"/says/{name}/closes"))
    assert (error.code, error.retry) == ("reset", RetryClass.TRANSIENT)
    error = await failure(engine, web.url(f"/says/{name}/waits"), HASTY)
    assert (error.code, error.retry) == ("read_timeout", RetryClass.TRANSIENT)


@pytest.mark.parametrize("name", LOW)
async def test_a_status_below_100_is_no_interim_answer(
    engine: Engine, web: MisbehavingWeb, name: str
) -> None:
    """No other answer is waited for behind it: it is an answer with that status, or no HTTP."""
    url = web.url(f"/says/{name}/closes")
    try:
        response = await engine.get(url, HEADERS, PATIENT)
    except FetchError as error:
        assert (error.code, error.retry) == ("protocol", RetryClass.PERMANENT)
    else:
        assert response.status_code == int(name)
        assert classify_status(response.status_code).retry is RetryClass.PERMANENT


@pytest.mark.parametrize("name", ["word", "ssh", "no-number"])
async def test_the_same_on_a_connection_that_was_good(
    engine: Engine, web: MisbehavingWeb, name: str
) -> None:
    """There it may be the rest of the answer before; one more request, on a new connection, tells
    which it is."""
    assert (await engine.get(web.url("/status/200"), HEADERS, PATIENT)).content == PAGE
    error = await failure(engine, web.url(f"/says/{name}/closes"))
    assert error.code == "protocol"
    assert web.hits(f"/says/{name}/closes") <= 2
