"""What a submitter may put into its jobs, and what quotas refuse, through a real leader."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.machine_tools import LeaderStory
from tests.unit.machine_tools import spec as plain_spec
from zcrawl.errors import RefusedError
from zcrawl.master import events as m
from zcrawl.master.desk import ownership
from zcrawl.mesh.messages import ClientRequest, Reply
from zcrawl.mesh.roles import KeyRole
from zcrawl.model.people import Quotas
from zcrawl.model.spec import (
    SHELL,
    Fetch,
    JobSpec,
    OutputSpec,
    Politeness,
    ShellTask,
    SpiderCode,
)
from zcrawl.submit.output_rights import OutputRights

SEEDS = ["http://a.test/"]


def spec(**changes: Any) -> JobSpec:
    return msgspec.structs.replace(plain_spec(), **changes)


def submit(
    story: LeaderStory, of: JobSpec, role: str = KeyRole.SUBMITTER, by: str = "ann", **more: Any
) -> Reply:
    rights = more.pop("rights", [])
    args = {"spec": msgspec.to_builtins(of), "mode": "update", "seeds": SEEDS, **more}
    story.request_count += 1
    id = f"s{story.request_count}"
    story.handle(
        m.ClientAsked(b"c", ClientRequest(id, "submit", args, by=by, role=role, rights=rights))
    )
    story.tick()
    return story.replies[-1]


PRIVATE = (
    Fetch(allow_private=True),
    Fetch(private_hosts=("wiki:80",)),
    Fetch(proxies=("http://10.0.0.1:8080",)),
)


@pytest.mark.parametrize(
    ("of", "right"),
    [
        (spec(spider="a.py:S", code=SpiderCode("", "")), "code"),
        (spec(kind=SHELL, shell=ShellTask(command="/bin/true")), "shell"),
        *[(spec(fetch=fetch), "private") for fetch in PRIVATE],
    ],
)
def test_each_right_is_needed_by_a_submitter_only(of: JobSpec, right: str) -> None:
    """The refusal names the right. Operators and a client without keys need none."""
    assert ownership.needed_rights(of) == [right]
    others = [name for name in ownership.RIGHTS if name != right]
    request = ClientRequest("r", "submit", {}, by="ann", role=KeyRole.SUBMITTER, rights=others)
    with pytest.raises(RefusedError, match=f"without the right {right},") as caught:
        ownership.check_rights(request, of)
    assert caught.value.code == "forbidden"
    ownership.check_rights(msgspec.structs.replace(request, rights=[right]), of)
    for role in ("", KeyRole.OPERATOR, KeyRole.ADMIN):
        ownership.check_rights(msgspec.structs.replace(request, role=role), of)


def test_the_right_and_the_masters_word_are_both_needed() -> None:
    """Neither replaces the other; a typed URL opens nothing for who has no right to it."""
    of = spec(fetch=Fetch(allow_private=True))
    story = LeaderStory().elect()
    refused = submit(story, of, rights=["private"])
    assert refused.data["code"] == "private_not_allowed"
    story.leader.state.allow_private = True
    refused = submit(story, of)
    assert (refused.data["code"], "right private" in refused.data["message"]) == ("forbidden", True)
    assert submit(story, of, rights=["private"]).ok
    story.leader.state.vouches = True
    refused = submit(story, spec(), opened=["localhost:80"])
    assert refused.data["code"] == "forbidden"


def test_a_stored_job_is_started_again_only_with_its_rights() -> None:
    """The right was taken away since: its owner's `again` is refused, by reference and by name."""
    of = spec(fetch=Fetch(private_hosts=("wiki:80",)))
    story = LeaderStory().elect()
    story.leader.state.allow_private = True
    assert submit(story, of, rights=["private"]).ok
    for more in ({"mode": "again", "ref": of.name}, {"mode": "again"}):
        refused = submit(story, spec(), **more)
        assert refused.data["code"] == "forbidden", more
    assert submit(story, spec(), mode="again", rights=["private"]).ok


def test_a_users_quotas_hold_for_its_submissions_and_paces() -> None:
    """Live runs, rate of a job, rate of a tuned run; others have no limit, and a new leader takes
    quotas that are set."""
    story = LeaderStory().elect()
    story.leader.state.set_quotas({"ann": Quotas(most_live_runs=1, most_rate=2.0)})
    slow, fast = (spec(politeness=Politeness(robots=False, rate=rate)) for rate in (2.0, 0.0))
    refused = submit(story, fast)
    assert refused.data["code"] == "quota_exceeded"
    assert "the quota of ann is 2" in refused.data["message"]
    assert submit(story, slow, seeding=True).ok
    refused = submit(story, slow)
    assert refused.data["code"] == "quota_exceeded"
    assert "ann has 1 live runs, and the quota is 1" in refused.data["message"]
    tune = ClientRequest("t", "tune", {"ref": "1", "rate": 9.0}, by="ann", role=KeyRole.SUBMITTER)
    story.handle(m.ClientAsked(b"c", tune))
    story.tick()
    assert story.replies[-1].data["code"] == "quota_exceeded"
    assert submit(story, fast, KeyRole.OPERATOR, "bob").ok


def test_jobs_are_listed_by_owner() -> None:
    """`me` is who asks, by the name that the border put on the request."""
    story = LeaderStory().elect()
    for name, by in (("a", "ann"), ("b", "bob"), ("c", "ann")):
        assert submit(story, spec(name=name), by=by).ok

    def listed(owner: str, by: str) -> list[str]:
        request = ClientRequest(
            f"l{owner}{by}", "jobs", {"owner": owner}, by=by, role=KeyRole.VIEWER
        )
        story.handle(m.ClientAsked(b"c", request))
        story.tick()
        return sorted(job["name"] for job in story.replies[-1].data["jobs"])

    assert listed("me", "ann") == listed("ann", "bob") == ["a", "c"]
    assert listed("me", "bob") == ["b"]
    assert listed("me", "eve") == listed("me", "") == listed("nobody", "ann") == []
    assert listed("", "eve") == ["a", "b", "c"]


def test_a_user_of_a_gateway_is_not_the_machines_own_user() -> None:
    """On one machine, its own user may write to S3 and use secrets of the environment. Users who
    come through a gateway may do neither."""
    remote = spec(output=OutputSpec(to=("s3://bucket/x.jsonl",)))
    secret = spec(fetch=Fetch(headers={"x-key": "${API}"}))
    story = LeaderStory().elect()
    story.leader.state.vouches = True
    story.leader.state.outputs = OutputRights(owner=True)
    for role in (KeyRole.SUBMITTER, KeyRole.OPERATOR):
        assert submit(story, remote, role).data["code"] == "path_not_allowed"
    assert submit(story, remote, "").ok
    refused = submit(story, secret)
    assert (refused.data["code"], "${API}" in refused.data["message"]) == ("forbidden", True)
    assert submit(story, secret, "").ok
