"""HTTP tasks against real servers: the call, its expectations, redirects, the address guard, and
where its secrets go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.crawling import command, items, run_of, submission, until
from tests.web.task_site import TaskAnswer, TaskSite, task_site
from zcrawl.blobs.folder import FileBlobs
from zcrawl.fetch.keyring import JobRights
from zcrawl.model.spec import (
    Fetch,
    HttpAuth,
    HttpExpect,
    HttpTask,
    JobSpec,
    OutputSpec,
    Politeness,
)
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.place import BLOBS, DATABASE
from zcrawl.roles.probe import probe

OWNER = JobRights(owner=True)
SECRET = "hunter2hunter2"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def site() -> Iterator[TaskSite]:
    with task_site() as made:
        yield made


@pytest.fixture
def other() -> Iterator[TaskSite]:
    """A server with another port: another origin, with a pace and secrets of its own."""
    with task_site() as made:
        yield made


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZCRAWL_SECRET_PW", SECRET)


def job(url: str, fetch: Fetch | None = None, **task: Any) -> JobSpec:
    expect = HttpExpect(**task.pop("expect", {}))
    fetch = fetch or Fetch(allow_private=True, retries=0)
    return JobSpec("call", kind="http", http=HttpTask(url=url, expect=expect, **task), fetch=fetch)


async def call(spec: JobSpec, rights: JobRights = OWNER) -> dict[str, Any]:
    return await probe(spec, spec.own_seeds[0], rights=rights)


async def item_of(spec: JobSpec, rights: JobRights = OWNER) -> dict[str, Any]:
    report = await call(spec, rights)
    assert report["outcome"] == "done", (report["reason"], report["detail"])
    (item,) = report["items"]
    assert isinstance(item, dict)
    return item


async def test_a_call_is_made_as_the_job_says(site: TaskSite) -> None:
    """Method, headers, body and credentials; robots.txt is for crawlers and is not asked."""
    url = site.answer("/a", TaskAnswer(201, {**JSON, "X-A": "1"}))
    task: dict[str, Any] = {
        "method": "PUT",
        "headers": {"X-B": "2", "User-Agent": "mine"},
        "body": "hé",
    }
    item = await item_of(job(url, auth=HttpAuth(user="me", password="${PW}"), **task))
    (request,) = site.requests
    assert (request.method, request.path, request.body) == ("PUT", "/a", "hé")
    assert (request.headers["x-b"], request.headers["user-agent"]) == ("2", "mine")
    assert request.headers["authorization"].startswith("Basic ")
    assert (item["status"], item["met"], item["unmet"]) == (201, True, [])
    assert (item["headers"]["x-a"], item["body"]) == ("1", '{"status": "ok"}')
    assert item["elapsed_ms"] > 0
    assert item["content_type"] == "application/json"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PATCH"])
async def test_every_method_is_sent(site: TaskSite, method: str) -> None:
    """An answer to HEAD has headers and no body."""
    item = await item_of(job(site.answer("/a", TaskAnswer()), method=method))
    assert site.requests[0].method == method
    assert item["bytes"] == (0 if method == "HEAD" else 16)


@pytest.mark.parametrize(
    ("answer", "expect", "reason"),
    [
        (TaskAnswer(404), {}, "unmet: status 404"),
        (TaskAnswer(204, body=b""), {"status": 200}, "unmet: status 204"),
        (TaskAnswer(404), {"status": [404]}, ""),
        (TaskAnswer(headers=JSON), {"headers": {"content-type": "*json"}}, ""),
        (TaskAnswer(), {"headers": {"content-type": "*json"}}, "unmet: header content-type"),
        (TaskAnswer(), {"json": {"status": "ok", "status == 'ok'": True}}, ""),
        (TaskAnswer(), {"json": {"status": "up"}}, "unmet: json status"),
        (TaskAnswer(body=b"no"), {"json": {"status": "up"}}, "unmet: json"),
        (TaskAnswer(wait_s=0.3), {"latency_ms": 200.0}, "unmet: latency"),
        (TaskAnswer(), {"latency_ms": 20_000.0}, ""),
    ],
)
async def test_expectations_decide_whether_a_call_is_done(
    site: TaskSite, answer: TaskAnswer, expect: dict[str, Any], reason: str
) -> None:
    """What is not met first names the failure."""
    status = expect.get("status")
    if isinstance(status, list):
        expect = {**expect, "status": tuple(status)}
    report = await call(job(site.answer("/a", answer), expect=expect))
    assert (report["reason"], report["outcome"]) == (reason, "failed" if reason else "done")


async def test_the_time_of_a_task_is_that_of_the_job(site: TaskSite) -> None:
    """`timeout` of a job replaces fetch.timeout, for more and for less."""
    url = site.answer("/a", TaskAnswer(wait_s=1.0))
    short = msgspec.structs.replace(job(url), timeout=0.3)
    report = await call(short)
    assert report["outcome"] == "failed"
    assert report["reason"] in ("read_timeout", "total_timeout")
    hasty = Fetch(allow_private=True, timeout=0.3)
    assert (await item_of(msgspec.structs.replace(job(url, hasty), timeout=20.0)))["status"] == 200


async def test_what_is_not_met_can_be_noted_only(site: TaskSite) -> None:
    """For a history of measurements instead of alarms."""
    expect = {"status": 200, "json": {"status": "up"}, "fail": False}
    item = await item_of(job(site.answer("/a", TaskAnswer(503)), expect=expect))
    assert (item["met"], item["status"], len(item["unmet"])) == (False, 503, 2)


async def test_a_check_of_a_redirect_does_not_follow_it(site: TaskSite) -> None:
    """If the status is expected, it is the answer."""
    url = site.redirect("/a", 301, "/b")
    item = await item_of(job(url, expect={"status": 301}))
    assert (item["status"], item["headers"]["location"]) == (301, "/b")
    assert not site.at("/b")


@pytest.mark.parametrize(
    ("method", "status", "second", "body"),
    [
        ("POST", 302, "GET", ""),
        ("POST", 303, "GET", ""),
        ("PUT", 302, "PUT", "data"),
        ("POST", 307, "POST", "data"),
        ("POST", 308, "POST", "data"),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_redirect_is_followed_as_rfc_9110_says(
    site: TaskSite,
    other: TaskSite,
    elsewhere: bool,
    method: str,
    status: int,
    second: str,
    body: str,
) -> None:
    """Within the host and to another one, hop by hop."""
    target = other if elsewhere else site
    url = site.redirect("/a", status, target.answer("/b", TaskAnswer()))
    headers = {"Content-Type": "text/plain", "X-A": "1"}
    item = await item_of(job(url, method=method, body="data", headers=headers))
    (request,) = target.at("/b")
    assert (request.method, request.body, request.headers["x-a"]) == (second, body, "1")
    assert ("content-type" in request.headers) == bool(body)
    assert (item["final_url"], item["method"]) == (target.origin + "/b", second)
    if elsewhere:
        assert item["requested_url"] == url


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_redirects_that_do_not_end_are_failures(
    site: TaskSite, other: TaskSite, elsewhere: bool
) -> None:
    """A loop over two hosts, too; and more redirects than fetch.max_redirects."""
    target = other if elsewhere else site
    site.redirect("/a", 302, target.origin + "/b")
    target.redirect("/b", 302, site.origin + "/a")
    report = await call(job(site.origin + "/a"))
    assert (report["outcome"], report["reason"]) == ("failed", "redirect_loop")
    target.answer("/b", TaskAnswer())
    few = Fetch(allow_private=True, max_redirects=0)
    report = await call(job(site.origin + "/a", few))
    assert (report["outcome"], report["reason"]) == ("failed", "too_many_redirects")


async def test_secrets_stay_with_their_host(site: TaskSite, other: TaskSite) -> None:
    """After a redirect headers and credentials with secrets are left out; a body with one is not
    sent without it, so the call fails by its name."""
    echo = TaskAnswer(echoes=True)
    url = site.redirect("/a", 307, other.answer("/b", echo))
    headers = {"X-Key": "${PW}", "Cookie": "plain=1", "X-Plain": "yes"}
    auth = HttpAuth(bearer="${PW}")
    item = await item_of(job(url, headers=headers, auth=auth))
    sent, (received,) = site.at("/a")[0].headers, other.at("/b")
    assert (sent["x-key"], sent["authorization"]) == (SECRET, f"Bearer {SECRET}")
    assert not {"x-key", "authorization", "cookie"} & received.headers.keys()
    assert received.headers["x-plain"] == "yes"
    assert SECRET not in json.dumps(item) + repr(other.requests)
    report = await call(job(url, method="POST", body="key=${PW}"))
    assert (report["outcome"], report["reason"]) == ("failed", "secret_not_released")
    assert SECRET not in json.dumps(report) + repr(other.requests)
    assert len(other.requests) == 1, "the second call was not sent at all"
    released = JobRights(secrets={"PW": ("127.0.0.1",)})
    item = await item_of(job(url, method="POST", body="key=${PW}", auth=auth), released)
    assert other.requests[-1].body == f"key={SECRET}"
    assert other.requests[-1].headers["authorization"] == f"Bearer {SECRET}"


async def test_secrets_that_are_not_released_are_not_sent(site: TaskSite) -> None:
    """On a cluster a secret without hosts is never sent; the failure names it."""
    url = site.answer("/a", TaskAnswer())
    for task in (
        {"auth": HttpAuth(user="me", password="${PW}")},
        {"headers": {"X-Key": "${PW}"}},
        {"method": "POST", "body": "${PW}"},
    ):
        report = await call(job(url, **task), JobRights())
        assert (report["reason"], "PW" in report["detail"]) == ("secret_not_released", True)
    assert not site.requests


async def test_secrets_that_a_server_repeats_are_in_no_item(site: TaskSite) -> None:
    """Neither as they are nor in the base64 of basic authentication; also not in a failure."""
    url = site.answer("/a", TaskAnswer(echoes=True))
    for auth in (HttpAuth(user="me", password="${PW}"), HttpAuth(bearer="${PW}")):
        spec = job(url, method="POST", auth=auth, body="pw=${PW}")
        report = await call(spec)
        (item,) = report["items"]
        sent = site.requests[-1].headers["authorization"].partition(" ")[2]
        assert SECRET not in json.dumps(item)
        assert sent not in json.dumps(item)
        unmet: dict[str, Any] = {"headers": {"x-echo": "nothing"}, "json": {"body": "nothing"}}
        failed = await call(
            msgspec.structs.replace(
                spec,
                http=HttpTask(
                    url=url, method="POST", auth=auth, body="pw=${PW}", expect=HttpExpect(**unmet)
                ),
            )
        )
        assert failed["reason"] == "unmet: header x-echo"
        assert SECRET not in failed["detail"]
        assert sent not in failed["detail"]


async def test_a_secret_that_cannot_be_a_header_is_not_in_the_message(
    site: TaskSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine refuses it, and quotes it perhaps."""
    monkeypatch.setenv("ZCRAWL_SECRET_PW", "hunter2\r\nX: y")
    report = await call(job(site.answer("/a", TaskAnswer()), headers={"X-Key": "${PW}"}))
    assert report["outcome"] == "failed"
    assert "hunter2" not in report["detail"]


