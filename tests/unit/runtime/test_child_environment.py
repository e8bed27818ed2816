"""What children that run foreign code get of the worker's environment."""

from __future__ import annotations

import pytest

from zcrawl.runtime.child_environment import child_environment

SECRETS = {
    "ZCRAWL_SECRET_PW": "1",
    "ZCRAWL_DATABASE__URLS": "2",
    "ZCRAWL_CONFIG": "3",
    "AWS_SECRET_ACCESS_KEY": "4",
    "CONSUL_HTTP_TOKEN": "5",
    "GITHUB_TOKEN": "6",
    "NOTIFY_SOCKET": "7",
    "SSH_AUTH_SOCK": "8",
    "LD_PRELOAD": "9",
    "PYTHONSTARTUP": "10",
    "http_proxy": "http://user:pw@proxy",
    "PATHS": "11",
    "XPATH": "12",
}
NEEDED = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "LANG": "C", "TZ": "UTC", "TMPDIR": "/t"}


def test_only_what_says_where_things_are_is_handed_on() -> None:
    """An allow-list: a name that nobody thought of is not handed on."""
    assert child_environment({**SECRETS, **NEEDED}) == NEEDED


@pytest.mark.parametrize("name", ["PYTHONPATH", "SSL_CERT_FILE", "LD_LIBRARY_PATH"])
def test_what_an_interpreter_needs_stays(name: str) -> None:
    """Without it a child could not import what its worker can."""
    assert child_environment({name: "/x"}) == {name: "/x"}
