"""The composition of a broker's transaction coordinator, with its Raft groups.

The coordinator has T shards. Shard s is Raft group s + 1 on the node's only Raft engine. Group 0 is
the cluster's metadata. The leaderships are distributed: the preferred leader of shard s is the
voter at position s mod n in the order of the node ids. A node that is fenced or shuts down is not
preferred, since otherwise it would get back the leaderships that it hands over.

T is fixed for the cluster's life, because an id would have two coordinators if nodes disagreed.
Shard 0 stores the number, so that every node learns it. A node also stores it in a file, and does
not open its journal with another number.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...coordinator.metadata.cluster_model import Changes
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.metadata.commands import ElectLeaders
from ...coordinator.raft.engine import RaftEngine
from ...coordinator.raft.group import RaftGroup
from ...coordinator.transactions.settings import TransactionSettings
from ...coordinator.transactions.shard import TransactionShard
from ...replication.peer.transport import PeerTransport
from ...runtime.fault_point import FaultPoint
from ...storage.checkpoint import write_atomically
from ...storage.corrupt_file import CorruptFile
from ...wire.features import TRANSACTION_VERSION
from ..config.broker_config import BrokerConfig
from .leader_ports import LeaderPorts
from .marker_sender import MarkerSender
from .marker_writer import MarkerWriter
from .service import TransactionCoordinators
from .shard_timeouts import ShardCountMismatch, ShardLeaders
from .verifier import TransactionVerifier

if TYPE_CHECKING:
    from ..services import BrokerServices

FIRST_RAFT_GROUP = 1
SHARD_COUNT_FILE = "transaction-shard-count"
PRODUCER_ID_TIMEOUT_MS = 1_000
BARRIER_TIMEOUT_MS = 5_000


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """Return the settings of the transaction coordinator from the broker's configuration."""
    return TransactionSettings(
        shard_count=config.transaction_state_log_num_partitions,
        timeout_max_ms=config.transaction_max_timeout_ms,
        timeout_scan_interval_ms=config.transaction_abort_timed_out_cleanup_interval_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        id_scan_interval_ms=config.transaction_remove_expired_cleanup_interval_ms,
        two_phase_commit_enabled=config.transaction_two_phase_commit_enable,
        hold_ms=config.transaction_hold_ms,
        ids_max=config.transactional_ids_max,
        open_max=config.transactions_open_max,
        partitions_max=config.transaction_partitions_max,
        has_connection_fence=config.transaction_connection_fence,
        stale_request_ms=config.transaction_stale_request_ms,
    )


class Transactions:
    """The transaction parts of one broker. Create it before the Raft engine starts."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        engine: RaftEngine,
        transport: PeerTransport,
        state: ClusterState,
        fault_point: FaultPoint,
    ) -> None:
        self._config = config
        self._engine = engine
        self._transport = transport
        self._state = state
        self._fault_point = fault_point
        self._shards = [
            TransactionShard() for _ in range(config.transaction_state_log_num_partitions)
        ]
        self._raft_groups: Sequence[RaftGroup] = [
            engine.add_group(
                FIRST_RAFT_GROUP + number, shard, preferred_leader=self._preferred(number)
            )
            for number, shard in enumerate(self._shards)
        ]
        state.on_change(self._cluster_changed)

    def check_shard_count(self) -> None:
        """Compare the number of shards with the stored one, before the journal is opened.

        Raises ShardCountMismatch, and CorruptFile if the file has no number.
        """
        path = self._shard_count_file
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        if not content.strip().isdigit():
            remedy = f"Write into it how many shards the cluster has; {len(self._shards)} are set"
            raise CorruptFile(path, f"it says {content[:20]!r}", remedy)
        known = int(content)
        if known != len(self._shards):
            raise ShardCountMismatch(len(self._shards), known)

    def serve(self, services: "BrokerServices", markers: MarkerWriter) -> None:
        """Create the broker's coordinators and its verifier."""

        async def next_producer_id() -> int:
            return await services.controller.next_producer_id(
                services.broker_epoch, timeout_ms=PRODUCER_ID_TIMEOUT_MS
            )

        async def catch_up() -> None:
            # This elects nothing. When the command is applied, this node has all earlier decisions.
            barrier = ElectLeaders(election_type=0, partitions=())
            await services.controller.submit(barrier, timeout_ms=BARRIER_TIMEOUT_MS)

        settings = transaction_settings(self._config)
        node_id = self._config.node_id
        sender = MarkerSender(
            node_id=node_id,
            links=self._transport,
            write_here=markers.write_txn_markers,
            leadership_of=self._leadership_of,
            catch_up=catch_up,
            work=services.replicas.work,
        )
        self.leaders = ShardLeaders(
            node_id=node_id,
            shards=self._shards,
            raft_groups=self._raft_groups,
            settings=settings,
            ports=LeaderPorts(
                wall_ms=services.clock.wall_ms,
                advanced_since_ms=services.clock.advanced_since_ms,
                next_producer_id=next_producer_id,
                markers=sender,
                fault_point=self._fault_point,
                events=services.events,
                work=services.replicas.work,
                serves_v2=lambda: self._state.feature_level(TRANSACTION_VERSION) > 0,
            ),
            connection_ids=services.connection_ids,
        )
        self.coordinators = TransactionCoordinators(self.leaders, self._transport)
        self.verifier = TransactionVerifier(
            node_id=node_id,
            coordinators=self.coordinators,
            links=self._transport,
            hold_ms=settings.hold_ms,
        )
        services.transactions = self.coordinators
        services.verifier = self.verifier

    async def start(self) -> None:
        """Wait until the cluster confirms the number of shards, store it, and start the timers.

        Raises ShardCountMismatch.
        """
        await self.leaders.confirm_shard_count()
        write_atomically(self._shard_count_file, b"%d\n" % len(self._shards))
        for raft_group in self._raft_groups:
            # Only the leaders use the commits of these groups.
            raft_group.sends_commits_at_once = False
        self.leaders.start()

    async def hand_over(self) -> None:
        """Hand over each shard that this node leads to another node that can lead it."""
        await asyncio.gather(
            *(self._engine.hand_over(raft_group) for raft_group in self._raft_groups)
        )

    async def stop(self) -> None:
        await self.verifier.stop()
        await self.coordinators.stop()

    # -- inside

    @property
    def _shard_count_file(self) -> Path:
        return self._config.log_directory / SHARD_COUNT_FILE

    def _preferred(self, number: int) -> int:
        voters = self._config.voter_ids
        return voters[number % len(voters)]

    def _cluster_changed(self, _changes: Changes) -> None:
        for number, raft_group in enumerate(self._raft_groups):
            preferred = self._preferred(number)
            raft_group.preferred_leader = preferred if self._state.is_active(preferred) else None

    def _leadership_of(self, topic: str, index: int) -> tuple[int, int] | None:
        partition = self._state.partition(topic, index)
        return None if partition is None else (partition.leader, partition.leader_epoch)
