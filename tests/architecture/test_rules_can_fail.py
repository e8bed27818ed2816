"""The architecture rules catch what they are for. A rule that cannot fail holds nothing."""

from __future__ import annotations

import pytest

from tests.architecture import owner_rules, reason_rules, rules

FOLDER = "/".join(("", "work", "x"))  # assembled, so that this file keeps the rule


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import asyncio",
        "import zmq.asyncio",
        "from os import path",
        "import random",
        "from secrets import token_hex",
        "def f():\n    import socket",
        "import urllib.request",
        "from urllib.request import urlopen",
        "from pathlib import Path",
        "import pathlib",
        "import structlog",
        "import httpx",
        "import peewee",
        "from zcrawl.mesh import sockets",
        "from zcrawl.mesh.sockets import end",
        "from zcrawl.mesh.sockets.end import Router",
        "from ..mesh.sockets import end",
        "from ..runtime.loop import run",
        "from zcrawl.roles.master import run",
        "import zcrawl.runtime.clock",
        "text = open('x').read()",
        "print('x')",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.utcnow()",
    ],
)
def test_a_pure_module_that_touches_the_world_is_caught(source: str) -> None:
    """Each way to reach a clock, chance, the system or an impure module is a complaint."""
    assert rules.purity_complaints("zcrawl/frontier/frontier.py", source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("zcrawl/frontier/frontier.py", "import heapq\nfrom urllib.parse import urlsplit"),
        ("zcrawl/frontier/frontier.py", "import urllib.parse\nfrom pathlib import PurePosixPath"),
        ("zcrawl/frontier/frontier.py", "from zcrawl.frontier import url\nimport ada_url"),
        (
            "zcrawl/worker/held_requests.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio",
        ),
        ("zcrawl/fetch/ports.py", "import httpx"),
        ("zcrawl/mesh/sockets/end.py", "import zmq\nimport asyncio\nimport time"),
        ("zcrawl/worker/driver/loop.py", "import asyncio\nimport random\nprint(1)"),
        ("zcrawl/store/sql/read.py", "import peewee"),
        ("zcrawl/store/sql/dialects/sqlite.py", "import sqlite3"),
        ("zcrawl/roles/master.py", "import asyncio, threading"),
        ("zcrawl/master/leader.py", "from zcrawl.mesh.messages import Beat"),
        ("zcrawl/cli/crawl.py", "import os"),
        ("zcrawl/testing/network.py", "import random\nr = random.Random(3)"),
    ],
)
def test_honest_modules_pass(path: str, source: str) -> None:
    """Pure imports, and imports of the world in the folders made for it, raise no complaint."""
    assert rules.purity_complaints(path, source) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("zcrawl/worker/driver/loop.py", "import zmq"),
        ("zcrawl/mesh/sockets/end.py", "import peewee"),
        ("zcrawl/blobs/folder.py", "import sqlite3"),
        ("zcrawl/roles/cluster.py", "import consul"),
        ("zcrawl/cli/commands/doctor.py", "def f():\n    import sqlite3"),
    ],
)
def test_a_library_outside_of_its_folder_is_caught(path: str, source: str) -> None:
    """A folder that touches the world is no free pass: some libraries have a folder of their
    own."""
    assert rules.purity_complaints(path, source)


def test_the_simulated_world_may_not_use_the_shared_random_stream() -> None:
    """random.random() depends on nobody's seed; only random.Random is allowed."""
    for bad in ("import random\nx = random.random()", "from random import choice"):
        assert rules.purity_complaints("zcrawl/testing/network.py", bad)


@pytest.mark.parametrize(
    "source",
    [
        "key = CanonicalRules().key(url)",
        "key = url.CanonicalRules(sort_query=True).key(url)",
        "key = DEFAULT.key(url)",
        "from zcrawl.frontier.url import url_key",
    ],
)
def test_a_key_without_the_rules_of_a_run_is_caught(source: str) -> None:
    """Whoever needs a key gets it from the run."""
    assert rules.key_complaints("zcrawl/worker/a.py", source)
    assert rules.key_complaints("zcrawl/frontier/a.py", source) == []
    assert rules.key_complaints("zcrawl/worker/a.py", "key = context.rules.key(url)") == []


