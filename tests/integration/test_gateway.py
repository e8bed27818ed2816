"""`zcrawl up --http`: a gateway as a child process, used by httpx and curl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.crawling import ZCRAWL, alive, children, wait_until
from tests.servers.page_site import page_site

KEY = "Idempotency-Key"


class Up:
    """A cluster in a folder with a gateway."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*ZCRAWL, "up", "--workers", "1", "--http", f"127.0.0.1:{port}", "--json"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["http"]
        self.http = httpx.Client(base_url=f"{self.url}/v1", timeout=30)
        wait_until(lambda: self.http.get("/readyz").status_code == 200)

    def gateway(self) -> int:
        """The pid of the gateway."""

        def is_gateway(pid: int) -> bool:
            try:
                return b"zcrawl.gateway.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                return False

        return next((pid for pid in children(self.process.pid) if is_gateway(pid)), 0)

    def job(self, ref: object) -> dict[str, Any]:
        view: dict[str, Any] = self.http.get(f"/jobs/{ref}").json()
        return view

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=40)
        self.http.close()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.end()


def submission(name: str, *seeds: str) -> dict[str, Any]:
    fetch = {"allow_private": True}
    return {"spec": {"name": name, "seeds": seeds, "fetch": fetch, "politeness": {"rate": 0}}}


def test_a_job_is_submitted_watched_and_steered_over_http(up: Up, tmp_path: Path) -> None:
    """httpx submits it, curl pauses it; progress, ETag and the run's end are shown."""
    with page_site(tmp_path, 200, delay_s=0.05) as site:
        reply = up.http.post("/jobs", json=submission("site", site.seed))
        assert reply.status_code == 202
        accepted = reply.json()
        assert reply.headers["location"] == f"/v1/jobs/{accepted['id']}"
        wait_until(lambda: up.job("site")["pages"] > 3)
        curl = subprocess.run(
            ["curl", "-s", "-X", "POST", f"{up.url}/v1/jobs/site/pause"],
            capture_output=True,
            check=True,
        )
        assert json.loads(curl.stdout)["state"] == "paused"
        assert up.job("site")["state"] == "paused"
        assert up.http.patch("/jobs/site", json={"concurrency": 2}).status_code == 200
        assert up.http.post("/jobs/site/resume").json()["state"] == "running"
        wait_until(lambda: 0 < up.job("site")["percent"] < 100)
        assert up.http.post("/jobs/site/cancel").json()["changed"] == 1
    wait_until(lambda: up.job("site")["state"] == "cancelled")
    shown = up.http.get("/jobs/site")
    again = up.http.get("/jobs/site", headers={"If-None-Match": shown.headers["etag"]})
    assert again.status_code == 304
    assert [row["run"] for row in up.http.get("/runs").json()["runs"]] == [accepted["run"]]
    assert up.http.get("/jobs", params={"owner": "me"}).json()["total"] == 1
    assert up.http.get("/jobs", params={"owner": "ann"}).json()["total"] == 0


def test_a_key_repeats_an_answer_and_is_refused_for_another_body(up: Up) -> None:
    """Also after the gateway and the master were killed and started again."""
    body = submission("keyed", "http://127.0.0.1:9/")
    first = up.http.post("/jobs", json=body, headers={KEY: "k"}).json()
    os.kill(up.gateway(), signal.SIGKILL)
    again = httpx.post(f"{up.url}/v1/jobs", json=body, headers={KEY: "k"}, timeout=30)
    assert again.json()["run"] == first["run"]
    up.end(signal.SIGKILL)
    other = Up(up.folder)
    try:
        assert other.http.post("/jobs", json=body, headers={KEY: "k"}).json()["run"] == first["run"]
        changed = other.http.post("/jobs", json=submission("else"), headers={KEY: "k"})
        assert changed.status_code == 422  # it has no seeds
        changed = other.http.post(
            "/jobs", json=submission("else", "http://127.0.0.1:9/"), headers={KEY: "k"}
        )
        assert (changed.status_code, changed.json()["code"]) == (409, "key_reused")
        assert other.http.get("/jobs").json()["total"] == 1
    finally:
        other.end()


def test_a_killed_gateway_is_started_again_and_ends_with_its_parent(up: Up) -> None:
    """On the same address: a client that connects meanwhile waits for it. Within 2 s of the
    parent's death it is gone."""
    pid = up.gateway()
    os.kill(pid, signal.SIGKILL)
    assert httpx.get(f"{up.url}/v1/healthz", timeout=20).status_code == 200
    wait_until(lambda: up.gateway() not in (0, pid))
    child = up.gateway()
    up.end(signal.SIGKILL)
    wait_until(lambda: not alive(child), 2.0)


def test_mistakes_name_field_and_remedy(up: Up) -> None:
    """The masters' refusals and the gateway's own."""
    cases: list[tuple[httpx.Response, int, str, str]] = [
        (
            up.http.post("/jobs", json={"spec": {"name": "a", "seedz": []}}),
            *(422, "unknown_key", "spec.seedz"),
        ),
        (up.http.post("/jobs", json=submission("a", "nonsense")), 422, "bad_url", ""),
        (up.http.get("/jobs/none"), 404, "no_such_job", ""),
        (up.http.get("/runs/77"), 404, "no_such_run", ""),
        (up.http.get("/jobs", params={"cursor": "x"}), 422, "bad_request", "cursor"),
        (up.http.post("/nodes/w99/drain"), 404, "no_such_node", ""),
    ]
    for reply, status, code, field in cases:
        problem = reply.json()
        assert (reply.status_code, problem["code"]) == (status, code), problem
        assert problem.get("field", "") == field or not field, problem
        assert problem["remedy"]
        assert reply.headers["content-type"] == "application/problem+json"


def test_kills_of_gateway_and_master_lose_and_double_no_job(tmp_path: Path) -> None:
    """A client that repeats each request with its key: each job exists once."""
    made = Up(tmp_path)
    port = int(made.url.rpartition(":")[2])
    try:
        for number in range(12):
            if number % 4 == 1:
                os.kill(made.gateway(), signal.SIGKILL)
            if number % 4 == 3:
                made.end(signal.SIGKILL)
                made = Up(tmp_path, port)
            body = submission(f"job-{number}", "http://127.0.0.1:9/")

            def accepted(
                body: dict[str, Any] = body, key: str = f"k{number}", url: str = made.url
            ) -> bool:
                try:
                    reply = httpx.post(f"{url}/v1/jobs", json=body, headers={KEY: key}, timeout=20)
                except httpx.TransportError:
                    return False
                assert reply.status_code in (202, 503), reply.text
                return reply.status_code == 202

            wait_until(accepted)
        jobs = made.http.get("/jobs").json()["jobs"]
        assert sorted(job["name"] for job in jobs) == sorted(f"job-{n}" for n in range(12))
        assert all(len(job["runs"]) == 1 for job in jobs)
    finally:
        made.end()
