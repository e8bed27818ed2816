"""Tags of jobs: which words are tags, where they come from, and who finds jobs by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.console.test_plain import HOSTILE
from tests.unit.cli.test_cli_wiring import World, row, world
from tests.unit.machine_tools import LeaderStory, spec, urls
from zcrawl.cli.main import run
from zcrawl.cli.specs import prepare
from zcrawl.errors import JobError
from zcrawl.master.snapshot import snapshot
from zcrawl.model.spec import JobSpec
from zcrawl.submit.read import parse_job, to_dict, to_json
from zcrawl.submit.tags import NO_TAG, check_tags, tags_of

__all__ = ["world"]  # a fixture


def refusal(tags: str) -> str:
    with pytest.raises(JobError) as caught:
        parse_job(f'name = "n"\ntags = {tags}\n', "job.toml")
    return str(caught.value)


def test_a_job_file_has_tags() -> None:
    """Short lower-case words, with digits and the signs that names have."""
    tags = ("shop", "daily", "team-7", "v1.2", "a_b", "7", "x" * 32)
    assert parse_job(f'name = "n"\ntags = {json.dumps(tags)}\n', "job.toml").tags == tags
    assert parse_job('name = "n"\n', "job.toml").tags == ()


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ('["Shop"]', "entry 1: 'Shop' is not a tag"),
        ('["ok", "two words"]', "entry 2: 'two words' is not a tag"),
        ('[""]', "entry 1: '' is not a tag"),
        ('["-x"]', "'-x' is not a tag"),
        ('[".x"]', "'.x' is not a tag"),
        ('["münchen"]', "is not a tag"),
        ('["a\\n"]', "is not a tag"),
        (f'["{NO_TAG}"]', "is not a tag"),
        (f'["{"x" * 33}"]', "33 characters; at most 32"),
        ('["a", "b", "a"]', "'a' twice"),
        (json.dumps([f"t{n}" for n in range(17)]), "17 entries; at most 16"),
        ('"shop"', "tags: a list is needed, not text in quotes"),
        ("[1]", "text in quotes is needed, not a whole number"),
    ],
)
def test_what_is_no_tag_is_refused_by_name(tags: str, message: str) -> None:
    """With the file, the entry and what would be one."""
    assert message in refusal(tags)
    assert refusal(tags).startswith("job.toml: ")


@pytest.mark.parametrize("words", [text for text in HOSTILE if text], ids=repr)
def test_nothing_hostile_is_a_tag(words: str) -> None:
    """Markup, escapes, other directions, ten thousand letters: none gets to a screen by a tag."""
    with pytest.raises(JobError):
        check_tags([words])


def test_flags_add_to_the_tags_of_the_file(tmp_path: Path) -> None:
    """Each once, the file's first; other flags replace, this one does not."""
    file = tmp_path / "job.toml"
    file.write_text('name = "n"\nseeds = ["https://a/"]\ntags = ["shop", "daily"]\n')
    changes = {"tags": ("night", "shop", "night")}
    assert prepare([], str(file), None, changes).spec.tags == ("shop", "daily", "night")
    assert prepare(["https://a/"], None, None, changes).spec.tags == ("night", "shop")
    with pytest.raises(JobError, match="is not a tag"):
        prepare(["https://a/"], None, None, {"tags": ("No!",)})
    file.write_text('name = "n"\nseeds = ["https://a/"]\ntags = "shop"\n')
    with pytest.raises(JobError, match="a list is needed"):
        prepare([], str(file), None, changes)


def test_the_stored_form_of_an_older_version_has_no_tags() -> None:
    """A database outlives the version that wrote it."""
    assert tags_of(to_json(JobSpec("n", tags=("a", "b")))) == ("a", "b")
    assert tags_of(b'{"name": "old", "seeds": []}') == ()
    assert tags_of(b"") == ()


# ---------------------------------------------------------------- the leader


def tagged(**jobs: tuple[str, ...]) -> LeaderStory:
    story = LeaderStory().elect()
    for name, tags in jobs.items():
        made = JobSpec(name, tags=tags, politeness=spec().politeness)
        story.submit(*urls(3, f"{name}.test"), of=made)
    return story


def names(story: LeaderStory, **args: Any) -> list[str]:
    reply = story.ask("jobs", **args)
    assert reply is not None
    assert reply.ok
    return [job["name"] for job in reply.data["jobs"]]


def test_the_leader_lists_the_jobs_with_a_tag() -> None:
    """Others are not sent at all; a word that no job has finds none."""
    story = tagged(a=("shop", "daily"), b=("shop",), c=())
    assert names(story) == ["a", "b", "c"]
    assert names(story, tag="shop") == ["a", "b"]
    assert names(story, tag="daily") == ["a"]
    assert names(story, tag="sho") == []
    assert names(story, tag=NO_TAG) == ["c"]


