"""Which secrets go to which hosts, and which files a job may name: a worker's own decision."""

from __future__ import annotations

from typing import Any

import pytest

from zcrawl.errors import JobError
from zcrawl.fetch.host_patterns import HostPattern, parse_pattern
from zcrawl.fetch.identity import Identity
from zcrawl.fetch.keyring import HeaderSecrets, JobRights, Keyring, RunSecrets
from zcrawl.fetch.ports import TlsFiles
from zcrawl.frontier.url import canonicalize
from zcrawl.model.spec import Auth, Fetch, JobSpec

ENVIRON = {"ZCRAWL_SECRET_KEY": "k3y", "ZCRAWL_SECRET_FREE": "fr33", "HOME": "/home/x"}
HOSTS: dict[str, tuple[str, ...]] = {"KEY": ("shop.test", "api.shop.test:8443", "*.cdn.test")}


def secrets(*seeds: str, owner: bool = False, hosts: Any = None, **fetch: Any) -> RunSecrets:
    rights = JobRights(owner, (), HOSTS if hosts is None else hosts)
    spec = JobSpec("j", seeds=seeds, fetch=Fetch(**fetch))
    return Keyring(rights, ENVIRON).for_run(spec)


def sent(of: RunSecrets, url: str, text: str = "${KEY}") -> str | None:
    return HeaderSecrets({"X-Key": text}, of).for_url(canonicalize(url)).get("X-Key")


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.test/",
        "http://shop.test:8080/x",
        "https://SHOP.test/",
        "https://user:pw@shop.test/",
        "https://evil.test@shop.test/",
        "https://api.shop.test:8443/",
        "https://a.cdn.test/",
        "https://a.b.cdn.test/",
    ],
)
def test_a_secret_goes_to_its_hosts(url: str) -> None:
    """By name, by name and port, or by all names below one."""
    assert sent(secrets(), url) == "k3y"


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.test/",
        "https://shop.test.evil.test/",
        "https://shop.test.:443/",
        "https://notshop.test/",
        "https://www.shop.test/",
        "https://shop.test@evil.test/",
        "https://evil.test/shop.test",
        "https://evil.test?https://shop.test/",
        "https://evil.test#@shop.test/",
        "https://evil.test\\@shop.test/",
        "https://api.shop.test/",
        "https://api.shop.test:8444/",
        "https://cdn.test/",
        "https://xcdn.test/",
        "https://a.cdn.test.evil.test/",
    ],
)
def test_a_secret_goes_to_no_other_host(url: str) -> None:
    """Whatever the URL is made to look like: its canonical host decides."""
    of = secrets()
    assert sent(of, url) is None
    headers = HeaderSecrets({"X-Key": "${KEY}", "Accept": "*/*"}, of)
    assert headers.for_url(canonicalize(url)) == {"Accept": "*/*"}
    assert headers.missing_secrets(canonicalize(url)) == {"KEY"}


def test_on_a_cluster_a_secret_without_hosts_goes_to_nobody() -> None:
    """Not to the seeds either: whoever submits the job chooses them."""
    for hosts in ({}, {"FREE": ()}):
        assert sent(secrets("https://x.test/", hosts=hosts), "https://x.test/", "${FREE}") is None


def test_in_the_embedded_form_it_goes_to_the_seeds_hosts() -> None:
    """To their ports, and from http also to https, where it leads. With hosts of its own, to those
    alone."""
    of = secrets("http://a.test/x", "https://b.test:8443/", owner=True)
    got = [sent(of, url, "${FREE}") for url in ("http://a.test/", "https://a.test/")]
    assert got == ["fr33", "fr33"]
    assert sent(of, "https://b.test:8443/", "${FREE}") == "fr33"
    for url in ("https://a.test:8443/", "https://b.test/", "https://www.a.test/", "http://c.test/"):
        assert sent(of, url, "${FREE}") is None, url
    assert sent(of, "http://a.test/") is None
    assert sent(of, "http://shop.test/") == "k3y"
    closed = secrets("http://a.test/", owner=True, hosts={"FREE": ()})
    assert sent(closed, "http://a.test/", "${FREE}") is None


