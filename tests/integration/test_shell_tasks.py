"""Commands of shell jobs as real processes: what they get, how they end, and that nothing of them
survives, whatever they do and whoever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.crawling import (
    alive,
    children,
    command,
    items,
    run_of,
    submission,
    until,
    wait_until,
)
from zcrawl.blobs.folder import FileBlobs
from zcrawl.errors import FetchError, PluginError, RefusedError
from zcrawl.fetch.keyring import JobRights, Keyring
from zcrawl.frontier.extra import START_URL
from zcrawl.mesh.messages import Assignment, RunConfig
from zcrawl.model.spec import JobSpec, ShellTask
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.submit.shell_rights import ShellRights
from zcrawl.worker.extensions import shell
from zcrawl.worker.extensions.shell import ShellTasks
from zcrawl.worker.results.attempt import Attempt
from zcrawl.worker.results.context import RunContext

ANY = JobRights(owner=True, shell=ShellRights(any=True))
SH = "/bin/sh"
TASK = Assignment(1, 1, 1, 1, START_URL, 0, 1, None)
Patterns = dict[str, tuple[str, ...]]
# It ignores SIGTERM, and so does what it starts: a child in its group, one in a session of its own,
# and a daemon that forked twice. Each of them has the marker in its command line.
NASTY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
marker, ready = sys.argv[1], sys.argv[2]
def named():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", marker])
if os.fork() == 0:
    named()
if os.fork() == 0:
    os.setsid()
    named()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        named()
    os._exit(0)
time.sleep(0.2)
open(ready, "w").close()
time.sleep(600)
"""


class Place:
    """What a test of commands needs: a marker, a file that says that a command is ready."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ready = folder / "ready"
        self.marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"
        self.notes: list[tuple[str, str]] = []

    def tasks(
        self,
        task: ShellTask,
        rights: JobRights = ANY,
        environ: dict[str, str] | None = None,
        timeout: float = 0.0,
    ) -> ShellTasks:
        spec = JobSpec("j", kind="shell", shell=task, timeout=timeout)
        context = RunContext(
            RunConfig(1, 1, msgspec.json.encode(spec), []), Keyring(rights, environ or {})
        )
        blobs = FileBlobs(self.folder / "blobs")
        return ShellTasks(context, blobs, [], lambda name, text: self.notes.append((name, text)))

    def nasty(self) -> ShellTask:
        args = ("-c", NASTY, self.marker, str(self.ready))
        return ShellTask(sys.executable, args, timeout=600.0)

    def processes(self) -> list[int]:
        """All living processes with the marker in their command line, but not this one's."""
        pids = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if self.marker.encode() in words and alive(int(entry.name)):
                    pids.append(int(entry.name))
        return pids


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    made = Place(tmp_path)
    yield made
    left = made.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    assert not made.notes


async def run(tasks: ShellTasks, url: str = START_URL, attempt: int = 1) -> dict[str, Any]:
    """The item of the task."""
    assignment = Assignment(1, 1, 1, 1, url, 0, attempt, None)
    try:
        done = await tasks.do(Attempt(assignment), 20.0, time.time)
    finally:
        await tasks.close()
    (data,) = done.items
    item: dict[str, Any] = json.loads(data)
    return item


async def failure(tasks: ShellTasks) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await run(tasks)
    return caught.value


def script(text: str, **more: Any) -> ShellTask:
    return ShellTask(SH, ("-c", text), **more)


# ---------------------------------------------------------------- what a command gets


