"""The synchronous client of the REST gateway. `aio.AsyncClient` is the same with `await`.

A test compares both texts, so a change is made in both.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import httpx
import msgspec

from zcrawl.client import calls
from zcrawl.client.calls import CallRetries, RestCall
from zcrawl.client.errors import ApiError, Unavailable, error_of, unreachable
from zcrawl.client.event_stream import EventParser, Lines, StreamEvent
from zcrawl.gateway.stream_types import FailedRequest, ItemRecord, SeedsAdded
from zcrawl.gateway.types import Accepted, Changed, JobChange, JobSubmission, JobView, RetryWish
from zcrawl.model.snapshot import ENDED

T = TypeVar("T")
S = TypeVar("S", ItemRecord, FailedRequest)
JSON = "application/json"
QUIET_S = 40.0  # an event stream speaks every 15 s


class Client:
    """`with Client("http://127.0.0.1:8765", token="zc_...") as client`.

    `patience_s`: how long a call is repeated while no leader or no gateway answers.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        patience_s: float = 30.0,
        timeout_s: float = 30.0,
        verify: Any = True,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, verify=verify)
        self._url, self._patience_s = url, patience_s

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    # ------------------------------------------------------------ jobs

    def submit(
        self,
        spec: dict[str, Any] | None = None,
        *,
        job: str = "",
        seeds: list[str] | None = None,
        key: str = "",
        **more: Any,
    ) -> Accepted:
        """Store a job and start it, or run the stored `job`. `key`: the Idempotency-Key, if the
        caller wants to repeat the submission itself."""
        values = {"spec": spec, "job": job, "seeds": seeds or [], **more}
        body = calls.body_of(values, JobSubmission)
        return self._do(calls.submit(body), key)

    def job(self, ref: str | int, run: int | None = None) -> JobView:
        """A job with its newest run, or the run of that number."""
        return self._do(calls.job(ref, run))

    def jobs(self, **filters: Any) -> Iterator[JobView]:
        """All jobs, page by page: owner="me", tag, state, name, archived, sort."""
        cursor: str | None = None
        while True:
            page = self._do(calls.jobs(cursor=cursor, **filters))
            yield from page.jobs
            cursor = page.next
            if cursor is None:
                return

    def wait(
        self, ref: str | int, run: int | None = None, *, timeout_s: float = 86_400.0
    ) -> JobView:
        """Wait until the run has ended. TimeoutError if it takes longer."""
        until, pause_s = time.monotonic() + timeout_s, 0.2
        while True:
            view = self.job(ref, run)
            if view.state in ENDED:
                return view
            run = run or view.run
            if time.monotonic() + pause_s > until:
                raise TimeoutError(f"run {view.run} is {view.state} after {timeout_s} s")
            time.sleep(pause_s)
            pause_s = min(2.0, pause_s * 1.5)

    def pause(self, ref: str | int, run: int | None = None) -> Changed:
        return self._do(calls.act(ref, "pause", run))

    def resume(self, ref: str | int, run: int | None = None) -> Changed:
        return self._do(calls.act(ref, "resume", run))

    def cancel(self, ref: str | int, run: int | None = None) -> Changed:
        return self._do(calls.act(ref, "cancel", run))

    def retry(
        self, ref: str | int, run: int | None = None, *, reason: str = "", host: int = 0
    ) -> Changed:
        """Try failed requests again: all, or those of a reason or host."""
        return self._do(calls.act(ref, "retry", run, RetryWish(reason, host)))

    def change(self, ref: str | int, **changes: Any) -> Changed:
        """Change rate, concurrency, labels, priority or schedule of a job."""
        return self._do(calls.change(ref, calls.body_of(changes, JobChange)))

    def delete(self, ref: str | int, run: int | None = None) -> Changed:
        return self._do(calls.delete(ref, run))

    def add_seeds(
        self, ref: str | int, seeds: list[str], run: int | None = None, *, last: bool = True
    ) -> SeedsAdded:
        """Add seeds to a live run."""
        body = b"".join(msgspec.json.encode(seed) + b"\n" for seed in seeds)
        return self._do(calls.add_seeds(ref, run, last=last), content=body)

    # ------------------------------------------------------------ streams

    def items(self, run: int, after: int = 0) -> Iterator[ItemRecord]:
        """All items of a run, oldest first. A broken stream goes on after the last item."""
        return self._rows(f"/v1/runs/{run}/items", after, ItemRecord, lambda item: item.id)

    def failed(self, run: int, after: int = 0) -> Iterator[FailedRequest]:
        """All requests of a run that failed or were skipped."""
        return self._rows(f"/v1/runs/{run}/failed", after, FailedRequest, lambda row: row.seq)

    def _rows(
        self, path: str, after: int, type_: type[S], number: Callable[[S], int]
    ) -> Iterator[S]:
        decoder = msgspec.json.Decoder(type_)
        retries = CallRetries(self._patience_s, time.monotonic())
        while True:
            lines = Lines()
            params = {"format": "jsonl", "after": str(after)}
            try:
                with self._http.stream("GET", path, params=params) as answer:
                    if answer.status_code != 200:
                        raise error_of(
                            answer.status_code,
                            answer.read(),
                            answer.headers.get("retry-after", ""),
                        )
                    for data in answer.iter_bytes():
                        for line in lines.feed(data):
                            row = decoder.decode(line)
                            after = number(row)
                            retries = CallRetries(self._patience_s, time.monotonic())
                            yield row
                return
            except (ApiError, httpx.TransportError) as error:
                time.sleep(retries.pause(self._api_error(error), time.monotonic()))

    def events(
        self, *, job: str | int = "", run: int = 0, kinds: str = "", last_id: str = ""
    ) -> Iterator[StreamEvent]:
        """Events from now on, without an end. A broken stream is connected again by itself, and
        an event `gap` says if events are missing."""
        parser = EventParser()
        parser.last_id = last_id
        params = calls.params_of(job=job, run=run or "", kinds=kinds)
        retries = CallRetries(self._patience_s, time.monotonic())
        while True:
            headers = {"Last-Event-ID": parser.last_id} if parser.last_id else {}
            parser.reconnect()
            try:
                with self._http.stream(
                    "GET", "/v1/events", params=params, headers=headers, timeout=QUIET_S
                ) as answer:
                    if answer.status_code != 200:
                        raise error_of(
                            answer.status_code,
                            answer.read(),
                            answer.headers.get("retry-after", ""),
                        )
                    for data in answer.iter_bytes():
                        retries = CallRetries(self._patience_s, time.monotonic())
                        yield from parser.feed(data)
                time.sleep(parser.retry_s)  # the gateway ended the stream
            except (ApiError, httpx.TransportError) as error:
                time.sleep(retries.pause(self._api_error(error), time.monotonic()))

    # ------------------------------------------------------------ one call

    def _do(self, call: RestCall[T], key: str = "", *, content: bytes | None = None) -> T:
        """Send a call until it is answered. All tries have the same Idempotency-Key, so they act
        once."""
        headers = {} if call.method == "GET" else {"Idempotency-Key": key or secrets.token_hex(16)}
        if content is None and call.body is not None:
            content, headers["Content-Type"] = msgspec.json.encode(call.body), JSON
        elif content is not None:
            headers["Content-Type"] = "application/x-ndjson"
        retries = CallRetries(self._patience_s, time.monotonic())
        while True:
            try:
                answer = self._http.request(
                    call.method, call.path, params=call.params, content=content, headers=headers
                )
                if answer.is_success:
                    return call.read(answer.content)
                retry_after = answer.headers.get("retry-after", "")
                raise error_of(answer.status_code, answer.content, retry_after)
            except (ApiError, httpx.TransportError) as error:
                time.sleep(retries.pause(self._api_error(error), time.monotonic()))

    def _api_error(self, error: ApiError | httpx.TransportError) -> ApiError:
        if isinstance(error, ApiError):
            return error
        text = str(error) or type(error).__name__
        failure: Unavailable = unreachable(self._url, text)
        failure.__cause__ = error
        return failure
