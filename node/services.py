"""The services of a broker for its handlers, as one value built at the composition root."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..coordinator.acls.authorizer import AclAuthorizer
from ..coordinator.metadata.cluster_state import ClusterState
from ..coordinator.raft.group import RaftGroup
from ..replication.fetch_session_cache import FetchSessionCache
from ..runtime.event_log import EventLog
from ..runtime.rate_limited_log import LimitedLog
from ..runtime.sliced_work import SlicedWork, WorkLine
from .clock import Clock, SystemClock
from .config.broker_config import BrokerConfig
from .connection_ids import ConnectionIds
from .controller.client import ControllerClient
from .controller.metadata_barrier import MetadataBarrier
from .groups.coordinator import GroupCoordinator
from .listener.client_quotas import ClientQuotas
from .listener.large_answers import LargeAnswers
from .listener.large_requests import LargeRequests
from .membership.recently_fenced_brokers import RecentlyFencedBrokers
from .membership.suspected_brokers import SuspectedBrokers
from .partitions.batch_contents import PLACES
from .partitions.refused_batches import RefusedBatches
from .security.access import authorizer_of
from .transactions.connection_fence import ProducerConnectionFence
from .transactions.service import TransactionCoordinators
from .transactions.verifier import TransactionVerifier

if TYPE_CHECKING:
    from .partitions.replica_manager import ReplicaManager
    from .transactions.marker_writer import MarkerWriter

_refusals = logging.getLogger("oncelog.authorizer")


@dataclass(slots=True, kw_only=True)
class BrokerServices:
    """The parts of a broker that its handlers use. `broker_epoch` is -1 until it is registered.

    `work` is the queue of clients' jobs. `replicas.work` is the queue of the broker's own jobs.
    """

    config: BrokerConfig
    state: ClusterState
    controller: ControllerClient
    metadata_group: RaftGroup
    replicas: "ReplicaManager"
    metadata_barrier: MetadataBarrier = field(init=False)
    transactions: TransactionCoordinators = field(init=False)
    verifier: TransactionVerifier = field(init=False)
    clock: Clock = field(default_factory=SystemClock)
    events: EventLog = field(default_factory=EventLog)
    work: WorkLine = field(default_factory=lambda: SlicedWork().clients)
    connection_ids: ConnectionIds = field(default_factory=ConnectionIds)
    large_answers: LargeAnswers = field(default_factory=LargeAnswers)
    large_fetches: LargeRequests = field(default_factory=LargeRequests)
    compared_fetches: LargeRequests = field(default_factory=LargeRequests)
    unfolded: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PLACES))
    refused_batches: RefusedBatches = field(default_factory=RefusedBatches)
    suspected_brokers: SuspectedBrokers = field(default_factory=SuspectedBrokers)
    recently_fenced_brokers: RecentlyFencedBrokers = field(default_factory=RecentlyFencedBrokers)
    # Log lines of the authorizer.
    refusals: LimitedLog = field(default_factory=lambda: LimitedLog(_refusals))
    quotas: ClientQuotas = field(init=False)
    broker_epoch: int = -1
    authorizer: AclAuthorizer | None = field(init=False)  # None if everything is allowed
    groups: GroupCoordinator = field(init=False)
    fetch_sessions: FetchSessionCache = field(init=False)
    markers: "MarkerWriter | None" = None
    connection_fence: ProducerConnectionFence = field(default_factory=ProducerConnectionFence)
    offset_commit_fence: ProducerConnectionFence = field(
        default_factory=ProducerConnectionFence
    )  # for TxnOffsetCommit

    def __post_init__(self) -> None:
        self.quotas = ClientQuotas(
            self.state,
            samples=self.config.quota_window_num,
            window_ms=self.config.quota_window_size_seconds * 1000,
            now_ms=self.clock.monotonic_ms,
        )
        self.authorizer = authorizer_of(self.config, self.state)
        self.fetch_sessions = FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots
        )
        self.groups = GroupCoordinator(
            config=self.config,
            state=self.state,
            replicas=self.replicas,
            clock=self.clock,
            events=self.events,
        )

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def controller_id(self) -> int:
        """The id that Metadata shows as the controller, which is -1 if no live broker is known.

        It is the active controller if that is a live broker, which saves a hop. Otherwise it is the
        live broker with the lowest id, since every broker forwards requests (KIP-590).
        """
        leader = self.metadata_group.leader_id
        if leader is not None and leader in self.state.live_brokers:
            return leader
        return min(self.state.live_brokers, default=-1)
