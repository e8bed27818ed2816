"""Parameters of a run: where they may be used, what fills them, and what is refused."""

from __future__ import annotations

import pytest

from zcrawl.errors import JobError
from zcrawl.submit.params import filled, handed_on, merged
from zcrawl.submit.read import parse_job
from zcrawl.submit.validate import check

JOB = """
name = "prices"
seeds = ["https://${params.site}/day/${params.day}"]
params = { site = "shop.example", day = "monday" }
[fetch]
headers = { Accept-Language = "${params.day}", Authorization = "Bearer ${TOKEN}" }
[plugins.store]
table = { names = ["t_${params.day}"] }
[output]
to = ["plugin:store"]
"""


def refusal(text: str) -> JobError:
    with pytest.raises(JobError) as caught:
        parse_job('name = "j"\n' + text, "j.toml")
    return caught.value


def test_references_are_filled_everywhere_and_secrets_stay() -> None:
    """In lists and tables of any depth. `${NAME}` without a dot belongs to the workers."""
    spec = parse_job(JOB, "j.toml")
    assert spec.seeds == ("https://${params.site}/day/${params.day}",), "the definition stays"
    run = filled(spec, {"day": "friday"})
    assert run.seeds == ("https://shop.example/day/friday",)
    assert run.fetch.headers["Accept-Language"] == "friday"
    assert run.fetch.headers["Authorization"] == "Bearer ${TOKEN}"
    assert run.plugins == {"store": {"table": {"names": ["t_friday"]}}}
    assert run.params == {}


def test_a_spec_without_parameters_is_left_as_it_is() -> None:
    """It is the same object: most jobs pay nothing."""
    spec = parse_job('name = "j"\nseeds = ["https://x.test/"]', "j.toml")
    assert filled(spec, {"day": "x"}) is spec


def test_a_filled_spec_is_checked_like_any_other() -> None:
    """A value can make a bad URL, and the check of the run says so."""
    spec = parse_job(JOB, "j.toml")
    check(filled(spec, {"site": "other.example"}))
    with pytest.raises(JobError, match="seeds, entry 1"):
        check(filled(spec, {"site": "not a host"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('seeds = ["https://x.test/${params.day}"]', "params has no 'day'; add day = "),
        (
            'seeds = ["https://x.test/${params.dya}"]\nparams = { day = "1" }',
            "seeds, entry 1 has ${params.dya}, and params has no 'dya'; did you mean 'day'?",
        ),
        ('params = { day = "1" }', "params.day is not used: no value of the job has ${params.day}"),
        ('seeds = ["https://x.test/${params.}"]', "'${params.}' is not a reference"),
        ('seeds = ["https://x.test/${params.day"]\nparams = { day = "1" }', "is not a reference"),
        ('params = { "a b" = "1" }', "'a b' is not a parameter's name"),
        ('params = { a = "${SECRET}" }', "a parameter cannot name secrets"),
        ('params = { a = "${params.a}" }', "a parameter cannot name secrets or other parameters"),
        ('params = { a = "x\\ny" }', "params.a has control characters"),
        (f'params = {{ a = "{"x" * 2001}" }}', "params.a has 2001 characters"),
        ("params = { a = 1 }", "params.a: text in quotes is needed"),
        (
            'params = { a = "1" }\n[schedule]\ncron = "${params.a} 3 * * *"',
            "schedule.cron has ${params.a}; parameters belong to a run, and schedule belongs to",
        ),
        ('params = { a = "1" }\ntags = ["${params.a}"]', "tags, entry 1 has ${params.a}"),
        (
            'params = { a = "nowhere" }\nseeds = ["${params.a}"]',
            "seeds, entry 1",
        ),
        (
            'params = { a = "hunter2" }\n[fetch]\nheaders = { Authorization = "${params.a}" }',
            "a secret is written out",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, message: str) -> None:
    """With the place, the key and what to write instead."""
    error = refusal(text)
    assert message in str(error)
    assert "hunter2" not in str(error)


def test_the_name_of_a_job_has_no_parameters() -> None:
    """It names the job in commands, whatever its runs are given."""
    with pytest.raises(JobError, match="name has"):
        parse_job('name = "a-${params.day}"\nparams = { day = "1" }', "j.toml")


def test_only_declared_parameters_can_be_set() -> None:
    """A misspelt one is named with the nearest; values are checked like the defaults."""
    spec = parse_job(JOB, "j.toml")
    assert merged(spec, {"day": "friday"}) == {"site": "shop.example", "day": "friday"}
    with pytest.raises(JobError, match="--set dya: the job has no such parameter; did you mean"):
        merged(spec, {"dya": "friday"})
    with pytest.raises(JobError, match="cannot name secrets"):
        merged(spec, {"day": "${TOKEN}"})
    with pytest.raises(JobError, match="it has none"):
        merged(parse_job('name = "j"', "j.toml"), {"day": "x"})


def test_a_child_gets_the_parameters_that_it_declares() -> None:
    """Others of the parent's run are left out and no error."""
    spec = parse_job(JOB, "j.toml")
    assert handed_on(spec, {"day": "friday", "region": "eu"}) == {"day": "friday"}