def test_a_silent_module_and_a_busy_package_are_caught() -> None:
    """No docstring is a complaint, also of a package; and a package has nothing but that."""
    assert rules.module_complaints("zcrawl/a.py", "x = 1\n")
    assert rules.module_complaints("zcrawl/a/__init__.py", "")
    assert rules.module_complaints("zcrawl/a.py", '"""Doc."""\nx = 1\n') == []
    assert rules.package_complaints("zcrawl/a/__init__.py", '"""Doc."""\nimport b\n')
    assert rules.package_complaints("zcrawl/a/__init__.py", '"""Doc."""\n') == []


def test_long_files_and_functions_are_listed() -> None:
    """501 lines, or a function of 61, are worth a look; 500 and 60 are not."""
    assert rules.long_parts("zcrawl/a.py", '"""Doc."""\n' + "x = 1\n" * 500)
    assert rules.long_parts("zcrawl/a.py", "def f():\n" + "    x = 1\n" * 60)
    assert (
        rules.long_parts("zcrawl/a.py", "def f():\n" + "    x = 1\n" * 59 + "y = 2\n" * 440) == []
    )


@pytest.mark.parametrize("module", ["time", "asyncio", "trio"])
def test_a_sleeping_test_is_caught(module: str) -> None:
    """Sleeping is for tests of real processes only."""
    source = f"import {module}\n\n{module}.sleep (1)\n"
    assert rules.testfile_complaints("tests/unit/test_x.py", source)
    assert rules.testfile_complaints("tests/integration/test_x.py", source) == []


def test_a_test_without_a_docstring_is_caught() -> None:
    """Both plain and async tests need one; other functions do not."""
    assert rules.testfile_complaints("tests/unit/test_x.py", "def test_a():\n    pass\n")
    assert rules.testfile_complaints("tests/unit/test_x.py", "async def test_a():\n    pass\n")
    assert rules.testfile_complaints("tests/unit/test_x.py", "def make():\n    pass\n") == []


@pytest.mark.parametrize(
    "source",
    [
        "with pytest.raises(Exception):\n    f()\n",
        "with pytest.raises(BaseException, match='x') as caught:\n    f()\n",
        "monkeypatch.setitem(sys.modules, 'x', module)\n",
        "sys.modules['x'] = module\n",
    ],
)
def test_a_test_that_accepts_any_error_or_replaces_a_module_is_caught(source: str) -> None:
    """Both hide that the product has changed: another error, a name that is gone."""
    assert rules.testfile_complaints("tests/unit/test_x.py", source)
    narrow = "with pytest.raises(UsageError):\n    monkeypatch.setattr(module, 'name', f)\n"
    assert rules.testfile_complaints("tests/unit/test_x.py", narrow) == []


def test_a_machine_path_and_a_registry_are_caught() -> None:
    """A home folder or a registry's host in any text file is a complaint; URLs are not."""
    assert rules.text_complaints("README.md", f"see {FOLDER}/y")
    assert rules.text_complaints("Makefile", f"pip -i https://{rules.REGISTRIES[0]}/simple")
    assert rules.text_complaints("README.md", f"https://host.test{FOLDER}/y") == []


@pytest.mark.parametrize(
    "source",
    [
        "import re\nx = re.compile(text)\n",
        "import re\nx = re.search(spec.include, url)\n",
        "import re\nx = re.compile(f'a{text}')\n",
        "import re\nx = re.compile('a' + text)\n",
        "import re\nx = re.compile(pattern=text)\n",
        "import re\nbuild = re.compile\n",
        "from zcrawl.text.patterns import lazy_pattern\nx = lazy_pattern(text)\n",
        "import re as r\n",
        "from re import compile\n",
        "import re2\n",
        "import fnmatch\n",
        "import jmespath\nx = jmespath.search(text, 1)\n",
    ],
)
def test_an_expression_from_elsewhere_is_caught(source: str) -> None:
    """Whichever way a pattern that is not in the source reaches an engine without limits."""
    assert rules.expression_complaints("zcrawl/frontier/x.py", source)


