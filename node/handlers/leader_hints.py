"""The new leader in an answer with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH (KIP-951)."""

from ..listener.dispatch import RequestContext


class LeaderHints:
    """The leaders named in one answer, with their endpoints."""

    __slots__ = ("_listener", "_nodes", "_state")

    def __init__(self, context: RequestContext) -> None:
        self._state = context.broker.state
        self._listener = context.listener
        self._nodes: dict[int, None] = {}

    def leader_of(self, topic: str, index: int) -> tuple[int, int] | None:
        """Return the leader's (node id, leader epoch), or None without a leader."""
        partition = self._state.partition(topic, index)
        if partition is None or partition.leader < 0:
            return None
        self._nodes[partition.leader] = None
        return partition.leader, partition.leader_epoch

    @property
    def endpoints(self) -> list[tuple[int, str, int, str | None]]:
        """Return node id, host, port and rack of the named leaders, on the client's listener."""
        brokers = (self._state.brokers[node] for node in self._nodes if node in self._state.brokers)
        return [
            (broker.node_id, *endpoint, broker.rack)
            for broker in brokers
            if (endpoint := broker.endpoint(self._listener)) is not None
        ]
