"""Events, items and seeds over HTTP, with the client that users have."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integration.crawling import wait_until
from tests.integration.gateways import gateway
from tests.integration.test_operations import Operator
from tests.web.server import MisbehavingWeb, WebThread
from zcrawl.client import AsyncClient, Client
from zcrawl.client.errors import BadRequest, Conflict, NotFound, Unavailable
from zcrawl.client.event_stream import StreamEvent
from zcrawl.gateway import hub
from zcrawl.gateway.changes import StateChange


@pytest.fixture(scope="module")
def web() -> Iterator[MisbehavingWeb]:
    with WebThread() as web:
        yield web


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    operator = Operator(tmp_path_factory.mktemp("gateway"))
    with operator.up(), gateway(operator.data) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def spec(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "politeness": {"rate": 0}, "fetch": {"allow_private": True}, **more}


class Listener:
    """Reads an event stream in a thread, until a run has ended."""

    def __init__(self, client: Client, **filters: Any) -> None:
        self.events: list[StreamEvent] = []
        self._stream = client.events(**filters)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for event in self._stream:
            self.events.append(event)
            if event.kind == "run" and event.data["state"] in ("completed", "failed"):
                return

    def finish(self) -> list[StreamEvent]:
        self._thread.join(30)
        assert not self._thread.is_alive(), self.events
        return self.events


def test_a_job_is_submitted_awaited_and_read(client: Client, web: MisbehavingWeb) -> None:
    """Submit, wait, all items in order, by page and as a stream; failed requests."""
    done = client.submit(spec("six", seeds=[web.url("/good/6/0"), web.url("/status/404")]))
    view = client.wait("six", timeout_s=30)
    assert (view.run, view.state, view.pages) == (done.run, "completed", 6)
    items = list(client.items(done.run))
    assert len(items) == view.items == 6
    assert [item.id for item in items] == sorted(item.id for item in items)
    assert all(item.data["url"].startswith(web.url("/")) for item in items)
    assert list(client.items(done.run, after=items[2].id)) == items[3:]
    assert [row.status for row in client.failed(done.run)] == [404]
    assert "six" in [job.name for job in client.jobs(sort="-id")]


def test_pages_of_items_and_failed_requests(client: Client, url: str, web: MisbehavingWeb) -> None:
    """`after` of a page leads to the next one; the last page has none."""
    run = client.submit(spec("pages", seeds=[web.url("/good/5/0"), web.url("/status/404")])).run
    client.wait("pages", timeout_s=30)
    first = httpx.get(f"{url}/v1/runs/{run}/items", params={"limit": 3}).json()
    second = httpx.get(
        f"{url}/v1/runs/{run}/items", params={"limit": 3, "after": first["after"]}
    ).json()
    assert [len(first["items"]), len(second["items"]), second["after"]] == [3, 2, None]
    failed = httpx.get(f"{url}/v1/runs/{run}/failed").json()
    assert [row["status"] for row in failed["failed"]] == [404]
    lines = httpx.get(
        f"{url}/v1/runs/{run}/items", headers={"Accept": "application/x-ndjson"}
    ).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [
        item["id"] for item in [*first["items"], *second["items"]]
    ]


def test_errors_are_one_tree_with_code_field_and_remedy(client: Client) -> None:
    """A client decides by type and code; people read the remedy."""
    for call in (
        lambda: client.job("nobody"),
        lambda: list(client.items(999_999)),
        lambda: list(client.failed(999_999)),
        lambda: client.add_seeds("nobody", ["http://a.test/"]),
    ):
        with pytest.raises(NotFound) as missing:
            call()
        assert missing.value.code in ("no_such_job", "no_such_run")
    with pytest.raises(BadRequest) as wrong:
        client.submit({"name": "x", "sedes": ["http://a.test/"]})
    assert wrong.value.field
    with pytest.raises(BadRequest) as kinds:
        next(client.events(kinds="runs"))
    assert (kinds.value.field, "run" in kinds.value.remedy) == ("kinds", True)


def test_a_client_gives_up_when_nobody_answers() -> None:
    """After its patience, with the error of an unreachable gateway."""
    with Client("http://127.0.0.1:9", patience_s=0.3) as client, pytest.raises(Unavailable):
        client.job("x")


def test_a_submission_with_the_same_key_acts_once(client: Client, web: MisbehavingWeb) -> None:
    """A client that repeats it itself gets the same job and run."""
    body = spec("once", seeds=[web.url("/good/2/0")])
    first = client.submit(body, key="k-once")
    assert client.submit(body, key="k-once").run == first.run
    with pytest.raises(Conflict):
        client.submit(body)


def test_events_say_how_a_run_goes(client: Client, web: MisbehavingWeb) -> None:
    """Its states, each with the one before, and nothing of other jobs with a filter."""
    listener = Listener(client, job="told", kinds="run")
    time.sleep(0.5)
    client.submit(spec("other", seeds=[web.url("/good/2/0")]))
    client.submit(spec("told", seeds=[web.url("/good/3/0")]))
    events = listener.finish()
    assert {event.data["name"] for event in events} == {"told"}
    assert events[-1].data["state"] == "completed"
    for before, after in itertools.pairwise(events):
        assert after.data["was"] == before.data["state"]


def test_a_reconnect_gets_what_came_meanwhile(client: Client, web: MisbehavingWeb) -> None:
    """Last-Event-ID: the events since then, each once; a foreign id gives a gap."""
    listener = Listener(client, kinds="run")
    time.sleep(0.5)
    client.submit(spec("before", seeds=[web.url("/good/2/0")]))
    first = listener.finish()
    client.submit(spec("between", seeds=[web.url("/good/2/0")]))
    client.wait("between", timeout_s=30)
    time.sleep(1.5)  # until the snapshot has it
    again = Listener(client, kinds="run", last_id=first[-1].id).finish()
    assert again[0].kind == "run"
    assert again[-1].data["name"] == "between"
    assert not {event.id for event in first} & {event.id for event in again}
    gap = next(client.events(last_id="another-7"))
    assert gap.kind == "gap"


def test_a_stream_goes_on_with_the_next_gateway(tmp_path: Path, web: MisbehavingWeb) -> None:
    """The gateway ends and another one takes its port: the client connects again and hears of
    the gap."""
    operator = Operator(tmp_path)
    with operator.up():
        with gateway(operator.data) as url:
            client = Client(url)
            listener = Listener(client)
            client.submit(spec("one", seeds=[web.url("/good/2/0")]))
            stream = client.events()
            kinds = []

            def listen() -> None:
                for event in stream:
                    kinds.append(event.kind)
                    if event.kind == "gap":
                        return

            thread = threading.Thread(target=listen, daemon=True)
            thread.start()
            listener.finish()
            wait_until(lambda: bool(kinds), 10)
        with gateway(operator.data, urlsplit(url).port or 0):
            thread.join(30)
            assert kinds[-1] == "gap"


def test_a_reader_that_never_reads_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is reset, and the gateway keeps nothing of it; another reader gets all."""
    monkeypatch.setattr(hub, "STUCK_S", 2.0)
    hubs: list[hub.EventHub] = []
    begin = hub.EventHub.__init__

    def remember(self: hub.EventHub, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        hubs.append(self)

    monkeypatch.setattr(hub.EventHub, "__init__", remember)
    operator = Operator(tmp_path)
    with operator.up(), gateway(operator.data) as url, socket.socket() as sleeper:
        target = urlsplit(url)
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sleeper.connect((target.hostname, target.port))
        sleeper.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        count, reader = 0, threading.Thread(target=lambda: None)
        got: list[StreamEvent] = []

        def read() -> None:
            with Client(url) as client:
                for event in client.events(kinds="log"):
                    if event.data.get("n") == "last":
                        return
                    got.append(event)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_until(lambda: len(hubs[0]._readers) == 2, 20)
        while len(hubs[0]._readers) == 2 and count < 2_000:  # more than all buffers hold
            hubs[0].publish(StateChange("log", {"n": count, "text": "x" * 20_000}))
            count += 1
            time.sleep(0.005)
        wait_until(lambda: len(hubs[0]._readers) == 1, 20)
        hubs[0].publish(StateChange("log", {"n": "last"}))
        reader.join(30)
        assert not reader.is_alive()
        sleeper.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            while sleeper.recv(1_000_000):  # what the kernel still had, and then the end
                pass
        assert len([event for event in got if len(event.data.get("text", "")) == 20_000]) == count


def test_seeds_are_streamed_into_a_waiting_run(
    client: Client, url: str, web: MisbehavingWeb
) -> None:
    """2,500 lines in three requests; the same body again adds nothing; then the run ends."""
    sent = spec("seeded", scope={"max_depth": 0, "max_pages": 5})
    run = client.submit(sent, more_seeds=True).run
    client.pause("seeded")  # otherwise it may be done before all seeds are there
    body = b"# seeds\n" + b"".join(
        web.url(f"/good/1/0?n={n}").encode() + b"\n" for n in range(2_500)
    )
    headers = {"Idempotency-Key": "s1"}

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(body), 10_007):
            yield body[at : at + 10_007]

    path, params = f"{url}/v1/jobs/seeded/seeds", {"last": "false"}
    first = httpx.post(path, content=pieces(), params=params, headers=headers, timeout=60).json()
    assert (first["run"], first["lines"], first["seeds"]) == (run, 2_501, 2_500)
    assert first["admitted"] == 2_500
    again = httpx.post(path, content=body, params=params, headers=headers, timeout=60).json()
    assert again == first | {"admitted": 0}
    assert client.add_seeds("seeded", [web.url("/good/1/0?n=1")]).admitted == 0
    client.resume("seeded")
    assert client.wait("seeded", timeout_s=30).state == "completed"
    with pytest.raises(Conflict) as ended:
        client.add_seeds("seeded", [web.url("/")])
    assert ended.value.code == "run_ended"


