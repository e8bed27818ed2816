"""`${secret:NAME}` on a worker: it comes with the run, and never from the environment."""

from __future__ import annotations

import pytest

from zcrawl.errors import FetchError, JobError
from zcrawl.fetch.keyring import HeaderSecrets, JobRights, Keyring, RunSecrets
from zcrawl.mesh.messages import RunSecret
from zcrawl.model.spec import JobSpec

ENVIRON = {"ZCRAWL_SECRET_API": "from-environment", "ZCRAWL_SECRET_secret:API": "spoofed"}
STORED = {"API": RunSecret("from-leader", ("shop.test",), ("/bin/send *",))}


def of_run(stored: dict[str, RunSecret], owner: bool = False) -> RunSecrets:
    spec = JobSpec("j", seeds=("https://seed.test/",))
    return Keyring(JobRights(owner), ENVIRON).for_run(spec, stored)


@pytest.mark.parametrize("owner", [True, False])
def test_a_stored_secret_goes_to_its_hosts_only(owner: bool) -> None:
    """Also the owner's jobs do not send it to their seeds."""
    headers = HeaderSecrets({"X-Key": "${secret:API}"}, of_run(STORED, owner))
    assert headers.for_url("https://shop.test/") == {"X-Key": "from-leader"}
    assert headers.for_url("https://seed.test/") == {}
    assert headers.missing_secrets("https://seed.test/") == {"secret:API"}


@pytest.mark.parametrize("owner", [True, False])
def test_the_environment_is_never_read_for_a_stored_secret(owner: bool) -> None:
    """A variable with the name that the worker uses inside does not count."""
    with pytest.raises(JobError, match="did not come with the run"):
        of_run({}, owner).sealed("{}", "${secret:API}")


def test_a_stored_secret_goes_to_its_commands_only() -> None:
    """As those of the environment do."""
    secrets = of_run(STORED, True)
    assert secrets.for_command("k=${secret:API}", ("/bin/send", "x")) == "k=from-leader"
    with pytest.raises(FetchError):
        secrets.for_command("${secret:API}", ("/bin/cat",))


def test_the_text_form_has_no_value_and_results_are_cleaned() -> None:
    """A server that repeats the value does not bring it into an item or a log."""
    assert "from-leader" not in repr(STORED)
    redactor = of_run(STORED).redactor(["${secret:API}"])
    assert redactor.text("got from-leader") == "got ${secret:API}"