def test_a_seed_with_tls_releases_nothing_to_plain_http() -> None:
    """A page can link to http:// of its own host, and whoever is on the way reads what goes there.
    The other way is open: sites send their visitors from http to https."""
    of = secrets("https://a.test/", "https://b.test:8443/", "http://c.test:8080/", owner=True)
    for url in ("http://a.test/", "http://a.test:443/", "http://b.test:8443/", "http://b.test/"):
        assert sent(of, url, "${FREE}") is None, url
    for url in ("https://a.test/", "http://c.test:8080/", "https://c.test:8080/"):
        assert sent(of, url, "${FREE}") == "fr33", url


def test_a_text_with_two_secrets_needs_both_to_be_released() -> None:
    """One that is not keeps all of it back."""
    of = secrets(hosts={"KEY": ("a.test", "b.test"), "FREE": ("b.test",)})
    assert sent(of, "https://a.test/", "${KEY}-${FREE}") is None
    assert sent(of, "https://b.test/", "${KEY}-${FREE}") == "k3y-fr33"


def test_credentials_and_header_sets_are_bound_to_hosts_too() -> None:
    """A job may name any host in `auth`; only the secret's own get it."""
    auth = (
        Auth("evil.test", user="x", password="${KEY}"),
        Auth("shop.test", user="${KEY}", password="${KEY}"),
        Auth("api.shop.test", bearer="${KEY}"),
    )
    identity = Identity(Fetch(auth=auth, header_sets=({"X-Key": "${KEY}", "A": "b"},)), secrets())
    assert identity.headers("https://evil.test") == {"A": "b"}
    assert identity.missing_secrets("https://evil.test") == {"KEY"}
    assert identity.headers("https://api.shop.test") == {"A": "b"}
    both = identity.headers("https://shop.test")
    assert both == {"A": "b", "X-Key": "k3y", "Authorization": "Basic azN5OmszeQ=="}
    headers = identity.headers("https://api.shop.test:8443")
    assert headers["Authorization"] == "Bearer k3y"
    assert not identity.missing_secrets("https://shop.test")


def test_a_proxys_credentials_go_to_a_proxy_that_they_are_released_for() -> None:
    """In the embedded form to any that the job names, unless the secret has hosts of its own."""
    for text in ("http://x:${KEY}@evil.test:1", "socks5://${FREE}:${FREE}@p.test:1"):
        with pytest.raises(JobError) as caught:
            secrets().proxy(text)
        assert caught.value.code == "secret_not_released"
        assert "k3y" not in str(caught.value)
    assert secrets().proxy("http://x:${KEY}@shop.test:1") == "http://x:k3y@shop.test:1"
    assert secrets().proxy("http://plain.test:1") == "http://plain.test:1"
    own = secrets(owner=True)
    assert own.proxy("socks5://${FREE}:${FREE}@p.test:1") == "socks5://fr33:fr33@p.test:1"
    with pytest.raises(JobError):
        own.proxy("http://x:${KEY}@evil.test:1")


@pytest.mark.parametrize("value", ["a/b", "a?b", "a#b", "x@evil.test:1/"])
def test_a_secret_cannot_become_a_proxys_host(value: str) -> None:
    """It would be looked up, and DNS would carry it away."""
    of = Keyring(JobRights(owner=True), {"ZCRAWL_SECRET_PW": value}).for_run(JobSpec("j"))
    with pytest.raises(JobError) as caught:
        of.proxy("http://u:${PW}@p.test:1")
    assert caught.value.code == "bad_secret"
    assert value not in str(caught.value)


def test_a_proxy_of_the_job_must_not_read_a_secret_along() -> None:
    """Plain HTTP and TLS that nobody verifies are open to it; verified TLS is not, nor is a proxy
    that the secret may go to. The machine's own user names their proxies themselves."""
    there, key = "https://shop.test/", "${KEY}"
    evil: Any = {"proxies": ("http://evil.test:1",)}
    assert sent(secrets(**evil), "http://shop.test/", key) is None
    assert sent(secrets(**evil), there, key) == "k3y"
    assert sent(secrets(**evil, verify_tls=False), there, key) is None
    good: Any = {"proxies": ("http://shop.test:1", "socks5://a.cdn.test:2")}
    assert sent(secrets(**good, verify_tls=False), there, key) == "k3y"
    assert sent(secrets(owner=True, **evil), "http://shop.test/", key) == "k3y"


