"""How many processes a job may ask for, by the configuration that looks at it."""

from __future__ import annotations

import pytest

from zcrawl.errors import JobError
from zcrawl.model.spec import JobSpec, ShellTask
from zcrawl.submit.shell_rights import NO_COMMANDS, ShellRights, of_masters
from zcrawl.submit.tasks import check_tasks


def test_a_worker_refuses_more_processes_than_it_allows() -> None:
    """Also if it allows every command; another worker may allow more."""
    rights = ShellRights(any=True, max_processes=100)
    assert rights.refusal(ShellTask("/bin/x", max_processes=100)) == ""
    assert "allows 100 processes" in rights.refusal(ShellTask("/bin/x", max_processes=101))


def test_the_masters_of_a_cluster_leave_that_to_the_workers() -> None:
    """They do not know the configuration of these."""
    task = ShellTask("/bin/x", max_processes=100_000)
    assert of_masters(True).refusal(task) == ""
    assert "allow_shell" in NO_COMMANDS.refusal(task)


@pytest.mark.parametrize("count", [-1, 1_000_001])
def test_an_impossible_number_is_refused_when_the_job_is_read(count: int) -> None:
    """With the key and the range."""
    spec = JobSpec("j", kind="shell", shell=ShellTask("/bin/x", max_processes=count))
    with pytest.raises(JobError, match=r"shell\.max_processes is -?\d+; it must be 1 to"):
        check_tasks(spec)
