"""Passwords in URLs: taken out where they can be used, refused elsewhere, shown nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import LeaderStory
from zcrawl.cli.specs import output_for, prepare
from zcrawl.errors import BadUrl, JobError, UsageError, ZcrawlError
from zcrawl.fetch.identity import Identity
from zcrawl.fetch.keyring import JobRights, Keyring, expand
from zcrawl.frontier.url import canonicalize, join
from zcrawl.model.spec import JobSpec
from zcrawl.submit.read import to_json
from zcrawl.submit.url_logins import UrlLogins, has_login, typed_secrets
from zcrawl.submit.validate import spec_from_dict

PASSWORD = "hunter2"
URL = f"http://me:{PASSWORD}@a.test:8080/x"


def basic(spec: JobSpec, secrets: dict[str, str], origin: str) -> str | None:
    keyring = Keyring(JobRights(owner=True), secrets)
    return Identity(spec.fetch, keyring.for_run(spec)).headers(origin).get("Authorization")


def test_a_crawl_takes_the_login_out_of_its_url() -> None:
    """The spec has names only; the value is for the environment of the workers."""
    made = prepare([URL], None, None, {}, lists_vouch=True, takes_logins=True)
    stored = to_json(made.spec).decode() + repr(made.args("new", None)) + made.spec.name
    assert PASSWORD not in stored
    assert "me:" not in stored
    assert made.first == ["http://a.test:8080/x"]
    assert made.typed == ("http://a.test:8080/x",)
    assert set(made.secrets.values()) == {"me", PASSWORD}
    assert basic(made.spec, made.secrets, "http://a.test:8080") == "Basic bWU6aHVudGVyMg=="
    for other in ("http://a.test", "http://a.test:8081", "http://b.test:8080", "http://x.a.test"):
        assert basic(made.spec, made.secrets, other) is None


def test_a_login_of_plain_http_goes_to_https_of_the_same_host_too() -> None:
    """Sites send their visitors there; no other port or scheme is meant."""
    made = prepare(["http://me:pw@a.test/"], None, None, {}, takes_logins=True)
    assert basic(made.spec, made.secrets, "https://a.test") is not None
    assert basic(made.spec, made.secrets, "https://a.test:8443") is None
    made = prepare(["https://me:pw@a.test/"], None, None, {}, takes_logins=True)
    assert basic(made.spec, made.secrets, "http://a.test") is None


@pytest.mark.parametrize(
    ("url", "user", "password"),
    [
        ("http://me:p%40s%2Fs@a.test/", "me", "p@s/s"),
        ("http://me@a.test/", "me", ""),
        ("http://:pw@a.test/", "", "pw"),
        ("http://m%C3%A9:%20@a.test/", "mé", " "),
        ("HTTP://me:a:b@A.TEST/", "me", "a:b"),
        ("http:\\\\me:pw@a.test\\", "me", "pw"),
        (" http://me:p@w@a.test/ ", "me", "p@w"),
    ],
)
def test_odd_spellings_of_a_login(url: str, user: str, password: str) -> None:
    """As browsers read them."""
    logins = UrlLogins()
    clean = logins.clean(url.strip())
    assert not has_login(clean)
    values = logins.environment()
    assert sorted(values.values()) == sorted([user, password])
    assert canonicalize(clean) == "http://a.test/"


def test_a_host_has_one_login() -> None:
    """Which of two would be sent, nobody could tell. Two hosts may have two."""
    logins = UrlLogins()
    for url in ("http://u:1@a-b.test/", "http://u:1@a-b.test/x", "http://u:2@a.b-test/"):
        logins.clean(url)
    assert len(logins.environment()) == 4
    with pytest.raises(UsageError) as caught:
        logins.clean("http://u:3@a-b.test/")
    assert "3" not in str(caught.value)


def test_a_typed_login_replaces_the_job_files_own(tmp_path: Path) -> None:
    """As every flag replaces the file's value; other hosts keep theirs."""
    (tmp_path / "job.toml").write_text(
        'name = "j"\nseeds = ["http://u:pw@a.test/"]\n'
        '[[fetch.auth]]\nhost = "a.test:80"\nbearer = "${OLD}"\n'
        '[[fetch.auth]]\nhost = "b.test"\nbearer = "${B}"\n'
        '[sitemaps]\nurls = ["http://u:pw@c.test/map.xml"]\n'
    )
    made = prepare([], str(tmp_path / "job.toml"), None, {}, takes_logins=True)
    assert "pw" not in to_json(made.spec).decode()
    hosts = [entry.host for entry in made.spec.fetch.auth]
    assert sorted(hosts) == ["a.test:443", "a.test:80", "b.test", "c.test:443", "c.test:80"]
    assert "OLD" not in to_json(made.spec).decode()
    with pytest.raises(JobError) as caught:
        prepare([], str(tmp_path / "job.toml"), None, {})
    assert caught.value.code == "password_in_url"