def test_a_secret_that_is_not_set_is_named_also_where_it_would_not_be_sent() -> None:
    """When the run is adopted, not at its thousandth page."""
    with pytest.raises(JobError, match="ZCRAWL_SECRET_GONE") as caught:
        HeaderSecrets({"X": "${GONE}"}, secrets())
    assert caught.value.code == "no_secret"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("example.com", HostPattern("example.com")),
        ("EXAMPLE.com:80", HostPattern("example.com", 80)),
        ("*.example.com", HostPattern("example.com", None, True)),
        ("*.example.com:8443", HostPattern("example.com", 8443, True)),
        ("bücher.example", HostPattern("xn--bcher-kva.example")),
        ("127.0.0.1:9", HostPattern("127.0.0.1", 9)),
        ("[::1]:80", HostPattern("[::1]", 80)),
        ("localhost", HostPattern("localhost")),
    ],
)
def test_a_pattern_is_read_in_canonical_form(text: str, pattern: HostPattern) -> None:
    """As the host of a URL would be."""
    assert parse_pattern(text) == pattern


@pytest.mark.parametrize(
    "text",
    [
        *("", "*", "*.", "*.com", "**.a.test", "a.*.test", "*a.test", "a.test.", ".", "a b.test"),
        *(
            "https://a.test",
            "a.test/",
            "a.test/x",
            "u@a.test",
            "a.test:",
            "a.test:0",
            "a.test:99999",
        ),
        *(
            "a.test:x",
            "*.127.0.0.1",
            "*.[::1]",
            "a%2etest",
            "a.test#",
            "a.test?",
            "a\\b.test",
            "[::g]",
        ),
    ],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    """A typing error must not open a secret to more hosts than were meant."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_pattern(text)


TLS = JobRights(tls_files=("/etc/zcrawl/tls/", "/srv/ca"))


@pytest.mark.parametrize("name", ["/etc/zcrawl/tls/ca.pem", "/srv/ca/a/b.pem", "/srv//ca/./x"])
def test_a_job_names_certificates_in_the_workers_folders(name: str) -> None:
    """Each of the three files by itself."""
    for files in (TlsFiles(ca=name), TlsFiles(cert=name), TlsFiles("", name, name)):
        assert Keyring(TLS).check_tls(files) is files


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/passwd", "/etc/zcrawl/tls", "/etc/zcrawl/tls/../worker.key", "/srv/ca-evil/x"),
        *("ca.pem", "./ca.pem", "~/ca.pem", "/srv/ca/\0x", "s3://srv/ca/x", "/no/such/file"),
    ],
)
def test_a_job_names_no_other_file_of_a_worker(name: str) -> None:
    """And learns nothing of it: the name decides, nothing is looked at."""
    for files in (TlsFiles(ca=name), TlsFiles("/srv/ca/x", name), TlsFiles("", "/srv/ca/x", name)):
        for rights in (TLS, JobRights()):
            with pytest.raises(JobError) as caught:
                Keyring(rights).check_tls(files)
            assert caught.value.code == "path_not_allowed"
        assert Keyring(JobRights(owner=True)).check_tls(files) is files


def test_an_owners_secret_of_an_auth_entry_goes_to_that_host_too() -> None:
    """The owner names it as they name their seeds. No other secret goes there, and on a cluster an
    entry opens nothing."""
    auth = (Auth("api.test:80", user="me", password="${FREE}"),)
    own = secrets("http://seed.test/", owner=True, auth=auth)
    assert sent(own, "http://api.test/", "${FREE}") == "fr33"
    assert sent(own, "http://api.test:81/", "${FREE}") is None
    assert sent(own, "http://api.test/") is None
    assert sent(secrets(auth=auth), "http://api.test/", "${FREE}") is None
