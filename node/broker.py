"""The composition root builds all parts of one broker, starts them, and stops them in reverse.

The steps of a start, in order:

  directory      The data directory is locked, after a check that it belongs to this node.
  Raft           The metadata is loaded, and this node votes before it accepts clients.
  registration   The controller registers this process in place of the node's previous process.
                 The step ends when this node has applied the registration, and with it all
                 earlier metadata changes about the previous process.
  logs           The logs that are assigned to this broker are opened in a thread.
  roles          Each replica leads, follows, or waits for a leader, as the metadata says.
  votes          This node votes in all Raft groups. From now on the cluster tolerates the loss of
                 another node.
  listener       The listeners accept clients.
  heartbeats     Heartbeats unfence the broker. Only now may the controller elect it as a leader.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ..coordinator.controller.controller import ControllerSettings
from ..coordinator.metadata.cluster_state import ClusterState
from ..coordinator.metadata.commands import Command
from ..coordinator.metadata.results import Result
from ..coordinator.raft.engine import RaftEngine
from ..replication.messages import PeerMessage
from ..replication.peer.link_gate import LinkGate
from ..runtime.event_log import EventLog
from ..runtime.fault_point import FaultPoint, no_fault_point
from ..runtime.sliced_work import SlicedWork, Steps
from ..storage.directory.log_directory import LogDirectory
from ..storage.topic_configs import parse_topic_configs
from .admin_socket import AdminSocket
from .clock import ClusterClock
from .cluster_id import new_cluster_id
from .config.broker_config import BrokerConfig
from .config.dynamic import config_validators, topic_defaults_in_force
from .controlled_clock import ControlledClock
from .controller.client import ControllerClient
from .controller.metadata_barrier import MetadataBarrier
from .controller.metadata_events import MetadataEvents
from .controller.service import ControllerService
from .environment import Surroundings
from .groups.removal import OffsetExpiry, forget_deleted_topics
from .handlers.api_table import prepare_codecs, served_apis
from .listener.dispatch import Dispatcher
from .listener.protection import Protection
from .listener.server import KafkaServer
from .loop_watchdog import LoopWatchdog
from .membership.isolated_leader import IsolatedLeader
from .membership.liveness import INCARNATION_BYTES, Liveness
from .metrics.figures import Figures, FigureSources, taking, traffic_in_short
from .metrics.server import MetricsPage
from .partitions.follower_service import FollowerService
from .partitions.isr_proposer import IsrProposer
from .partitions.log_compaction import LogCompaction
from .partitions.log_maintenance import LogMaintenance
from .partitions.logs import Logs
from .partitions.replica_fetchers import ReplicaFetchers
from .partitions.replica_manager import ReplicaManager
from .partitions.replication_throttle import ReplicationThrottle
from .partitions.roles import PartitionRoles
from .partitions.storage_failures import StorageFailures
from .services import BrokerServices
from .transactions.coordinator_side import Transactions
from .transactions.partition_side import PartitionTransactions

logger = logging.getLogger(__name__)
METADATA_GROUP = 0
PEER_MESSAGE_BYTES_MARGIN = 16 * 1024 * 1024
CONTROLLED_SHUTDOWN_S = 5.0
VOTER_TIMEOUT_S = 5.0


class Broker:
    """One broker process.

    The broker calls `fault_point` with the name of a step before and after each step that may fail.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        fault_point: FaultPoint = no_fault_point,
        gate: LinkGate | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.config = config
        self._outside = surroundings or Surroundings()
        self.state = ClusterState(listener_failed=self._listener_failed)
        self._fault_point = fault_point
        self._gate = gate or LinkGate()
        self._clock = ClusterClock(self._outside.clock, self.state)
        self._work = SlicedWork(self._outside.slice_clock)
        self.events = EventLog()
        self._metrics_page: MetricsPage | None = None
        self.watchdog = LoopWatchdog()  # starts to watch when the process starts it
        self._failure: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start the broker, and return when the broker serves clients.

        Raises an error with the reason if the broker cannot start.
        """
        config, loop = self.config, asyncio.get_running_loop()
        self._failure = loop.create_future()
        protection = Protection.of(config, self.state, self._outside.random_bytes)
        codecs = loop.run_in_executor(None, prepare_codecs)
        self._journal_executor = self._outside.executor(1, "raft-journal")
        self._raft_executor = self._outside.executor(3, "raft-files")
        self._log_executor = self._outside.executor(1, "logs")
        self._directory_executor = self._outside.executor(1, "directories")
        self.directory = LogDirectory(
            config.log_directory,
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            boot_id=self._outside.boot_id(),
            new_directory_id=self._outside.random_bytes(16),
            fault_point=self._fault_point,
        )
        self.transport = self._outside.links(
            config.node_id,
            Path(config.peer_directory),
            config.voter_ids,
            max_message_bytes=config.socket_request_max_bytes
            + config.replica_fetch_response_max_bytes  # since a whole fetch response is one message
            + PEER_MESSAGE_BYTES_MARGIN,
            gate=self._gate,
        )
        self._build_controller(loop)
        self._build_replicas()
        await self.transport.start()
        self._transactions.check_shard_count()
        await self.engine.start()
        self._service.start()
        self.liveness = Liveness(
            config,
            self._controller,
            self.metadata_group,
            self.state,
            boot_id=self.directory.meta.boot_id,
            directory_id=self.directory.meta.directory_id,
            incarnation=self._outside.random_bytes(INCARNATION_BYTES),
        )
        request_log = logging.getLogger("oncelog.requests")
        self.server = KafkaServer(
            Dispatcher(served_apis(request_log), request_log),
            self.services,
            logging.getLogger("oncelog.server"),
            listen=self._outside.listen,
            protection=protection,
        )
        await codecs
        broker_epoch = await self.liveness.register(config.first_advertised.bind.port)
        self._start_replicas(broker_epoch)
        await self._roles.start(broker_epoch)
        await self._transactions.start()
        await self.liveness.until_voter(self.engine.groups.values(), VOTER_TIMEOUT_S)
        await self.server.start(config.endpoints)
        looks = (
            self._transactions.leaders.look,
            self._expiry.look,
            self._partition_transactions.expire_producers,
            self._maintenance.apply_retention,
        )
        self._controlled_clock = ControlledClock(self.services, looks)
        self._admin = AdminSocket(
            Path(config.peer_directory) / f"admin-{config.node_id}",
            self._gate,
            self._metrics,
            {
                "clock": self._controlled_clock.clock,
                "advance-clock": self._controlled_clock.advance,
            },
            node_id=config.node_id,
            events=self.events,
        )
        await self._admin.start()
        await self._start_metrics()
        self._isolated_leader = IsolatedLeader(
            self.replicas, session_timeout_ms=config.broker_session_timeout_ms
        )
        self._isolated_leader.start()
        self.liveness.start(self._isolated_leader.on_heartbeat_answered)
        await self.liveness.until_unfenced()
        port = self.server.port
        words = f"node {config.node_id} serves on port {port} with broker epoch {broker_epoch}"
        self.events.tell(
            "node",
            f"node {config.node_id}",
            "started",
            words,
            node=config.node_id,
            pid=os.getpid(),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, or raise the fatal error that ends the broker."""
        assert self._failure is not None
        stopping = asyncio.ensure_future(stop.wait())
        watched = {stopping, self._failure, self.liveness.replaced}
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for future in done - {stopping}:
            future.result()  # raises the error of a failed task

    async def stop(self) -> None:
        """Hand over leaderships, answer the requests in flight, and close the logs cleanly.

        Leaderships are handed over with `controlled.shutdown.enable` and more than one voter.
        """
        if self.config.controlled_shutdown_enable and len(self.config.voter_ids) > 1:
            handed_over = await self.liveness.shut_down(CONTROLLED_SHUTDOWN_S)
            words = "has ended" if handed_over else "has timed out"
            self.events.tell(
                "node",
                f"node {self.config.node_id}",
                "shut down",
                f"node {self.config.node_id}: the controlled shutdown {words}",
                node=self.config.node_id,
            )
            await self._transactions.hand_over()
        if self._metrics_page is not None:
            await self._metrics_page.stop()
        await self._admin.stop()
        await self._controlled_clock.stop()
        await self._expiry.stop()
        self.services.groups.stop()
        self.replicas.awaited.close()
        await self.server.stop()
        await self.liveness.stop()
        self._isolated_leader.stop()
        await self._isr_proposer.stop()
        await self._storage_failures.stop()
        await self._transactions.stop()
        await self._partition_transactions.stop()
        if self._compaction is not None:
            await self._compaction.stop()
        await self._maintenance.stop()
        self._fetchers.stop()
        self._followers.stop()
        await self._roles.stop()
        await self._service.stop()
        await self.services.metadata_barrier.stop()
        self._controller.close()
        await self.engine.stop()
        await self.transport.stop()
        self._work.close()
        threads = self._log_executor, self.replicas.flusher.executor, self._directory_executor
        await self._logs.close(*threads, broker_epoch=self.liveness.broker_epoch)
        first = self._journal_executor, self._raft_executor, self._log_executor
        for executor in (*first, self._directory_executor):
            executor.shutdown()
        self.replicas.flusher.stop()

    # -- parts

    def _build_controller(self, loop: asyncio.AbstractEventLoop) -> None:
        config, transport = self.config, self.transport
        self.engine = RaftEngine(
            node_id=config.node_id,
            voters=config.voter_ids,
            directory=config.log_directory / "raft",
            send=lambda peer, frame: transport.send(peer, PeerMessage.RAFT, frame),
            loop=loop,
            executor=self._journal_executor,
            files_executor=self._raft_executor,
            work=self._work,
            settings=self._outside.raft,
            random=self._outside.rng,
            fault_point=self._fault_point,
            on_fatal=self._outside.on_fatal,
        )
        self.metadata_group = self.engine.add_group(METADATA_GROUP, self.state)
        MetadataEvents(config.node_id, self.state, self.metadata_group, self.events, self._work)
        self._transactions = Transactions(
            config,
            engine=self.engine,
            transport=transport,
            state=self.state,
            fault_point=self._fault_point,
        )
        transport.on_message(PeerMessage.RAFT, self.engine.receive)
        transport.on_peer_change(self._peer_changed)
        self._service = ControllerService(
            node_id=config.node_id,
            state=self.state,
            raft_group=self.metadata_group,
            links=transport,
            settings=ControllerSettings(
                cluster_id=config.cluster_id or new_cluster_id(self._outside.random_bytes),
                defaults=config.cluster_defaults,
                session_timeout_ms=config.broker_session_timeout_ms,
                rebalances_leaders=config.auto_leader_rebalance_enable,
                rebalance_interval_ms=config.leader_imbalance_check_interval_seconds * 1000,
            ),
            now_ms=self._clock.monotonic_ms,
            work=self._work,
            fault_point=self._fault_point,
        )
        self._controller = ControllerClient(
            node_id=config.node_id,
            state=self.state,
            raft_group=self.metadata_group,
            links=transport,
            service=self._service,
            now_ms=self._clock.monotonic_ms,
            work=self._work,
            validators=config_validators(config, self._judge_topic_configs),
            random_bytes=self._outside.random_bytes,
        )

    def _build_replicas(self) -> None:
        config = self.config
        self.replicas = ReplicaManager(
            clock=self._clock,
            partition_exists=lambda topic, index: self.state.partition(topic, index) is not None,
            fault_point=self._fault_point,
            work=self._work,
        )
        self.replicas.flusher.start(self._outside.executor)
        self._logs = Logs(self.directory, config, self.state, self._clock, self._fault_point)
        self.replicas.cleaner = self._logs.cleaner
        throttles = partial(
            ReplicationThrottle, self.state, config, now_ms=self._clock.monotonic_ms
        )
        self._leader_throttle = throttles("leader")
        self._fetchers = ReplicaFetchers(
            self.transport, self.replicas, config, throttles("follower")
        )
        self._roles = PartitionRoles(
            node_id=config.node_id,
            state=self.state,
            replicas=self.replicas,
            logs=self._logs,
            fetchers=self._fetchers,
            lag_time_max_ms=config.replica_lag_time_max_ms,
            executor=self._directory_executor,
        )
        self.services = BrokerServices(
            config=config,
            state=self.state,
            controller=self._controller,
            metadata_group=self.metadata_group,
            replicas=self.replicas,
            clock=self._clock,
            events=self.events,
            work=self._work.clients,
        )
        self.services.metadata_barrier = MetadataBarrier(self._controller, self.transport)
        self._partition_transactions = PartitionTransactions(
            self.services, self.transport, self._fault_point
        )
        self._transactions.serve(self.services, self._partition_transactions.markers)
        self.state.on_change(self._roles.apply)
        self.services.suspected_brokers.watch(self.transport, self.state)
        self.services.recently_fenced_brokers.watch(self.state)

    def _start_replicas(self, broker_epoch: int) -> None:
        config = self.config
        self.services.broker_epoch = broker_epoch
        self._fetchers.broker_epoch = broker_epoch
        self._followers = FollowerService(
            self.transport,
            self.replicas,
            broker_epoch=broker_epoch,
            response_bytes_max=config.replica_fetch_response_max_bytes,
            throttle=self._leader_throttle,
        )
        self.services.groups.start()
        self._expiry = OffsetExpiry(
            self.services.groups,
            retention_ms=config.offsets_retention_minutes * 60_000,
            interval_ms=config.offsets_retention_check_interval_ms,
        )
        self.state.on_change(partial(forget_deleted_topics, self.services.groups))
        self._storage_failures = StorageFailures(
            self._propose, node_id=config.node_id, broker_epoch=broker_epoch
        )
        self.replicas.failed_logs = self._storage_failures
        self._isr_proposer = IsrProposer(
            self.replicas,
            self._propose,
            node_id=config.node_id,
            broker_epoch=broker_epoch,
            tick_ms=max(50, config.replica_lag_time_max_ms // 2),
            fault_point=self._fault_point,
        )
        self._maintenance = LogMaintenance(
            self.replicas, self.directory, config, self._log_executor, self._directory_executor
        )
        self._compaction = None
        if config.log_cleaner_enable:
            self._compaction = LogCompaction(
                self.directory,
                self._logs.cleaner,
                self._clock,
                self._log_executor,
                self._maintenance.recovery_points,
                self._maintenance.cleaned_offsets,
                self._work,
                backoff_ms=config.log_cleaner_backoff_ms,
            )
        self._partition_transactions.start()

    async def _start_metrics(self) -> None:
        """Start the metrics page if it is configured, or raise an error with the reason."""
        if not self.config.metrics_port:
            return
        sources = FigureSources(
            services=self.services,
            engine=self.engine,
            transport=self.transport,
            server=self.server,
            watchdog=self.watchdog,
        )

        def figures() -> Steps[Figures]:
            return taking(sources, self._partition_transactions.metrics()["transactions_hanging"])

        executor = self._outside.executor(1, "metrics")
        page = MetricsPage(self.config.metrics_port, figures, self._work.clients, executor)
        self._metrics_page = page
        await page.start()

    def _metrics(self) -> dict[str, object]:
        return {
            "node_id": self.config.node_id,
            "pid": os.getpid(),
            "peer_bytes_sent": sum(self.transport.bytes_sent.values()),
            "peer_messages_sent": self.transport.messages_sent,
            "peer_bytes_received": sum(self.transport.bytes_received.values()),
            "client_connections": self.server.connection_count,
            "partitions": len(self.replicas),
            "partitions_led": sum(1 for p in self.replicas if p.leader is not None),
            **self._logs.metrics(),
            "disk": self.replicas.disk.words,
            "unserved": self.server.unserved.sentences,
            **self._partition_transactions.metrics(),
            "loop": self.watchdog.metrics(),
            "traffic": traffic_in_short(self.replicas.traffic, self.server.times),
        }

    async def _propose(self, command: Command) -> Result:
        return await self._controller.submit(command, timeout_ms=self.config.request_timeout_ms)

    def _judge_topic_configs(self, configs: Mapping[str, str]) -> None:
        defaults = topic_defaults_in_force(self.config, self.state.broker_configs)
        parse_topic_configs({**defaults, **configs})

    def _peer_changed(self, peer: int, is_up: bool) -> None:
        (self.engine.peer_up if is_up else self.engine.peer_down)(peer)

    def _listener_failed(self, error: Exception) -> None:
        """End the broker after an error in a listener of metadata changes.

        A broker that misses a change might lead a partition by mistake.
        """
        self.fail("this node cannot follow the cluster's metadata", error)

    def fail(self, what: str, error: Exception) -> None:
        """Log the message `what` and a fatal error, which `run` raises to end the broker.

        The next start recovers the logs.
        """
        logger.critical("%s", what, exc_info=error)
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