async def test_the_address_guard_holds_for_calls_and_their_redirects(
    site: TaskSite, other: TaskSite
) -> None:
    """Without the right a private address is refused, also as the target of a redirect, also if
    the first host was opened."""
    url = site.redirect("/a", 302, other.answer("/b", TaskAnswer()))
    closed = Fetch(retries=0)
    report = await call(job(url, closed))
    assert report["reason"] == "blocked_address: loopback (127.0.0.1)"
    opened = Fetch(retries=0, private_hosts=(site.origin.removeprefix("http://"),))
    report = await call(job(url, opened))
    assert (report["outcome"], report["reason"]) == (
        "failed",
        "blocked_address: loopback (127.0.0.1)",
    )
    assert len(site.requests) == 1
    assert not other.requests


async def test_a_large_body_is_in_the_blob_store(site: TaskSite, tmp_path: Path) -> None:
    """Its item has the name; bytes that are not text are in base64 if there are few."""
    large = b'{"x": "' + b"y" * 100_000 + b'"}'
    url = site.answer("/large", TaskAnswer(body=large))
    binary = site.answer("/binary", TaskAnswer(body=b"\xff\x00"))
    spec = JobSpec(
        "call",
        kind="http",
        seeds=(url, binary),
        http=HttpTask(expect=HttpExpect(json={})),
        fetch=Fetch(allow_private=True),
        politeness=Politeness(rate=0.0, spread=True),
        output=OutputSpec(to=("sql",)),
    )
    out = tmp_path / "out.jsonl"
    async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
        reply = await cluster.ask("submit", submission(spec, list(spec.seeds), out))
        await until(lambda: run_of(cluster, reply["run"]).get("state") == "completed")
        await cluster.flush_outputs()
    by_url = {item["url"]: item for item in items(out)}
    assert FileBlobs(tmp_path / "d" / BLOBS).get(by_url[url]["body_blob"]) == large
    assert "body" not in by_url[url]
    assert by_url[binary]["body_base64"] == "/wA="


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_redirect_to_another_host_goes_through_the_leader(
    site: TaskSite, other: TaskSite, tmp_path: Path, method: str
) -> None:
    """It becomes a request of that host, with its pace; its secrets are not stored with it."""
    url = site.redirect("/a", 307, other.answer("/b", TaskAnswer()))
    spec = job(url, method=method, body="data", auth=HttpAuth(bearer="${PW}"))
    out = tmp_path / "out.jsonl"
    async with EmbeddedCluster(tmp_path / "d", 2) as cluster:
        reply = await cluster.ask("submit", submission(spec, [url], out))
        await until(lambda: run_of(cluster, reply["run"]).get("state") == "completed")
        await cluster.flush_outputs()
        view = await cluster.ask("job", {"ref": "call"})
    (item,) = items(out)
    assert (item["final_url"], item["requested_url"]) == (other.origin + "/b", url)
    assert [request.method for request in other.requests] == [method]
    assert (view["pages"], view["failed"], view["skipped_reasons"]) == (1, 0, {"redirected": 1})
    assert SECRET.encode() not in (tmp_path / "d" / DATABASE).read_bytes()


