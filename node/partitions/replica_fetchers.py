"""The replica fetchers of one broker, with a `ReplicaFetcher` for each leader."""

from functools import partial

from ...replication.peer.transport import PeerTransport
from ..config.broker_config import BrokerConfig
from .hosted_partition import HostedPartition
from .replica_fetcher import ReplicaFetcher
from .replica_manager import ReplicaManager
from .replication_throttle import ReplicationThrottle


class ReplicaFetchers:
    """The replica fetchers of one broker, by leading broker."""

    def __init__(
        self,
        transport: PeerTransport,
        replicas: ReplicaManager,
        config: BrokerConfig,
        throttle: ReplicationThrottle,
    ) -> None:
        self.broker_epoch = -1
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._fetcher_of: dict[HostedPartition, ReplicaFetcher] = {}
        self._make = partial(ReplicaFetcher, transport, replicas, config, throttle)
        transport.on_peer_change(self._peer_changed)

    def follow(self, partition: HostedPartition) -> None:
        """Fetch a partition from its current leader."""
        leader = partition.leader_id
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._make(leader)
        fetcher.broker_epoch = self.broker_epoch
        self._fetcher_of[partition] = fetcher
        fetcher.follow(partition)

    def stop_following(self, partition: HostedPartition) -> None:
        """Stop fetching a partition if this broker follows it."""
        fetcher = self._fetcher_of.pop(partition, None)
        if fetcher is not None:
            fetcher.stop_following(partition)

    def stop(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.stop()

    def _peer_changed(self, peer: int, is_up: bool) -> None:
        if is_up and peer in self._fetchers:
            self._fetchers[peer].resume()
