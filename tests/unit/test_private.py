"""Who may point a crawl at private addresses."""

from __future__ import annotations

import pytest

from zcrawl.errors import JobError, RefusedError
from zcrawl.submit.private import check_private_host, with_right
from zcrawl.submit.spec import Fetch, JobSpec


def test_a_cluster_without_the_right_refuses_such_jobs() -> None:
    """The decision itself: what is asked for is refused, what is typed vouches for nothing."""
    plain = JobSpec("j")
    assert with_right(plain, ["http://10.0.0.1/"], False) is plain
    for fetch in (Fetch(allow_private=True), Fetch(private_hosts=("10.0.0.1:80",))):
        with pytest.raises(RefusedError) as caught:
            with_right(JobSpec("j", fetch=fetch), [], False)
        assert caught.value.code == "private_not_allowed"
        assert with_right(JobSpec("j", fetch=fetch), [], True).fetch == fetch
    vouched = with_right(plain, ["http://10.0.0.1/a", "https://wiki/", "http://wiki:8/"], True)
    assert vouched.fetch.private_hosts == ("10.0.0.1:80", "wiki:443", "wiki:8")


@pytest.mark.parametrize(
    "entry",
    ["localhost", "localhost:", "http://a:1", "a:1/x", "a:99999", "0x7f.1:80", "", "::1:80"],
)
def test_an_entry_that_could_never_match_is_an_error(entry: str) -> None:
    """The guard compares name and port as they are in canonical URLs."""
    with pytest.raises(JobError, match="private_hosts"):
        check_private_host(entry)


@pytest.mark.parametrize(
    "entry", ["localhost:8000", "a.example:443", "10.0.0.1:80", "[fd00::1]:80"]
)
def test_a_host_with_its_port_is_an_entry(entry: str) -> None:
    """Names and addresses alike."""
    check_private_host(entry)


def test_a_proxy_is_vouched_for_by_whoever_may_name_it() -> None:
    """With its password left out of the list."""
    fetch = Fetch(proxies=("socks5://${U}:${P}@10.0.0.9:1080", "http://proxy:3128"))
    spec = JobSpec("j", fetch=fetch)
    assert with_right(spec, [], True).fetch.private_hosts == ("10.0.0.9:1080", "proxy:3128")
    assert with_right(spec, [], False) is spec