@pytest.mark.parametrize(
    "source",
    [
        "import re\nx = re.compile(r'[a-z]+', re.I)\n",
        "from zcrawl.text.patterns import lazy_pattern\nx = lazy_pattern(r'[a-z]+')\n",
        "import re\nA = 'a|b'\nx = re.compile(rf'({A})x{{{n:d}}}')\n",
        "import re\ndef f(m: re.Match[str]) -> None: ...\n",
    ],
)
def test_a_pattern_that_is_written_in_the_source_is_fine(source: str) -> None:
    """Literals, the module's own literals, and whole numbers."""
    assert rules.expression_complaints("zcrawl/frontier/x.py", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "print(title)",
        "import click\nclick.echo(title)",
        "import sys\nsys.stdout.write(title)",
        "import sys\nsys.stdout.buffer.write(item)",
        "import traceback\ntraceback.print_exc()",
    ],
)
def test_a_way_to_the_terminal_beside_the_rule_is_caught(source: str) -> None:
    """Each of them shows foreign text as it came."""
    assert rules.printing_complaints("zcrawl/cli/jobs.py", source)
    assert not rules.printing_complaints("zcrawl/cli/output.py", source)


@pytest.mark.parametrize(
    "source",
    [
        'REASON = "robots_unavailable"',
        'def verdict(url):\n    return "out_of_scope_host"',
        'x = frozenset({"quarantined"})',
        'raise RefusedError("no", code="never_heard_of")',
        'raise fetch_error("connect", "refused")',
        'raise fetch_error("connect" if reached else "proxy", "x")',
        'class E(Exception):\n    code = "new_code"',
        'code = "job"',
        'code = "new_code" if full else other',
        'reason, detail = "new_reason", text',
        'if error.code == "browser":\n    pass',
        'if result.reason in ("start", "x"):\n    pass',
        'if report["reason"] == "start":\n    pass',
        'attempt.skipped("robots")',
        'attempt.failed("new_reason", None)',
        'attempt.handed_over(link, "new_reason")',
        'Why("pace", "x")',
        'data = {"code": "forbidden_thing", "message": text}',
        'reason = f"duplicate of {url}"',
        'x = f"schema: {field}"',
        'x = "http_404"',
        'from zcrawl.model.reasons.failure import DNS, TLS\nx = {DNS, TLS, "connect"}',
        'from zcrawl.model.reasons.failure import DNS, TLS\nx = {DNS: 1, TLS: 2, "connect": 3}',
    ],
)
def test_a_reason_that_is_written_out_is_caught(source: str) -> None:
    """Registered codes anywhere; new codes and ordinary words where only a reason can stand."""
    assert reason_rules.reason_complaints("zcrawl/worker/x.py", source)
    assert reason_rules.reason_complaints("console/x.py", source)
    assert reason_rules.reason_complaints("zcrawl/model/reasons/skip.py", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "from zcrawl.model.reasons.failure import DNS\nraise fetch_error(DNS, text)",
        'if fetch.engine == "browser":\n    pass',
        'view = {"job": 1, "skipped": 2}',
        'effects.append(Note("bad_result", text))',
        'self._tell("consul_away", reason)',
        'reason = "no answer within 5 s"',
        'code = ""',
        "raise RefusedError(text, code=error.code)",
    ],
)
def test_what_only_looks_like_a_reason_is_fine(source: str) -> None:
    """Members of the registry, keys, names of log events, sentences."""
    assert reason_rules.reason_complaints("zcrawl/worker/x.py", source) == []