def test_lists_give_logins_while_the_job_is_made(tmp_path: Path) -> None:
    """In the first thousand; a later one cannot be delivered any more, and is counted as bad."""
    file = tmp_path / "list"
    urls = [f"http://a.test/{n}" for n in range(1_500)]
    file.write_text("\n".join(["http://u:pw@a.test/", *urls, "http://u:pw2@b.test/"]))
    made = prepare([], None, str(file), {}, lists_vouch=True, takes_logins=True)
    assert sorted(made.secrets.values()) == ["pw", "u"]
    assert made.first[0] == "http://a.test/"
    sent = [url for chunk in made.rest for url in chunk]
    assert not any("@" in url for url in sent)
    assert made.lines.bad == 1
    assert "pw2" not in (made.lines.complaint() or "")
    with pytest.raises(BadUrl) as caught:
        prepare([], None, str(file), {})
    assert caught.value.code == "password_in_url"
    assert "pw" not in str(caught.value).replace("password", "")


WITH_PASSWORD: list[dict[str, Any]] = [
    {"seeds": [URL]},
    {"sitemaps": {"urls": [URL]}},
    {"login": {"url": URL, "fields": {"password": "${PW}"}}},
    {"fetch": {"headers": {"Authorization": f"Bearer {PASSWORD}"}}},
    {"fetch": {"headers": {"authorization": PASSWORD}}},
    {"fetch": {"headers": {"Cookie": f"sid={PASSWORD}"}}},
    {"fetch": {"headers": {"Proxy-Authorization": PASSWORD}}},
    {"fetch": {"headers": {"X-Api-Key": PASSWORD}}},
    {"fetch": {"headers": {"X-Auth-Token": PASSWORD}}},
    {"fetch": {"headers": {"Ocp-Apim-Subscription-Key": PASSWORD}}},
    {"fetch": {"header_sets": [{"X-Ok": "1"}, {"X-Access-Token": PASSWORD}]}},
    {"fetch": {"headers": {"Referer": URL}}},
    {"fetch": {"header_sets": [{"X-Ok": "1"}, {"X-Forwarded-For": f"see {URL}"}]}},
    {"fetch": {"user_agent": f"bot/1 (+{URL})"}},
    {"fetch": {"user_agents": ["bot/1", f"bot/2 (+{URL})"]}},
    {"fetch": {"auth": [{"host": f"me:{PASSWORD}@a.test", "user": "me", "password": "${PW}"}]}},
    {"fetch": {"auth": [{"host": "a.test", "user": "me", "password": PASSWORD}]}},
    {"fetch": {"auth": [{"host": "a.test", "bearer": PASSWORD}]}},
    {"fetch": {"proxies": [f"http://me:{PASSWORD}@a.test:3128"]}},
    {"fetch": {"proxies": [f"http://{PASSWORD}@a.test:3128"]}},
    {"login": {"url": "http://a.test/", "fields": {"password": PASSWORD}}},
    {"login": {"url": "http://a.test/", "fields": {"user": "me", "kennwort": PASSWORD}}},
    # A reference beside a written-out secret does not make it allowed.
    {"fetch": {"headers": {"Authorization": f"Bearer {PASSWORD}${{X}}"}}},
    {"fetch": {"headers": {"Authorization": f"Bearer ${{X}}{PASSWORD}"}}},
    {"fetch": {"headers": {"Authorization": f"Bearer {PASSWORD} ${{X}}"}}},
    {"fetch": {"headers": {"Authorization": f"Bearer ${{X}} {PASSWORD}"}}},
    {"fetch": {"headers": {"Authorization": f"Digest a={PASSWORD}, b=${{X}}"}}},
    {"fetch": {"headers": {"Cookie": f"sid={PASSWORD}; lang=${{X}}"}}},
    {"fetch": {"header_sets": [{"X-Api-Key": f"${{X}}:{PASSWORD}"}]}},
    {"fetch": {"headers": {"Referer": f"http://${{X}}:{PASSWORD}@a.test/"}}},
    {"fetch": {"headers": {"Referer": f"http://${{X}}:${{X}}@a/ http://x:{PASSWORD}@b/"}}},
    {"fetch": {"auth": [{"host": "a.test", "user": "me", "password": f"{PASSWORD}${{X}}"}]}},
    {"fetch": {"auth": [{"host": "a.test", "bearer": f"${{X}}{PASSWORD}"}]}},
    {"fetch": {"proxies": [f"http://me:{PASSWORD}${{X}}@a.test:3128"]}},
    {"login": {"url": "http://a.test/", "fields": {"password": f"{PASSWORD}${{X}}"}}},
    {"output": {"to": [f"s3://key:{PASSWORD}@bucket/x.jsonl"]}},
    {"output": {"to": [f"s3://key:{PASSWORD}/more@bucket/x.jsonl"]}},
    {"output": {"to": [f"s3://key:{PASSWORD}@bucket/x"]}},
    {"output": {"to": [f"ftp://key:{PASSWORD}@host/x.csv"]}},
]


