"""A node without a master: an embedded cluster that keeps to its share of the resources.

Wiring only. The list of nodes comes from `node_list_source`, `standalone.node_watch` decides who
lives, `standalone.shares` tells the leader what is this node's. Its worker processes start when
there is work for the first time, so that an idle node is small.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec

from zcrawl.config import Config
from zcrawl.errors import ConfigError, RefusedError
from zcrawl.mesh.sockets.beats import ZmqBeats
from zcrawl.model.log_event import CONFIG_NEEDS_RESTART, Note
from zcrawl.model.reasons.cluster import NAME_EXISTS
from zcrawl.ownership import Assigner
from zcrawl.roles import cluster as cluster_keys
from zcrawl.roles.consul_nodes import ConsulNodes
from zcrawl.roles.embedded import EmbeddedCluster
from zcrawl.roles.node_list_source import NODES, NodeListSource, node_id, read_at_start
from zcrawl.runtime import clock
from zcrawl.runtime.notify import Notify
from zcrawl.runtime.supervisor import new_incarnation
from zcrawl.standalone.node_watch import (
    BEAT_S,
    BeatHeard,
    ListFailed,
    ListRead,
    NodeEvent,
    NodeWatch,
    TimePassed,
    UseNodes,
)
from zcrawl.standalone.shares import Shares
from zcrawl.telemetry.logs.files import EventLog

PULSE_S: Final = 0.25  # a changed file is noticed after two of these at the latest
DRAIN_TIMEOUT_S: Final = 30.0


class StandaloneJob(msgspec.Struct, frozen=True):
    """A job file: the arguments of its submission."""

    name: str
    submission: dict[str, Any]
    rate: float = 0.0  # of the file; 0: unlimited
    shared: bool = False  # it has a list of resources: several nodes may fetch from one host


class StandaloneNode:
    def __init__(
        self, config: Config, environ: Mapping[str, str], log: EventLog, notify: Notify
    ) -> None:
        """Read the list; raise ConfigError with the name of what is wrong with it."""
        self._environ = environ
        self.id, nodes, self._source = read_at_start(config, self._environ)
        self._log = log
        self._notify = notify
        self._config = config
        self._beats: ZmqBeats | None = None
        self._beat_at = 0.0
        self._divided: dict[int, int] = {}  # run → nodes that share its rate
        in_consul = self._source.is_consul
        self._watch = NodeWatch(self.id, nodes, clock.now(), only_living=in_consul)
        by_url = config.standalone.resources == "urls"
        self.shares = Shares(Assigner(self.id, nodes.ids), by_url=by_url)
        self.shares.view = self._watch.view()
        self._consul: ConsulNodes | None = None
        if in_consul:
            self._consul = ConsulNodes(
                config,
                self.id,
                log,
                on_list=lambda nodes: self._handle(ListRead(nodes)),
                on_sure=self._be_sure_until,
            )

    async def run(
        self, cluster: EmbeddedCluster, jobs: Sequence[StandaloneJob], stop: asyncio.Event
    ) -> None:
        """Work until `stop` is set; then finish the requests in flight."""
        async with contextlib.AsyncExitStack() as stack:
            if self._consul is not None:
                stack.push_async_callback(self._consul.close)
                await self._wait_for_list(self._consul, stop)
            if not stop.is_set():
                await self._work(cluster, jobs, stop, stack)
        if self._consul is not None and self._consul.failure is not None:
            raise self._consul.failure

    async def _wait_for_list(self, consul: ConsulNodes, stop: asyncio.Event) -> None:
        """Register, and wait for the list. While Consul is away this node waits: it cannot know
        its share."""
        await consul.start(stop)
        self._notify.ready(f"{self.id}: waiting for the list of nodes from Consul")
        while not (consul.settled.is_set() or stop.is_set()):
            self._notify.alive()
            with contextlib.suppress(TimeoutError):  # time to look again
                await asyncio.wait_for(stop.wait(), PULSE_S)

    async def _work(
        self,
        cluster: EmbeddedCluster,
        jobs: Sequence[StandaloneJob],
        stop: asyncio.Event,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        nodes = self._watch.nodes
        if nodes.has_addresses and self.id in nodes.addresses:
            keys = cluster_keys.master_keys(self._config)
            self._beats = stack.enter_context(
                ZmqBeats(
                    self.id,
                    new_incarnation(),
                    nodes.addresses[self.id],
                    self._log,
                    keys=keys,
                    insecure=self._config.mesh.insecure,
                )
            )
            self._beats.listen(lambda node, text: self._handle(BeatHeard(node, text)))
            self._beats.follow(nodes.addresses)
        await stack.enter_async_context(cluster)
        self._tell(
            "standalone",
            f"{self.id} of {len(nodes.ids)} nodes, fingerprint {nodes.fingerprint}",
        )
        for job in jobs:
            await self._submit(cluster, job)
        await self._divide_rates(cluster, jobs)
        self._notify.ready(self.id)
        while not stop.is_set():
            self._poll()
            await self._divide_rates(cluster, jobs)
            self._notify.alive()
            if any(not run.ended and run.state != "paused" for run in cluster.snapshot().runs):
                await cluster.ensure_workers()
            with contextlib.suppress(TimeoutError):  # time to look again
                await asyncio.wait_for(stop.wait(), PULSE_S)
        self._notify.stopping()
        await cluster.drain(DRAIN_TIMEOUT_S)
        await cluster.flush_outputs()
        if self._consul is not None:  # nothing is in flight any more: others may have the share
            await self._consul.close()

    def _be_sure_until(self, moment: float) -> None:
        self.shares.sure_until = moment

    async def _submit(self, cluster: EmbeddedCluster, job: StandaloneJob) -> None:
        """Start a job that this node does not have yet. One that it has continues by itself."""
        try:
            reply = await cluster.ask("submit", job.submission)
        except RefusedError as error:
            if error.code != NAME_EXISTS:
                raise
            again = f"to replace it: zcrawl submit {job.name} --update"
            self._log("job_kept", f"{job.name} is stored already, and continues; {again}")
            return
        self._log("job_submitted", f"{job.name}: run {reply['run']}")

    async def _divide_rates(self, cluster: EmbeddedCluster, jobs: Sequence[StandaloneJob]) -> None:
        """If several nodes fetch from one host, each has a part of its rate: with URLs as
        resources, and in jobs with a list of their own. Also in runs that a schedule began.

        By the listed nodes, not by those that live: a node that cannot be heard may be fetching.
        """
        rates = {job.name: job.rate for job in jobs if job.shared or self.shares.by_url}
        count = len(self._watch.nodes.ids)
        live = [run for run in cluster.snapshot().runs if not run.ended]
        if len(self._divided) > 2 * len(live):
            self._divided = {run.run: self._divided.get(run.run, 0) for run in live}
        for run in live:
            rate = rates.get(run.name)
            if not rate or self._divided.get(run.run) == count:
                continue
            with contextlib.suppress(RefusedError):  # it has ended meanwhile
                await cluster.ask("tune", {"ref": run.name, "run": run.run, "rate": rate / count})
            self._divided[run.run] = count

    def _poll(self) -> None:
        """Look at the list, and at the time."""
        event: NodeEvent = TimePassed()
        try:
            nodes = self._source.poll()
            if nodes is not None:
                event = ListRead(nodes)
        except ConfigError as error:
            event = ListFailed(str(error))
        self._handle(event)
        now = clock.now()
        if self._beats is not None and now >= self._beat_at:
            self._beat_at = now + BEAT_S
            self._beats.publish(self._watch.nodes.fingerprint)

    def reload(self, config: Config) -> None:
        """Read the list again, after SIGHUP. Another id needs a restart."""
        self._notify.reloading()
        try:
            if node_id(config, self._environ) not in ("", self.id):
                raise ConfigError(f"this node is {self.id}; another id needs a restart")
            source = NodeListSource(config, self._environ)
            if source.is_consul != self._source.is_consul:
                raise ConfigError("a change from or to a list in Consul needs a restart")
            event = self._list_of(source)
        except ConfigError as error:
            event = ListFailed(str(error))
        if config.standalone.resources != self._config.standalone.resources:
            self._log(CONFIG_NEEDS_RESTART, "standalone.resources")
        self._handle(event)
        self._notify.ready(self.id)

    def _list_of(self, source: NodeListSource) -> NodeEvent:
        """Return what a new source of the list says. Also one that is wrong now is watched from now
        on; but a list that is not set any more is a mistake, and the old one stays."""
        if source.is_set:
            self._source = source
            return ListRead(source.read())
        if self._source.is_set:
            raise ConfigError(
                f"there is no list of nodes any more; set {NODES}, standalone.nodes or "
                "standalone.nodes_file"
            )
        return TimePassed()

    def _handle(self, event: NodeEvent) -> None:
        for effect in self._watch.handle(event, clock.now()):
            match effect:
                case UseNodes(nodes, alive):
                    self.shares.change(nodes.ids, alive)
                    if self._beats is not None:
                        self._beats.follow(nodes.addresses)
                case Note(name, text):
                    self._tell(name, text)
                case _:
                    assert_never(effect)
        self.shares.view = self._watch.view()

    def _tell(self, name: str, text: str) -> None:
        self._log(name, text)
        self._notify.status(text)
