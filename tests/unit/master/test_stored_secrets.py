"""Stored secrets in the leader: who gets them, which runs wait, and where a value never is."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from tests.unit.machine_tools import NO_PACE, LeaderStory, urls
from zcrawl.dispatch.secret_book import Vault
from zcrawl.master.master import Master
from zcrawl.mesh.messages import RunConfig, RunConfigs
from zcrawl.model.spec import Fetch, JobSpec
from zcrawl.testing.store.store import FakeStore
from zcrawl.text.sealing import SealingKey

VALUE = "Planted-5ecret-value"
NUMBERS = itertools.count()
OLD, NEW = SealingKey(bytes(range(32))), SealingKey(bytes(range(1, 33)))
JOB = JobSpec("job", politeness=NO_PACE, fetch=Fetch(headers={"X-Api-Key": "${secret:API}"}))


def leader(
    *keys: SealingKey, store: FakeStore | None = None, me: str = "m1", private: bool = True
) -> LeaderStory:
    story = LeaderStory(store, me)
    story.master = Master(me, seen_slots=64, vault=Vault(keys, private))
    return story.elect(alone=store is None)


def answer(story: LeaderStory, op: str, **args: Any) -> dict[str, Any]:
    reply = story.ask(op, f"{op}-{next(NUMBERS)}", **args)
    assert reply is not None
    return {**reply.data, "ok": reply.ok}


def store_api(story: LeaderStory, value: str = VALUE) -> dict[str, Any]:
    return answer(story, "secret_set", secret="API", value=value, hosts=["a.test"])


def configs(story: LeaderStory, worker: str) -> list[RunConfig]:
    return [config for body in story.bodies(RunConfigs, worker) for config in body.runs]


def why(story: LeaderStory) -> str:
    return str(answer(story, "job", ref="job")["reason"])


def test_a_worker_gets_a_secret_only_with_a_run_that_names_it() -> None:
    """The CONFIG of that run has value and hosts; that of another run has none."""
    story = leader(OLD)
    assert store_api(story)["ok"]
    story.submit(*urls(1), of=JOB)
    story.submit(*urls(1, "b.test"), of=JobSpec("plain", politeness=NO_PACE))
    story.join()
    story.wait(5, each=story.beat)
    by_run = {config.run: config.secrets for config in configs(story, "w1")}
    assert by_run[1]["API"].value == VALUE
    assert by_run[1]["API"].hosts == ("a.test",)
    assert by_run[2] == {}
    assert VALUE not in repr(configs(story, "w1"))


def test_a_run_waits_for_a_missing_secret_and_goes_on_when_it_comes() -> None:
    """The reason names the secret; a deletion makes the run wait again."""
    story = leader(OLD)
    story.submit(*urls(3), of=JOB)
    story.join()
    story.wait(5, each=story.beat)
    assert story.assigned() == []
    assert why(story).startswith("no_such_secret: ")
    assert "API" in why(story)
    store_api(story)
    story.wait(5, each=story.beat)
    assert story.assigned()
    answer(story, "secret_delete", secret="API")
    assert why(story).startswith("no_such_secret: ")


def test_a_leader_without_the_key_lets_the_run_wait() -> None:
    """Nothing is sent; the reason names the key's id and not the value."""
    first = leader(OLD)
    store_api(first)
    first.submit(*urls(1), of=JOB)
    second = leader(NEW, store=first.store, me="m2")
    second.join()
    second.wait(12, each=second.beat)
    assert second.assigned() == []
    assert why(second).startswith("secret_sealed: ")
    assert OLD.id in why(second)


def test_without_encrypted_connections_nothing_is_taken_or_sent() -> None:
    """Neither a value from a client, nor a job that names one, nor a stored run."""
    first = leader(OLD)
    store_api(first)
    first.submit(*urls(1), of=JOB)
    story = leader(OLD, store=first.store, me="m2", private=False)
    assert store_api(story)["code"] == "secret_needs_keys"
    again = answer(story, "submit", spec=msgspec.to_builtins(JOB), mode="new", seeds=urls(1))
    assert again["code"] == "secret_needs_keys"
    story.join()
    story.wait(12, each=story.beat)
    assert story.assigned() == []
    assert why(story).startswith("secret_needs_keys: ")


def test_a_new_value_reaches_the_workers_of_a_running_run() -> None:
    """The run's CONFIG is sent again, with a higher revision."""
    story = leader(OLD)
    store_api(story)
    story.submit(*urls(5), of=JOB)
    story.join()
    story.wait(5, each=story.beat)
    store_api(story, "other-value")
    story.tick()
    first, *_, last = configs(story, "w1")
    assert (first.secrets["API"].value, last.secrets["API"].value) == (VALUE, "other-value")
    assert last.revision > first.revision


def test_a_rotation_seals_with_the_newest_key() -> None:
    """After it a master that has only the new key can open everything."""
    first = leader(OLD)
    store_api(first)
    second = leader(OLD, NEW, store=first.store, me="m2")
    rotated = answer(second, "secret_rotate")
    assert rotated.get("rotated") == ["API"], rotated
    third = leader(NEW, store=first.store, me="m3")
    (row,) = answer(third, "secret_list")["secrets"]
    assert (row["key"], row["problem"]) == (NEW.id, "")


def test_the_value_is_in_no_row_answer_event_or_log_line() -> None:
    """What the database has is sealed, and the stored answer and the audit have the name only."""
    story = leader(OLD)
    reply = store_api(story)
    listed = answer(story, "secret_list")
    notes = repr(story.__dict__.get("notes", "")) + repr(story.leader.state.watch.__dict__)
    stored = repr(story.store.tables)
    assert "API" in stored
    for text in (repr(reply), repr(listed), notes, stored):
        assert VALUE not in text


def test_a_master_without_a_key_says_what_to_do() -> None:
    """No secret is stored in the clear."""
    story = leader()
    assert store_api(story)["code"] == "bad_vault_key"
    assert story.store.tables.secrets == {}