def test_a_result_that_is_made_outside_of_the_attempt_is_caught() -> None:
    """By its name or as a changed copy; other packages read and test results, and may make them."""
    assert rules.result_complaints("zcrawl/worker/x.py", "def end():\n    return Result(seq=1)")
    assert rules.result_complaints("zcrawl/worker/pipeline/x.py", "x = messages.Result(seq=1)")
    assert rules.result_complaints("zcrawl/worker/x.py", "x = structs.replace(result, items=[])")
    assert rules.result_complaints("zcrawl/worker/x.py", "x = replace(entry.result, items=[])")
    assert rules.result_complaints(rules.ATTEMPT, "x = Result(seq=1)\ny = Result(seq=2)")
    assert rules.result_complaints(rules.ATTEMPT, "x = Result(seq=1)") == []
    assert rules.result_complaints("zcrawl/worker/x.py", "def end(of: Result) -> Result: ...") == []
    assert rules.result_complaints("zcrawl/testing/x.py", "x = Result(seq=1)") == []


STATE_FIELDS = {
    "LeaderState": {"epoch": "", "withheld": "dict", "promised": "dict", "frontier": ""},
    "RunTally": {"postponed": "str"},
    "HostState": {"parts": "dict", "runs": "list", "due_at": "float", "pace": "Pace", "clan": ""},
    "Part": {"held": "int"},
}


@pytest.mark.parametrize(
    "line",
    [
        "state.epoch = 1",
        "self._state.epoch += 1",
        "self.leader.state.epoch = 1",
        "a, state.epoch = 1, 2",
        "state.withheld[seq] = None",
        "del state.withheld[seq]",
        "state.withheld |= rows",
        "state.withheld.pop(seq, None)",
        "state.promised.setdefault(name, {})[seq] = 1",
        "rows = state.promised.get(name, {})\n    rows.pop(seq)",
        "setattr(state, name, 1)",
        "state.tallies[run].postponed = text",
        "host.due_at = 1.0",
        "host.pace.next_at = 1.0",
        "host.pace.take(now)",
        "host.runs.append(host.runs[0])",
        "other = self._hosts[id]\n    other.due_at = 1.0",
        "other = self.hosts.get(id)\n    other.runs.remove(run)",
        "for other in self.hosts.values():\n        other.due_at = 1.0",
        "part.held -= 1",
        "host.parts[name].held = 0",
        "for name, one in list(host.parts.items()):\n        one.held = 0",
        "if (one := host.parts.get(name)) is not None:\n        one.held += 1",
        "x = [other.runs.pop() for other in self.hosts.values()]",
    ],
)
def test_a_write_to_state_that_another_module_owns_is_caught(line: str) -> None:
    """By the usual names, through tables and loops, and through a local name of a container."""
    source = f"def f(self):\n    {line}\n"
    assert owner_rules.owner_complaints("zcrawl/master/x.py", source, STATE_FIELDS)


def test_a_write_is_caught_by_an_annotation_in_any_folder() -> None:
    """Other folders use the names for other things, so that there only the type counts."""
    source = "def f(one: HostState, host: HostRow):\n    one.due_at = 1.0\n    host.due_at = 1.0\n"
    (complaint,) = owner_rules.owner_complaints("zcrawl/store/x.py", source, STATE_FIELDS)
    assert "one.due_at" in complaint


@pytest.mark.parametrize(
    "line",
    [
        "rows = dict(state.withheld)\n    rows.pop(seq)",
        "x = state.withheld.get(seq)",
        "state.frontier.remove(run, host, seq)",  # a component with methods of its own
        "state.frontier.pop(lane)",
        "host.clan.owner = name",  # a clan is shared by hosts
        "part.lease_left()",
        "host.schedule(moment)",
        "worker.runs.pop(run)",
    ],
)
def test_reading_state_and_calling_its_methods_is_fine(line: str) -> None:
    """Also writing a copy, and calling a component that only has a method of such a name."""
    source = f"def f(self):\n    {line}\n"
    assert owner_rules.owner_complaints("zcrawl/master/x.py", source, STATE_FIELDS) == []


def test_the_owner_of_a_state_writes_it() -> None:
    """Each only its own: the module of the leader's state does not write hosts."""
    source = "def f(state, host):\n    state.epoch = 1\n    host.due_at = 1.0\n"
    path = owner_rules.OWNERS["LeaderState"].path
    (complaint,) = owner_rules.owner_complaints(path, source, STATE_FIELDS)
    assert "host.due_at" in complaint
