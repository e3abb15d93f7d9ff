"""The new leader, told with the error that sends a client away (KIP-951)."""

from ...coordinator.metadata.cluster_state import ClusterState


class LeaderHints:
    """Collects the leaders named in one answer, and their endpoints."""

    __slots__ = ("_nodes", "_state")

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._nodes: dict[int, None] = {}

    def leader_of(self, topic: str, index: int) -> tuple[int, int] | None:
        """(node id, leader epoch), or None when nobody leads."""
        partition = self._state.partition(topic, index)
        if partition is None or partition.leader < 0:
            return None
        self._nodes[partition.leader] = None
        return partition.leader, partition.leader_epoch

    @property
    def endpoints(self) -> list[tuple[int, str, int, str | None]]:
        """(node id, host, port, rack) of the leaders named so far."""
        brokers = (self._state.brokers[node] for node in self._nodes if node in self._state.brokers)
        return [(b.node_id, b.host, b.port, b.rack) for b in brokers]
