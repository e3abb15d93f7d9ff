"""Rules that compare an application's requests with the configuration of brokers and topics."""

from .rule import FindingRule, Tell
from .seen import (
    SeenCluster,
    SeenEndTxn,
    SeenOffsetCommit,
    SeenProduce,
    SeenRecords,
    SeenTopic,
    SeenTxnOffsetCommit,
    Sighting,
)


class ReadUncommitted(FindingRule):
    """The rule that a consumer must not read transactional batches with read_uncommitted.

    A finding needs an instance that uses the batches, because it writes or commits offsets. Input
    without transactions gives no finding.
    """

    def __init__(self) -> None:
        self._dirty = dict[tuple[str, str], SeenRecords]()  # instance, topic
        self._workers = set[str]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenRecords):
            topic = seen.partition[0]
            if seen.is_transactional and not seen.is_read_committed and not topic.startswith("__"):
                self._dirty.setdefault((seen.instance, topic), seen)
        elif isinstance(seen, (SeenProduce, SeenOffsetCommit, SeenTxnOffsetCommit)):
            self._workers.add(seen.instance)
        else:
            return
        if seen.instance in self._workers:
            for (instance, topic), read in self._dirty.items():
                if instance == seen.instance:
                    text = (
                        f"Fetch of {topic} with isolation level 0, and batches of transactions in "
                        f"its answer ({topic}/{read.partition[1]})"
                    )
                    tell("read-uncommitted", read, topic, text)


TRANSACTIONS_V2_FROM = 5  # version of EndTxn (KIP-890)


class LateRequests(FindingRule):
    """The rule that EndTxn has version 5 or later on brokers without a fence for late requests."""

    def __init__(self) -> None:
        self._has_fence: bool | None = None
        self._v1: SeenEndTxn | None = None

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenCluster):
            self._has_fence = seen.has_connection_fence
        elif isinstance(seen, SeenEndTxn) and seen.version < TRANSACTIONS_V2_FROM:
            self._v1 = seen
        else:
            return
        if self._has_fence is False and self._v1 is not None:
            text = f"{self._v1.transactional_id}: EndTxn in version {self._v1.version}"
            tell("v1-late-requests", self._v1, self._v1.transactional_id, text)


class MinInsync(FindingRule):
    """The rule that a topic that the application writes has min.insync.replicas of at least two."""

    def __init__(self) -> None:
        self._topics = dict[str, SeenTopic]()
        self._written = set[str]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenTopic):
            self._topics[seen.topic] = seen
            names = {seen.topic}
        elif isinstance(seen, SeenProduce):
            names = {batch.partition[0] for batch in seen.batches}
            self._written |= names
        else:
            return
        for name in names & self._written:
            known = self._topics.get(name)
            if known is not None and known.min_insync_replicas < 2:
                text = f"{name}: min.insync.replicas=1, {known.replication_factor} replicas"
                tell("min-insync-1", seen, name, text)