def test_a_body_that_breaks_off_leaves_the_run_waiting(client: Client, url: str) -> None:
    """A bad line, a bad seed, a broken connection: what was sent is stored, and the answer says
    how to go on."""
    client.submit(spec("broken"), more_seeds=True)
    path = f"{url}/v1/jobs/broken/seeds"
    good = b"".join(b"http://127.0.0.1:9/%d\n" % n for n in range(1_000))
    answer = httpx.post(path, content=good + b"{\n", timeout=60)
    problem = answer.json()
    assert (answer.status_code, problem["field"]) == (422, "line 1001")
    assert "lines 1 to 1000 are stored" in problem["detail"]
    assert "Idempotency-Key" in problem["remedy"]
    answer = httpx.post(path, content=b"no url at all\n", timeout=60)
    assert (answer.status_code, answer.json()["field"]) == (422, "lines 1 to 1")
    target = urlsplit(url)
    with socket.create_connection((target.hostname or "", target.port or 0)) as broken:
        head = b"POST /v1/jobs/broken/seeds HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n"
        broken.sendall(head + b"http://127.0.0.1:9/x\n")
    time.sleep(0.5)
    view = client.job("broken")
    assert view.state in ("running", "pending")
    client.cancel("broken")


def test_the_asynchronous_client_does_the_same(url: str, web: MisbehavingWeb) -> None:
    """Submit, events, wait and items with `await`."""

    async def crawl() -> tuple[str, int, list[str]]:
        async with AsyncClient(url) as client:
            events: list[str] = []

            async def listen() -> None:
                async for event in client.events(job="later", kinds="run"):
                    events.append(event.data["state"])
                    if event.data["state"] == "completed":
                        return

            listening = asyncio.create_task(listen())
            await asyncio.sleep(0.5)
            done = await client.submit(spec("later", seeds=[web.url("/good/4/0")]))
            view = await client.wait("later", timeout_s=30)
            items = [item async for item in client.items(done.run)]
            await asyncio.wait_for(listening, 30)
            names = [job.name async for job in client.jobs()]
            assert "later" in names
            return view.state, len(items), events

    state, items, events = asyncio.run(crawl())
    assert (state, items, events[-1]) == ("completed", 4, "completed")


def test_the_example_of_the_docs_runs(
    url: str, web: MisbehavingWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/client.md shows code that works."""
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    names = {"URL": url, "SEED": web.url("/good/2/0"), "FETCH": {"allow_private": True}}
    exec(compile(code, "client.md", "exec"), names)
    assert capsys.readouterr().out.startswith("completed 2 2\n")
