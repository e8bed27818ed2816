"""The rules about who may crawl private addresses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machine_tools import LeaderStory
from zcrawl.errors import JobError, RefusedError, UsageError
from zcrawl.master.master import Master
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.submit.private import check_private_host, with_right


def test_a_cluster_without_the_right_refuses_such_jobs() -> None:
    """The decision itself: what is asked for is refused, what is typed opens nothing."""
    plain = JobSpec("j")
    assert with_right(plain, ["10.0.0.1:80"], False) is plain
    for fetch in (Fetch(allow_private=True), Fetch(private_hosts=("10.0.0.1:80",))):
        with pytest.raises(RefusedError) as caught:
            with_right(JobSpec("j", fetch=fetch), [], False)
        assert caught.value.code == "private_not_allowed"
        assert with_right(JobSpec("j", fetch=fetch), [], True).fetch == fetch
    opened = with_right(plain, ["10.0.0.1:80", "wiki:443=10.1.2.0/24"], True)
    assert opened.fetch.private_hosts == ("10.0.0.1:80", "wiki:443=10.1.2.0/24")


def led_by(master: Master) -> LeaderStory:
    story = LeaderStory()
    story.master = master
    return story.elect()


@pytest.mark.parametrize("allow_private", [False, True])
def test_on_a_cluster_nothing_that_a_client_sends_opens_a_typed_host(allow_private: bool) -> None:
    """Neither URLs nor entries, whatever the cluster lets jobs ask for in their own words."""
    story = led_by(Master("m1", allow_private=allow_private))
    spec = {"name": "j", "seeds": ["http://10.0.0.1/"]}
    args: dict[str, Any] = {"vouched": ["http://10.0.0.1/"], "opened": ["10.0.0.1:80"]}
    reply = story.ask("submit", spec=spec, mode="new", seeds=[], **args)
    assert reply is not None, reply
    assert reply.ok, reply
    (run,) = story.leader.state.runs.active.values()
    assert run.spec.fetch.private_hosts == ()


def test_on_a_master_of_ones_own_the_entries_become_part_of_the_job() -> None:
    """They are checked like those of a job file: other processes of this machine send requests."""
    story = led_by(Master("m1", allow_private=True, vouches=True))
    spec = {"name": "j", "seeds": ["http://wiki/"]}
    bad = story.ask("submit", spec=spec, mode="new", seeds=[], opened=["wiki:80=nonsense"])
    assert bad is not None
    assert not bad.ok
    story.ask("submit", spec=spec, mode="new", seeds=[], opened=["wiki:80=10.1.2.0/24"])
    (run,) = story.leader.state.runs.active.values()
    assert run.spec.fetch.private_hosts == ("wiki:80=10.1.2.0/24",)


@pytest.mark.parametrize(
    "entry",
    [
        *("localhost", "localhost:", "http://a:1", "a:1/x", "a:99999", "0x7f.1:80", "", "::1:80"),
        *(
            "a:80=",
            "a:80=x",
            "a:80=10.0.0.1/24",
            "a:80=10.0.0.0/33",
            "=10.0.0.0/24",
            "a=10.0.0.0/8",
        ),
    ],
)
def test_an_entry_that_could_never_match_is_an_error(entry: str) -> None:
    """The guard compares name and port as they are in canonical URLs."""
    with pytest.raises(JobError, match="private_hosts"):
        check_private_host(entry)


@pytest.mark.parametrize(
    "entry",
    [
        *("localhost:8000", "a.example:443", "10.0.0.1:80", "[fd00::1]:80"),
        *("a:80=10.0.0.0/24", "a:80=fd00::/64", "a:80=10.0.0.1"),
    ],
)
def test_a_host_with_its_port_is_an_entry(entry: str) -> None:
    """Names and addresses alike; without the port it is refused."""
    check_private_host(entry)
    host, _, _ = entry.rpartition(":" if "=" not in entry else ":80")
    with pytest.raises(UsageError):
        check_private_host(host)


def test_a_proxy_is_vouched_for_by_whoever_may_name_it() -> None:
    """With its password left out of the list."""
    fetch = Fetch(proxies=("socks5://${U}:${P}@10.0.0.9:1080", "http://proxy:3128"))
    spec = JobSpec("j", fetch=fetch)
    assert with_right(spec, [], True).fetch.private_hosts == ("10.0.0.9:1080", "proxy:3128")
    assert with_right(spec, [], False) is spec