@pytest.mark.parametrize("table", WITH_PASSWORD, ids=repr)
def test_a_job_with_a_written_out_secret_is_refused_without_showing_it(
    table: dict[str, Any],
) -> None:
    """By the command and by the leader, which clients of other versions reach too."""
    with pytest.raises(JobError) as caught:
        spec_from_dict({"name": "j", **table}, "job")
    assert caught.value.code in ("secret_written_out", "password_in_url")
    assert PASSWORD not in str(caught.value)
    story = LeaderStory().elect()
    reply = story.ask("submit", spec={"name": "j", **table}, mode="new", seeds=["http://a.test/"])
    assert reply is not None
    assert not reply.ok
    assert PASSWORD not in repr(reply)
    assert PASSWORD not in repr(story.notes)


@pytest.mark.parametrize(
    "table",
    [
        {"fetch": {"headers": {"Authorization": "Bearer ${T}", "X-Keyword": "a", "DNT": "1"}}},
        {"fetch": {"headers": {"Authorization": "${T}", "X-Api-Key": "${A}${B}"}}},
        {"fetch": {"headers": {"Authorization": "ApiKey ${ID}:${KEY}", "X-Token": '"${T}"'}}},
        {"fetch": {"headers": {"Authorization": 'OAuth  id="${ID}", token=${T}'}}},
        {"fetch": {"headers": {"Cookie": "sid=${S}; user-id=${U};", "X-Auth-Token": "${A}.${B}"}}},
        {"fetch": {"headers": {"Referer": "http://${U}:${P}@a.test/", "From": "a@b.test"}}},
        {"fetch": {"user_agent": "bot (+http://a.test:80/;a@b.test)"}},
        {"fetch": {"headers": {"Accept-Language": "de", "X-Author": "me", "Referer": "x"}}},
        {"fetch": {"proxies": ["http://${U}:${P}@a.test:3128", "http://a.test:3128"]}},
        {"output": {"to": ["s3://bucket/a@b.jsonl", "a@b.csv"]}},
        {"seeds": ["http://a.test/@me", "http://a.test/?mail=a@b.test"]},
    ],
    ids=repr,
)
def test_what_is_no_secret_is_taken(table: dict[str, Any]) -> None:
    """An @ in a path, a reference, and headers that let nobody in."""
    spec = json.loads(to_json(spec_from_dict({"name": "j", **table}, "job")))
    assert table == {section: _only(keys, spec[section]) for section, keys in table.items()}


