"""Job files that say how to get to the pages: what is refused, and with which words."""

from __future__ import annotations

import pytest

from zcrawl.errors import JobError
from zcrawl.submit.read import parse_job

GOOD = """
name = "j"
[fetch]
proxies = ["http://proxy:3128", "socks5://${U}:${P}@10.0.0.1:1080"]
user_agents = ["a", "b"]
header_sets = [{ Accept-Language = "de" }]
auth = [{ host = "x", user = "me", password = "${PW}" }, { host = "y:1", bearer = "${T}" }]
[login]
url = "https://x/login"
fields = { user = "me", password = "${PW}" }
"""


def test_the_keys_are_read() -> None:
    """As tuples and typed entries."""
    spec = parse_job(GOOD, "j.toml")
    assert spec.fetch.auth[1].bearer == "${T}"
    assert spec.login.fields["password"] == "${PW}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[fetch]\nproxies = ["proxy:3128"]', "is not a proxy"),
        ('[fetch]\nproxies = ["ftp://proxy:3128"]', "is not a proxy"),
        ('[fetch]\nproxies = ["http://proxy"]', "is not a proxy"),
        ('[fetch]\nproxies = ["http://proxy:99999"]', "is not a proxy"),
        ('[fetch]\nproxies = ["http://me:hunter2@proxy:3128"]', "secret is written out"),
        ('[fetch]\nproxies = ["http://${PW}.evil.test:1"]', "not its host"),
        ('[fetch]\nproxies = ["http://u:${PW}@${PW}:1"]', "not its host"),
        ('[fetch]\nheaders = { hOST = "evil.test" }', "a job cannot set Host"),
        ('[fetch]\nheader_sets = [{ Host = "evil.test" }]', "a job cannot set Host"),
        ('[fetch]\nproxies = ["socks5://p:1"]\nengine = "httpx"', "socks5 needs engine"),
        ('[fetch]\nproxy_rotation = "random"', "use one of round_robin"),
        (
            '[politeness]\naddress_rate = 1.0\n[fetch]\nproxies = ["socks5://p:1"]',
            "address_concurrency need engine 'http' or 'httpx' and no proxies",
        ),
        (
            '[politeness]\naddress_concurrency = 1\n[fetch]\nengine = "browser"',
            "address_concurrency need engine 'http' or 'httpx' and no proxies",
        ),
        ("[fetch]\nproxy_limit = -1", "proxy_limit"),
        ('[fetch]\nuser_agents = [""]', "user_agents"),
        ('[fetch]\nheader_sets = [{ "a b" = "x" }]', "is not a header's name"),
        ('[fetch]\nauth = [{ host = "x" }]', "either user and password or bearer"),
        ('[fetch]\nauth = [{ host = "x", user = "u", password = "hunter2" }]', "written out"),
        ('[fetch]\nauth = [{ host = "x", bearer = "hunter2" }]', "written out"),
        ('[fetch]\nauth = [{ host = "x", token = "t" }]', "token"),
        ("[fetch]\nhttp2 = true", "engine = 'httpx'"),
        ('[fetch]\nclient_key = "k"', "client_cert"),
        ('[fetch]\nengine = "browser"\nca_file = "c"', "engine = 'http' or 'httpx'"),
        ('[login]\nurl = "nothing"\nfields = { u = "x" }', "login.url"),
        ('[login]\nurl = "https://x/"', "login.fields is empty"),
        ('[login]\nurl = "https://x/"\nfields = { Password = "hunter2" }', "written out"),
        ('[login]\nurl = "https://x/"\nfields = { u = "x" }\nsuccess = "("', "login.success"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, message: str) -> None:
    """With the key and the remedy, and without the secret."""
    with pytest.raises(JobError) as caught:
        parse_job('name = "j"\n' + text, "j.toml")
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)