async def test_a_command_gets_a_clean_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment of three variables, a folder and a session of its own, no input, no files of
    the worker, and no right to get more rights."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws")
    monkeypatch.setenv("ZCRAWL_SECRET_X", "zz")
    inherited = os.open("/", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    look = (
        "import json, os, sys; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd(), "
        "'fds': sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1], 'sid': os.getsid(0) == "
        "os.getpid(), 'input': sys.stdin.read(), 'mode': oct(os.stat('.').st_mode)[-3:], 'privs': "
        "[line for line in open('/proc/self/status') if line.startswith('NoNewPrivs')]}))"
    )
    item = await run(place.tasks(ShellTask(sys.executable, ("-I", "-c", look))))
    os.close(inherited)
    seen = json.loads(item["stdout"])
    assert set(seen["env"]) - {"LC_CTYPE"} == {"PATH", "HOME", "LANG"}
    assert seen["env"]["HOME"] == seen["cwd"]
    assert Path(seen["cwd"]).parent == place.folder / "tmp"
    assert (seen["fds"], seen["sid"], seen["input"], seen["mode"]) == ([0, 1, 2], True, "", "700")
    assert seen["privs"] == ["NoNewPrivs:\t1\n"]
    assert seen["cwd"] not in {str(path) for path in (place.folder / "tmp").iterdir()}
    assert (item["exit_code"], item["attempt"]) == (0, 1)


async def test_a_folder_of_the_job_is_used_and_not_removed(place: Place) -> None:
    """Only the folder that was made for the command is removed."""
    own = place.folder / "own"
    own.mkdir()
    item = await run(place.tasks(script("pwd; touch here; touch $HOME/there", cwd=str(own))))
    assert item["stdout"] == f"{own}\n"
    assert (own / "here").exists()
    assert not any((place.folder / "tmp").iterdir())


async def test_secrets_reach_the_environment_and_nothing_else(place: Place) -> None:
    """Not the command line, and not the item, whatever the command prints: also not the part of it
    that went into a blob."""
    environ = {"ZCRAWL_SECRET_PW": "hunter2hunter2"}
    text = (
        'test $(printf %s "$PW" | wc -c) = 14 || exit 3; echo "$PW" >&2; '
        'tr "\\0" " " < /proc/$$/cmdline; '
        'for n in $(seq 9000); do echo $n "$PW"; done'
    )
    item = await run(place.tasks(script(text, env={"PW": "${PW}"}), environ=environ))
    blob = FileBlobs(place.folder / "blobs").get(item["stdout_blob"])
    assert item["stderr"] == "${PW}\n"
    assert b"\n9000 ${PW}\n" in blob
    assert "hunter2" not in json.dumps(item) + blob.decode()


async def test_a_secret_needs_a_release_for_the_command(place: Place) -> None:
    """On a cluster by [secrets.NAME] commands; a secret for hosts is not one for commands."""
    environ = {"ZCRAWL_SECRET_PW": "hunter2"}
    task = script("exit 0", env={"PW": "${PW}"})
    anything = ShellRights(any=True)
    cases: list[tuple[bool, Patterns, Patterns, str]] = [
        (False, {"PW": ()}, {"PW": ("/bin/sh -c *",)}, ""),
        (False, {}, {}, "secret_not_released"),
        (False, {"PW": ("a.test",)}, {"PW": ("/bin/true",)}, "secret_not_released"),
        (True, {}, {}, ""),
        (True, {"PW": ("a.test",)}, {"PW": ()}, "secret_not_released"),
    ]
    for owner, hosts, commands, code in cases:
        rights = JobRights(owner, (), hosts, anything, commands)
        tasks = place.tasks(task, rights, environ)
        if code:
            error = await failure(tasks)
            assert (error.code, "hunter2" in str(error)) == (code, False)
        else:
            assert (await run(tasks))["exit_code"] == 0


async def test_the_seed_of_a_task_is_an_argument(place: Place) -> None:
    """As one word, whatever is in it: no shell reads it."""
    seed = "http://a.test/x;id%20'$(id)"
    item = await run(place.tasks(ShellTask("/bin/echo", ("-", "${seed}"))), seed)
    assert (item["stdout"], item["seed"]) == (f"- {seed}\n", seed)


async def test_a_worker_runs_only_what_its_own_configuration_allows(place: Place) -> None:
    """Whatever a master accepted: another worker may allow it, so the run is not refused for ever.
    With a seed in its arguments each task is judged."""
    rights = JobRights(shell=ShellRights(allow=("/bin/echo a*",)))
    with pytest.raises(PluginError) as missing:
        place.tasks(ShellTask("/bin/echo", ("b",)), rights)
    assert (missing.value.code, str(missing.value)) == (
        "plugin_missing",
        "permission for /bin/echo",
    )
    with pytest.raises(PluginError):
        place.tasks(ShellTask("/bin/echo", ("a",)), JobRights())
    tasks = place.tasks(ShellTask("/bin/echo", ("${seed}",)), rights)
    assert (await run(tasks, "abc"))["stdout"] == "abc\n"
    tasks = place.tasks(ShellTask("/bin/echo", ("${seed}",)), rights)
    with pytest.raises(FetchError) as refused:
        await run(tasks, "http://b.test/")
    assert refused.value.code == "shell_not_allowed: /bin/echo"


# ---------------------------------------------------------------- how it ends by itself


@pytest.mark.parametrize(
    ("task", "code", "words"),
    [
        (script("echo out; echo bad >&2; exit 3"), "shell_exit", "exit code 3; stderr: bad"),
        (script("kill -SEGV $$"), "shell_exit", "ended by SIGSEGV"),
        (ShellTask("/nowhere/x"), "shell_start", "/nowhere/x: No such file or directory"),
        (ShellTask("/etc/passwd"), "shell_start", "/etc/passwd: Permission denied"),
        (script("true", cwd="/nowhere"), "shell_start", "the folder /nowhere: No such file"),
        (script("sleep 60", timeout=0.5), "shell_timeout", "not done in 0.5 s"),
        (script("while :; do :; done", cpu_time=1.0), "shell_exit", "SIG"),
    ],
)
async def test_a_command_that_fails_is_named(
    place: Place, task: ShellTask, code: str, words: str
) -> None:
    """By its exit, by its limits, or because it cannot be started."""
    error = await failure(place.tasks(task))
    assert error.code == code, error
    assert words in str(error)
    assert not any((place.folder / "tmp").iterdir())


async def test_the_time_of_a_command_is_that_of_the_job(place: Place) -> None:
    """`timeout` of a job replaces shell.timeout."""
    error = await failure(place.tasks(script("sleep 60"), timeout=0.5))
    assert (error.code, "0.5 s" in str(error)) == ("shell_timeout", True)


async def test_a_command_that_eats_memory_meets_its_limit(place: Place) -> None:
    """The worker and the machine do not notice."""
    eat = "data = []\nwhile True: data.append(bytearray(10_000_000))"
    task = ShellTask(sys.executable, ("-c", eat), memory=300_000_000)
    error = await failure(place.tasks(task))
    assert error.code == "shell_exit"
    assert "MemoryError" in str(error)


async def test_a_memory_limit_below_any_program_is_told(place: Place) -> None:
    """The program does not start, and the message is not empty."""
    error = await failure(
        place.tasks(ShellTask(sys.executable, ("-c", "import json"), memory=10_000_000))
    )
    assert error.code in ("shell_start", "shell_exit")


async def test_a_flood_of_output_is_counted_and_cut(place: Place) -> None:
    """Of 100 MB beginning and end are in the item, what max_output keeps is in a blob, and neither
    the worker nor the watching process holds more than that."""
    before = memory_of(os.getpid())
    flood = "head -c 50000000 /dev/zero | tr '\\0' a; head -c 50000000 /dev/zero | tr '\\0' b >&2"
    task = script(flood, max_output=1_000_000)
    item = await run(place.tasks(task))
    assert (item["stdout_bytes"], item["stderr_bytes"]) == (50_000_000, 50_000_000)
    assert (set(item["stdout"]), set(item["stderr_tail"])) == ({"a"}, {"b"})
    assert FileBlobs(place.folder / "blobs").get(item["stdout_blob"]) == b"a" * 1_000_000
    assert len(json.dumps(item)) < 300_000
    assert memory_of(os.getpid()) - before < 40_000_000


def memory_of(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_output_that_is_not_text_is_marked(place: Place) -> None:
    """Nothing fails, and nothing is passed off as text."""
    item = await run(place.tasks(script("printf 'a\\377b'; printf 'ok\\n' >&2")))
    assert (item["stdout"], item["stdout_replaced"]) == ("a\ufffdb", True)
    assert "stderr_replaced" not in item


async def test_a_large_output_without_a_place_is_not_a_reason_to_run_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item says why there is no blob."""
    (place.folder / "blobs").write_text("a file where the folder should be")
    item = await run(place.tasks(script("head -c 200000 /dev/zero | tr '\\0' a")))
    assert item["stdout_error"].startswith("store_unavailable: ")
    assert len(item["stdout_tail"]) > 1_000


async def test_a_failed_command_keeps_its_result(place: Place) -> None:
    """With its end and its output, a large one in a blob, and without secrets. One that was not
    started has none."""
    text = "head -c 200000 /dev/zero | tr '\\0' a; echo no >&2; kill -9 $$"
    error = await failure(place.tasks(script(text)))
    assert error.result is not None
    result = json.loads(error.result)
    assert (result["exit_code"], result["signal"]) == (-9, "SIGKILL")
    assert (result["stderr"], result["stdout_bytes"]) == ("no\n", 200_000)
    assert len(FileBlobs(place.folder / "blobs").get(result["stdout_blob"])) == 200_000
    error = await failure(place.tasks(ShellTask("/bin/none")))
    assert (error.code, error.result) == ("shell_start", None)


# ---------------------------------------------------------------- nothing survives


async def ready(place: Place, tasks: ShellTasks) -> asyncio.Task[Attempt]:
    """The nasty command runs, with all that it starts."""
    running = asyncio.ensure_future(tasks.do(Attempt(TASK), 20.0, time.time))
    await until(lambda: place.ready.exists() or running.done())
    await until(lambda: len(place.processes()) >= 4)
    return running


async def test_a_cancelled_command_is_gone_with_all_it_started(place: Place) -> None:
    """Although all of it ignores SIGTERM, and a part of it is a daemon. Who cancels does not
    wait."""
    tasks = place.tasks(place.nasty())
    running = await ready(place, tasks)
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 1.0
    await until(lambda: not place.processes(), 4.0)
    await tasks.close()
    assert not any((place.folder / "tmp").iterdir())


async def test_a_command_beyond_its_time_is_gone_with_all_it_started(place: Place) -> None:
    """The failure comes when nothing is left."""
    tasks = place.tasks(msgspec.structs.replace(place.nasty(), timeout=2.0))
    error = await failure(tasks)
    assert error.code == "shell_timeout"
    assert not place.processes()


async def test_what_a_command_leaves_behind_ends_with_it(place: Place) -> None:
    """A daemon that outlives its command would outlive its job, too. Its output is not waited
    for."""
    text = f"(setsid sh -c 'sleep 600; : {place.marker}' &) ; echo done"
    began = time.monotonic()
    tasks = place.tasks(script(text))
    done = await tasks.do(Attempt(TASK), 20.0, time.time)
    assert not place.processes(), "already when the task is done"
    assert json.loads(done.items[0])["stdout"] == "done\n"
    assert time.monotonic() - began < 10.0
    await tasks.close()


async def test_a_stopped_command_can_be_ended(place: Place) -> None:
    """SIGTERM waits in a stopped process; SIGKILL does not."""
    task = script(f"kill -STOP $$; : {place.marker}", timeout=0.5)
    assert (await failure(place.tasks(task))).code == "shell_timeout"
    assert not place.processes()


HYDRA = """
import os, sys, time
open(sys.argv[2], "w").close()
until = time.monotonic() + 60
os.setsid()
while time.monotonic() < until:  # each generation lives a moment, in a session of its own
    if os.fork():
        os._exit(0)
    os.setsid()
"""


async def test_a_process_that_runs_away_by_forking_is_caught(place: Place) -> None:
    """When it is looked at, its number is already another one: it is killed as a child."""
    task = ShellTask(
        SH,
        (
            "-c",
            f"{sys.executable} -c '{HYDRA}' {place.marker} {place.ready} & "
            f"while ! test -e {place.ready}; do sleep 0.05; done; exit 0",
        ),
    )
    item = await run(place.tasks(task))
    assert item["exit_code"] == 0
    assert not place.processes()


@pytest.mark.parametrize("who", ["guard", "watcher"])
async def test_nobody_survives_if_a_watching_process_is_killed(place: Place, who: str) -> None:
    """Guard and watcher stand in for each other; the task is tried again by its name."""
    tasks = place.tasks(place.nasty())
    running = await ready(place, tasks)
    (guard,) = [pid for pid in children(os.getpid()) if "shell_child" in words_of(pid)]
    (watcher,) = children(guard)
    os.kill(guard if who == "guard" else watcher, signal.SIGKILL)
    with pytest.raises(FetchError) as died:
        await running
    assert died.value.code == "shell_died"
    await until(lambda: not place.processes(), 2.0)
    await tasks.close()
    await until(lambda: not any((place.folder / "tmp").iterdir()), 5.0)


async def test_a_command_that_kills_its_parent_does_not_get_away(place: Place) -> None:
    """`kill -9 $PPID` kills the watcher, and the guard is left."""
    tasks = place.tasks(script(f"(setsid sleep 600 {place.marker} &); kill -9 $PPID; sleep 600"))
    assert (await failure(tasks)).code == "shell_died"
    await until(lambda: not place.processes(), 2.0)


def words_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


async def test_a_worker_that_leaves_gives_commands_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while, without counting the attempt: another worker starts it anew."""
    monkeypatch.setattr(shell, "LEAVE_S", 0.2)
    tasks = place.tasks(place.nasty())
    running = await ready(place, tasks)
    tasks.leave()
    with pytest.raises(FetchError) as left:
        await running
    assert (left.value.code, left.value.retry.value) == ("shell_left", "postponed")
    assert not place.processes()
    await tasks.close()


WORKER = """
import asyncio, os, sys, time
from pathlib import Path
from tests.integration.test_shell_tasks import Place
from zcrawl.frontier.extra import START_URL
from zcrawl.mesh.messages import Assignment
from zcrawl.runtime.loop import run_async
from zcrawl.worker.results.attempt import Attempt

async def main():
    os.set_inheritable(os.open("/", os.O_RDONLY), True)
    running = []
    for number in (1, 2):
        place = Place(Path(sys.argv[1]))
        place.marker = sys.argv[2]
        place.ready = place.folder / f"ready-{number}"
        attempt = Attempt(Assignment(1, 1, 1, 1, START_URL, 0, 1, None))
        running.append(place.tasks(place.nasty()).do(attempt, 20.0, time.time))
    await asyncio.gather(*running)

run_async(main())
"""


def test_nothing_survives_a_worker_that_is_killed(place: Place) -> None:
    """-9 on a process with the loop of a worker while two commands run: no process of them two
    seconds later. So neither command holds the pipe that tells the other one's watcher."""
    begins = [sys.executable, "-c", WORKER, str(place.folder), place.marker]
    worker = subprocess.Popen(begins, start_new_session=True)
    try:
        both = [place.folder / "ready-1", place.folder / "ready-2"]
        wait_until(lambda: all(path.exists() for path in both))
        commands = [pid for pid in place.processes() if pid != worker.pid]
        assert len(commands) >= 2 * 4
        held = {
            pid: sorted(path.name for path in Path(f"/proc/{pid}/fd").iterdir()) for pid in commands
        }
        assert {tuple(names) for names in held.values()} <= {("0", "1", "2"), ()}
    finally:
        worker.kill()
        killed_at = time.monotonic()
        worker.wait()
    wait_until(lambda: not place.processes(), 2.0)
    assert time.monotonic() - killed_at < 2.0


async def test_a_command_runs_again_after_its_worker_was_killed_until_its_job_is_cancelled(
    place: Place, tmp_path: Path
) -> None:
    """The whole way, with a worker process and its leader: killed, run again elsewhere, cancelled
    by the command of an operator. And what runs when the cluster stops does not outlive it."""
    spec = JobSpec("job", kind="shell", shell=place.nasty())
    async with EmbeddedCluster(tmp_path / "d", 1, rights=ANY) as cluster:
        await cluster.ask("submit", submission(spec, [], None))
        await until(lambda: len(place.processes()) >= 4)
        first = place.processes()
        workers = [pid for pid in children(os.getpid()) if "worker_main" in words_of(pid)]
        os.kill(workers[0], signal.SIGKILL)
        await until(lambda: not any(map(alive, first)), 2.0)
        await until(lambda: len(place.processes()) >= 4)
        await cluster.ask("act", {"ref": "job", "action": "cancel"})
        await until(lambda: not place.processes(), 5.0)
        await cluster.ask("submit", submission(spec, [], None))
        await until(lambda: len(place.processes()) >= 4)
    await until(lambda: not place.processes(), 3.0)


# ---------------------------------------------------------------- by the commands


def configured(folder: Path, text: str, job: str) -> None:
    (folder / "zcrawl.toml").write_text(text)
    (folder / "job.toml").write_text(f'name = "job"\nkind = "shell"\n{job}')


def test_a_shell_job_is_refused_by_name_unless_the_configuration_allows_it(tmp_path: Path) -> None:
    """By `crawl` and by `test`, before anything runs; and a command that no pattern covers."""
    made = tmp_path / "made"
    job = f'[shell]\ncommand = "/usr/bin/touch"\nargs = ["{made}"]\n'
    for text, words in (
        ("", "the configuration allows no commands"),
        ('[worker.shell]\nallow = ["/usr/bin/touch /srv/*"]', "no pattern of worker.shell.allow"),
    ):
        configured(tmp_path, text, job)
        for words_of_command in (("crawl", "--data", "d"), ("test",)):
            name, *flags = words_of_command
            done = command(name, "job.toml", *flags, cwd=tmp_path)
            assert done.returncode == 1, done.stderr
            assert words in done.stderr
            assert "[shell_not_allowed]" in done.stderr
    assert not made.exists()
    configured(tmp_path, f'[worker.shell]\nallow = ["/usr/bin/touch {tmp_path}/*"]', job)
    assert command("test", "job.toml", cwd=tmp_path).returncode == 0
    assert made.exists()


def test_a_shell_job_is_watched_and_exported_like_any_job(tmp_path: Path) -> None:
    """`test` shows the item, `crawl` writes it, `job` counts it and `export` has it; a failure is
    tried again as often as the job says, and named."""
    text = "[worker.shell]\nany = true\n"
    configured(tmp_path, text, '[shell]\ncommand = "/bin/echo"\nargs = ["hello"]\n')
    shown = command("test", "job.toml", cwd=tmp_path)
    assert shown.returncode == 0
    assert "hello" in shown.stdout
    assert "http://spider.invalid" not in shown.stdout
    done = command("crawl", "job.toml", "--data", "d", "--out", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (item,) = items(tmp_path / "out.jsonl")
    assert (item["stdout"], item["exit_code"]) == ("hello\n", 0)
    exported = command("export", "job", "--data", "d", cwd=tmp_path)
    assert json.loads(exported.stdout)["stdout"] == "hello\n"
    failing = '[shell]\ncommand = "/bin/sh"\nargs = ["-c", "echo no >&2; exit 4"]\n'
    configured(tmp_path, text, f"{failing}[fetch]\nretries = 1\n")
    command("crawl", "job.toml", "--data", "e", cwd=tmp_path)
    failed = command("export", "job", "--failed", "--data", "e", cwd=tmp_path)
    row = json.loads(failed.stdout)
    assert (row["reason"], row["attempts"]) == ("shell_exit", 2)
    result = row["result"]
    assert (result["exit_code"], result["stderr"], result["attempt"]) == (4, "no\n", 2)
    assert command("export", "job", "--data", "e", cwd=tmp_path).stdout == ""
    view = command("job", "job", "--data", "e", cwd=tmp_path)
    assert "exit code 4; stderr: no" in view.stdout


async def test_an_embedded_master_refuses_what_its_workers_would_refuse(tmp_path: Path) -> None:
    """It has their configuration, so a submission is refused at once."""
    spec = JobSpec("job", kind="shell", shell=ShellTask("/bin/echo", ("b",)))
    rights = JobRights(owner=True, shell=ShellRights(allow=("/bin/echo a",)))
    async with EmbeddedCluster(tmp_path / "d", 1, rights=rights) as cluster:
        with pytest.raises(RefusedError) as refused:
            await cluster.ask("submit", submission(spec, [], None))
        assert refused.value.code == "shell_not_allowed"
        allowed = msgspec.structs.replace(spec, shell=ShellTask("/bin/echo", ("a",)))
        reply = await cluster.ask("submit", submission(allowed, [], None))
        await until(lambda: run_of(cluster, reply["run"]).get("state") == "completed")
