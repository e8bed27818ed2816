"""Two versions of the protocol meet on real sockets: nobody loops in silence, both are named.

The other version runs in a process of its own, where the constant is changed before anything of
the mesh is imported.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.contract.mesh_tools import LOOPBACK, PATIENCE_S, Ear
from zcrawl.errors import RefusedError
from zcrawl.mesh.codec import check_notice, version_notice
from zcrawl.mesh.messages import Beat, Bye, ClientRequest, MessageKind
from zcrawl.mesh.ports import Endpoints
from zcrawl.mesh.sockets.client import ZmqClientMesh, ZmqSubscriber
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh

OTHER = 3
REPOSITORY = Path(__file__).parents[2]
PREAMBLE = f"""
import asyncio, sys
import zcrawl.mesh.messages as messages
messages.PROTOCOL_VERSION = {OTHER}
from tests.contract.mesh_tools import LOOPBACK, Ear
from zcrawl.mesh.messages import *
from zcrawl.mesh.sockets.client import ZmqClientMesh
from zcrawl.mesh.sockets.master import ZmqMasterMesh
from zcrawl.mesh.sockets.worker import ZmqWorkerMesh
from zcrawl.mesh.ports import Endpoints
"""
MASTER = """
async def main():
    ear = Ear()
    with ZmqMasterMesh(LOOPBACK, 1, ear.log) as master:
        master.listen(ear)
        master.publish(1, Beat("m1", 1.0, {}))
        ends = master.endpoints
        print(ends.control, ends.reports, ends.events, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print(*ear.details("version"), sep="|", flush=True)
asyncio.run(main())
"""
WORKER = """
async def main():
    ear, over = Ear(), []
    with ZmqWorkerMesh("w1", 1, ear.log, on_strangers=over.append) as worker:
        worker.connect(Endpoints("m1", *sys.argv[1:4]))
        worker.listen(ear)
        worker.send("m1", 1, Bye("from the other version"))
        await ear.until(lambda: over)
        print(over[0])
asyncio.run(main())
"""
WORKER_PROCESS = """
from zcrawl.roles.worker_main import WorkerSpec, run_worker
ends = Endpoints("m1", *sys.argv[1:4])
spec = WorkerSpec(
    id="w1", incarnation=1, life=1, replaces=0, parent=0, parent_pipe=0, masters=[ends],
    slots=4, task_slots=1,
    log=sys.argv[4] + "/log", blobs=sys.argv[4] + "/blobs",
)
print(asyncio.run(run_worker(spec))[0])
"""
CLIENT = """
async def main():
    ear, over = Ear(), []
    with ZmqClientMesh("c1", 1, [sys.argv[1]], ear.log, on_strangers=over.append) as client:
        client.listen(ear)
        client.send(ClientRequest("r1", "jobs", {}))
        await ear.until(lambda: over)
        print(over[0])
asyncio.run(main())
"""


class Other:
    """A process of the other version; talks over its standard streams."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._command = [sys.executable, "-c", PREAMBLE + script, *arguments]

    async def __aenter__(self) -> Other:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    async def line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(2 * PATIENCE_S):
            return (await self._process.stdout.readline()).decode().strip()

    async def last_line(self) -> str:
        """After the end of its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self.line()


async def test_a_worker_of_another_version_learns_it_and_can_end() -> None:
    """It hears no beat that it understands, so the master says which version it speaks."""
    at_master = Ear()
    with ZmqMasterMesh(LOOPBACK, 1, at_master.log) as master:
        master.listen(at_master)
        ends = master.endpoints
        async with Other(WORKER, ends.control, ends.reports, ends.events) as worker:
            assert await worker.line() == "this worker w1 speaks protocol 3, m1 speaks 2"
            await at_master.until(lambda: at_master.details("version"))
        assert at_master.details("version") == ["this master m1 speaks protocol 2, w1 speaks 3"]
        assert master.counters["version"] >= 1
        assert not at_master.got


async def test_a_worker_process_of_another_version_ends_with_both_versions(tmp_path: Path) -> None:
    """The whole worker: its reason is the text, and its log has it too."""
    ear = Ear()
    with ZmqMasterMesh(LOOPBACK, 1) as master:
        master.listen(ear)
        ends = master.endpoints
        addresses = (ends.control, ends.reports, ends.events)
        async with Other(WORKER_PROCESS, *addresses, str(tmp_path)) as worker:
            text = "this worker w1 speaks protocol 3, m1 speaks 2"
            assert await worker.line() == text
    assert text in (tmp_path / "log").read_text()


async def test_a_worker_at_a_master_of_another_version_learns_it_too() -> None:
    """The other direction: ours is the worker. The master's log names both as well."""
    ear, over = Ear(), list[str]()
    async with Other(MASTER) as master:
        ends = Endpoints("m1", *(await master.line()).split())
        with ZmqWorkerMesh("w1", 1, ear.log, on_strangers=over.append) as worker:
            worker.connect(ends)
            worker.listen(ear)
            worker.send("m1", 1, Bye("x"))
            await ear.until(lambda: over)
            assert over[0] == "this worker w1 speaks protocol 2, m1 speaks 3"
            assert ear.details("version") == over[:1]
        assert await master.last_line() == "this master m1 speaks protocol 3, w1 speaks 2"
    assert not ear.got


async def test_a_client_of_another_version_is_answered_with_both() -> None:
    """Both directions: the request gets an answer, and no later question is waited for."""
    at_master, ear, over = Ear(), Ear(), list[str]()
    with ZmqMasterMesh(LOOPBACK, 1, at_master.log) as ours:
        ours.listen(at_master)
        async with Other(CLIENT, ours.endpoints.control) as client:
            assert await client.line() == "this client c1 speaks protocol 3, m1 speaks 2"
    async with Other(MASTER) as theirs:
        control = (await theirs.line()).split()[0]
        with ZmqClientMesh("c1", 1, [control], ear.log, on_strangers=over.append) as mine:
            mine.listen(ear)
            mine.send(ClientRequest("r1", "jobs", {}))
            await ear.until(lambda: ear.details("version"))
    assert over == ["this client c1 speaks protocol 2, m1 speaks 3"]


async def test_a_command_ends_with_both_versions() -> None:
    """`zcrawl jobs` against a master of another version does not wait for 20 s."""
    from zcrawl.roles.client import MeshClient

    async with Other(MASTER) as theirs:
        control, *_ = (await theirs.line()).split()
        async with MeshClient([control], give_up_s=PATIENCE_S) as client:
            with pytest.raises(RefusedError, match="speaks protocol 2, m1 speaks 3") as caught:
                await client.ask("jobs", {})
    assert caught.value.code == "version"


async def test_one_master_of_another_version_among_others_ends_no_worker() -> None:
    """Masters are upgraded one by one; when the last familiar one leaves, it is over."""
    ear, at_master, over = Ear(), Ear(), list[str]()
    async with Other(MASTER) as theirs:
        foreign = Endpoints("m1", *(await theirs.line()).split())
        with (
            ZmqMasterMesh(Endpoints("m2", *["tcp://127.0.0.1:*"] * 3), 1) as ours,
            ZmqWorkerMesh("w1", 1, ear.log, on_strangers=over.append) as worker,
        ):
            ours.listen(at_master)
            worker.connect(ours.endpoints)
            worker.connect(foreign)
            worker.listen(ear)
            ours.publish(1, Beat("m2", 1.0, {}))
            await ear.until(lambda: ear.details("version") and ear.bodies())
            assert not over
            worker.disconnect("m2")
            assert over == ["this worker w1 speaks protocol 2, m1 speaks 3"]


async def test_a_subscriber_logs_a_master_of_another_version() -> None:
    """A console that shows nothing must say why."""
    ear = Ear()
    async with Other(MASTER) as theirs:
        events = (await theirs.line()).split()[2]
        with ZmqSubscriber("console", [MessageKind.SNAPSHOT], ear.log) as subscriber:
            subscriber.connect("m1", events)
            subscriber.listen(ear)
            await ear.until(lambda: ear.details("version"))
    text = "this subscriber console speaks protocol 2, m1 speaks 3"
    assert ear.details("version") == [text]


def test_a_notice_of_our_own_version_is_no_complaint() -> None:
    """Every subscriber gets a notice; other messages are not taken as notices."""
    assert check_notice(version_notice("m1")) == "m1"
    assert check_notice([b"zcrawl-protocol", b"\xc0"]) is None
    assert check_notice([b"other", b"\x92\x01\xa1m"]) is None