async def test_calls_keep_the_pace_of_their_host(site: TaskSite, tmp_path: Path) -> None:
    """Each seed is a call, and each redirect is one more request of the host: 6 at 5/s."""
    seeds = [site.redirect(f"/r{n}", 302, f"/t{n}") for n in range(3)]
    for n in range(3):
        site.answer(f"/t{n}", TaskAnswer())
    fetch = Fetch(allow_private=True)
    spec = JobSpec("call", kind="http", seeds=tuple(seeds), fetch=fetch)
    async with EmbeddedCluster(tmp_path / "d", 1) as cluster:
        reply = await cluster.ask("submit", submission(spec, seeds, None))
        await until(lambda: run_of(cluster, reply["run"]).get("state") == "completed")
    times = sorted(request.at for request in site.requests)
    assert len(times) == 6
    assert times[-1] - times[0] >= 5 * 0.2 * 0.9
    assert not site.at("/robots.txt")


def test_an_http_job_is_tried_again_watched_and_exported_like_any_job(
    site: TaskSite, tmp_path: Path
) -> None:
    """Its URL opens its own host on the operator's machine, as a seed does. What is not met is
    tried again as often as the job says; a Retry-After is respected; `test` shows the answer."""
    busy = TaskAnswer(503, {"Retry-After": "1"})
    url = site.answer("/a", busy, TaskAnswer(headers=JSON))
    text = f'name = "job"\nkind = "http"\n[http]\nurl = "{url}"\n'
    text += '[http.expect]\njson = { status = "ok" }\n'
    (tmp_path / "job.toml").write_text(text)
    done = command("crawl", "job.toml", "--data", "d", "--out", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (item,) = items(tmp_path / "out.jsonl")
    assert (item["status"], item["attempt"], item["met"]) == (200, 2, True)
    first, second = site.at("/a")
    assert second.at - first.at >= 0.95
    shown = command("test", "job.toml", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "met          True" in shown.stdout
    exported = command("export", "job", "--data", "d", cwd=tmp_path)
    assert json.loads(exported.stdout)["body"] == '{"status": "ok"}'
    (tmp_path / "job.toml").write_text(text.replace('"ok"', '"up"') + "[fetch]\nretries = 1\n")
    command("crawl", "job.toml", "--data", "e", cwd=tmp_path)
    failed = json.loads(command("export", "job", "--failed", "--data", "e", cwd=tmp_path).stdout)
    assert (failed["reason"], failed["attempts"]) == ("unmet: json status", 2)
    result = failed["result"]
    assert (result["status"], result["met"], result["attempt"]) == (200, False, 2)
    assert (result["body"], len(result["unmet"])) == ('{"status": "ok"}', 1)
    view = command("job", "job", "--data", "e", cwd=tmp_path)
    assert 'status is "ok", expected "up"' in view.stdout