def test_a_job_tells_its_tags_also_when_it_has_ended() -> None:
    """In its view and in the snapshot."""
    story = tagged(a=("shop", "daily"), b=())
    story.ask("act", ref="a", action="cancel")
    reply = story.ask("job", ref="a")
    assert reply is not None
    assert reply.data["tags"] == ["shop", "daily"]
    leader = story.leader
    shot = snapshot(leader.state, leader.commits, story.now)
    assert {run.name: run.tags for run in shot.runs} == {"a": ("shop", "daily"), "b": ()}


def test_an_update_changes_the_tags_of_a_job() -> None:
    """The new run has the new ones."""
    story = tagged(a=("shop",))
    other = to_dict(JobSpec("a", tags=("news",), politeness=spec().politeness))
    story.submit("http://a.test/", spec=other, mode="update")
    assert names(story, tag="shop") == []
    assert names(story, tag="news") == ["a"]


def test_a_submission_with_a_bad_tag_is_refused_by_the_leader_too() -> None:
    """Not every client is ours."""
    bad = to_dict(JobSpec("a", tags=("<b>",)))
    reply = LeaderStory().elect().ask("submit", spec=bad, mode="new", seeds=["http://a.test/"])
    assert reply is not None
    assert (reply.ok, reply.data["code"]) == (False, "job")


# ---------------------------------------------------------------- commands


class Tagged(World):
    """A cluster with three jobs, one of which has ended."""

    def __init__(self, *, knows_tags: bool = True) -> None:
        super().__init__()
        self.live, self.knows_tags = True, knows_tags

    async def ask(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if op != "jobs":
            return await super().ask(op, args)
        self.requests.append((op, args))
        jobs = [(1, "running", ["shop"]), (2, "completed", ["shop"]), (3, "running", ["news"])]
        rows = [row(job=n, state=state, percent=1.0) for n, state, _ in jobs]
        if not self.knows_tags:
            return {"jobs": rows}
        tagged_rows = [
            job_row | {"tags": tags} for job_row, (_, _, tags) in zip(rows, jobs, strict=True)
        ]
        return {
            "jobs": [
                job_row for job_row in tagged_rows if args.get("tag") in (None, *job_row["tags"])
            ]
        }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tagged:
    made = Tagged()
    made.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return made


def test_tags_can_be_given_on_the_command_line(world: World) -> None:
    """As often as one likes."""
    world.live = True
    assert run(["submit", "https://x/", "--tag", "shop", "--tag", "daily"]) == 0
    assert world.requests[0][1]["spec"]["tags"] == ("shop", "daily")


def test_a_bad_tag_is_told_before_anything_is_sent(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, like any other mistake in a job."""
    world.live = True
    assert run(["submit", "https://x/", "--tag", "[red]"]) == 2
    assert "'[red]' is not a tag" in capsys.readouterr().err
    assert not world.requests


def test_jobs_shows_tags_and_lists_by_one(
    cluster: Tagged, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster filters, not the command."""
    assert run(["jobs", "--tag", "shop"]) == 0
    assert cluster.requests == [("jobs", {"tag": "shop"})]
    out = capsys.readouterr().out
    assert "tags" in out
    assert "shop" in out
    assert "news" not in out
    assert run(["jobs", "--json"]) == 0
    assert [job_row["tags"] for job_row in json.loads(capsys.readouterr().out)][2] == ["news"]


@pytest.mark.parametrize("action", ["pause", "resume", "cancel"])
def test_an_action_can_be_on_all_jobs_with_a_tag(
    cluster: Tagged, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The action applies to active jobs only, and each is reported."""
    assert run([action, "--tag", "shop", "--json"]) == 0
    assert cluster.requests[1:] == [("act", {"ref": "1", "action": action})]
    assert [job_row["run"] for job_row in json.loads(capsys.readouterr().out)] == [7]


def test_a_tag_that_no_job_has_is_refused(
    cluster: Tagged, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped tag must not look like something that was done."""
    assert run(["pause", "--tag", "shops"]) == 1
    assert "no_such_tag" in capsys.readouterr().err
    assert [op for op, _ in cluster.requests] == ["jobs"]


def test_a_master_that_knows_no_tags_gets_no_job_cancelled(
    cluster: Tagged, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would list all jobs: none of them says that it has the tag."""
    cluster.knows_tags = False
    assert run(["cancel", "--tag", "shop"]) == 1
    assert [op for op, _ in cluster.requests] == ["jobs"]
    assert run(["jobs"]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pause"], "give a job's id or name, or --tag NAME"),
        (["pause", "docs", "--tag", "shop"], "both a job (docs) and --tag shop were given"),
    ],
)
def test_a_job_or_a_tag_is_needed_and_not_both(
    cluster: Tagged, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which of them was meant? The message tells what was typed."""
    assert run(arguments) == 2
    assert not cluster.requests
    assert says in capsys.readouterr().err