def _only(expected: Any, section: Any) -> Any:
    """Leave out of a section what the table does not name."""
    return {key: section[key] for key in expected} if isinstance(expected, dict) else section


@pytest.mark.parametrize("op", ["submit", "add_seeds"])
def test_the_leader_takes_no_seed_with_a_password(op: str) -> None:
    """A login that is dropped silently would give pages that ask for one."""
    story = LeaderStory().elect()
    story.ask("submit", spec={"name": "first"}, mode="new", seeds=["http://a.test/"], seeding=True)
    args: dict[str, Any] = {
        "spec": {"name": "j"},
        "mode": "new",
        "run": 1,
        "last": False,
        "seeds": [URL],
    }
    reply = story.ask(op, **args)
    assert reply is not None
    assert not reply.ok
    assert reply.data["code"] == "password_in_url"
    assert PASSWORD not in repr(reply)


def test_an_output_of_a_client_has_no_password_either(tmp_path: Path) -> None:
    """`--out` is checked by the command, and by the leader."""
    place = f"s3://key:{PASSWORD}@bucket/x.jsonl"
    with pytest.raises(UsageError, match="password") as caught:
        output_for(place, tmp_path, JobSpec("j"))
    assert PASSWORD not in str(caught.value)
    story = LeaderStory().elect()
    args: dict[str, Any] = {"spec": {"name": "j"}, "mode": "new", "seeds": ["http://a.test/"]}
    reply = story.ask("submit", **args, output=[place, "jsonl"])
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, "secret_written_out")
    assert PASSWORD not in repr(reply)


@pytest.mark.parametrize(
    "text",
    [
        f"http://me:{PASSWORD}@a.test:99999/",
        f"http://me:{PASSWORD}@/",
        f"http://me:{PASSWORD}/x@a.test/",
        f"http://me:{PASSWORD}?x@a.test/",
        f"http://me:{PASSWORD}#x@a.test/",
        f"me:{PASSWORD}@a.test",
        f"ftp://me:{PASSWORD}@a.test/",
        f"//me:{PASSWORD}@a.test/",
    ],
)
def test_no_message_about_a_bad_url_shows_its_password(text: str) -> None:
    """Also where the password itself makes it no URL."""
    for call in (canonicalize, lambda url: prepare([url], None, None, {}, takes_logins=True)):
        with pytest.raises(ZcrawlError) as caught:
            call(text)
        assert PASSWORD not in str(caught.value)
    story = LeaderStory().elect()
    reply = story.ask("submit", spec={"name": "j"}, mode="new", seeds=[text])
    assert reply is not None
    assert not reply.ok
    assert PASSWORD not in repr(reply)


def test_links_and_redirects_bring_no_login() -> None:
    """What a page writes before a host is left out, and nothing is made of it."""
    assert join("http://a.test/", f"http://u:{PASSWORD}@b.test/x") == "http://b.test/x"
    assert join("http://a.test/", "//u:p@b.test/x") == "http://b.test/x"


def test_a_password_that_is_gone_is_asked_for_by_its_name() -> None:
    """What a resumed run needs can be read from its spec; a worker without it says the same."""
    made = prepare([URL], None, None, {}, takes_logins=True)
    assert typed_secrets(to_json(made.spec)) == sorted(made.secrets)
    assert typed_secrets(msgspec.json.encode({"name": "j"})) == []
    with pytest.raises(JobError, match="was part of a URL") as caught:
        expand(made.spec.fetch.auth[0].password, {})
    assert caught.value.code == "no_secret"
