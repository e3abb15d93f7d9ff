"""The sightings of an application: small facts about its requests, in the order of time.

at_s is monotonic, and instance is the instance of the proxy's address. A record is identified by a
hash of its key (of its value without a key), and by a hash of key and value (`Keyed`). Timeouts are
those that the client requested, before any change by a proxy.
"""

from dataclasses import dataclass

Partition = tuple[str, int]
Offsets = tuple[tuple[Partition, int], ...]
Input = tuple[Partition, int]  # with its offset
Keyed = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A fact about a request. `connection` is the number of its connection in the proxy."""

    at_s: float
    instance: str = ""
    connection: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest(Sighting):
    """A request was sent. Further sightings about the same request follow this one."""

    api: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWait(Sighting):
    """A client waited for an answer, or until a fault released its request.

    Short waits are left out, and so are waits of a Fetch for records and of a JoinGroup for
    members.
    """

    api: str
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOpened(Sighting):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClosed(Sighting):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenInit(Sighting):
    """InitProducerId has succeeded. `transactional_id` is empty for an idempotent producer."""

    transactional_id: str = ""
    producer_id: int
    epoch: int = 0
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBatch:
    """A batch of a Produce. `count` is the number of its records, which may be unknown."""

    partition: Partition
    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    crc: int = 0
    is_transactional: bool = False
    count: int = 0
    records: tuple[Keyed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenProduce(Sighting):
    """A Produce was sent to a broker.

    `number` is the number of the request on its connection.
    """

    number: int = 0
    acks: int = -1
    transactional_id: str = ""
    batches: tuple[SentBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenProduced(Sighting):
    """Batches of a Produce request were answered by a broker or by a fault.

    If the batches have different results, each result is a sighting of its own. partitions: those
    of the batches, or empty for all batches that are left. is_known: the client knows whether the
    batches were written. has_error: they were not written, or not certainly. is_refused: their
    error shows that no broker has written them.
    """

    number: int = 0
    partitions: frozenset[Partition] = frozenset()
    is_known: bool = True
    has_error: bool = False
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFetch(Sighting):
    """A consumer has requested records from these offsets on."""

    positions: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecords(Sighting):
    """A consumer got a batch. `keys` has offset and hash of the key of each record."""

    partition: Partition
    is_transactional: bool = False
    is_read_committed: bool = True
    keys: tuple[tuple[int, int], ...] = ()
    end_offset: int = -1  # after the last record, set even if `keys` is empty


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJoin(Sighting):
    """A member has joined its group, or got a new assignment by a heartbeat (KIP-848)."""

    group: str
    session_ms: int = 45_000
    rebalance_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenHeartbeat(Sighting):
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOffsetFetch(Sighting):
    """An OffsetFetch has succeeded. With `is_stable` it waited for pending commits (KIP-447)."""

    group: str
    is_stable: bool
    offsets: Offsets = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOffsetCommit(Sighting):
    """An OffsetCommit outside of transactions was sent."""

    group: str
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTxnOffsetCommit(Sighting):
    """A TxnOffsetCommit was sent.

    With `is_fenced` it had a generation or member epoch (KIP-447). `number` is the number of the
    request on its connection.
    """

    number: int = 0

    group: str
    transactional_id: str
    is_fenced: bool
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOffsetsRefused(Sighting):
    """A TxnOffsetCommit has failed, and the client has received the error. `error` is its name.

    `number` is the number of the request on its connection.
    """

    number: int = 0

    group: str
    transactional_id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAdd(Sighting):
    """AddPartitionsToTxn or AddOffsetsToTxn was sent, which V2 transactions do not need."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEndTxn(Sighting):
    """An EndTxn was sent."""

    transactional_id: str
    is_commit: bool
    version: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEnded(Sighting):
    """EndTxn has succeeded, and the client has received the answer."""

    transactional_id: str
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEndRefused(Sighting):
    """EndTxn has failed, and the client has received the error."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCluster(Sighting):
    """The configuration of the cluster.

    With `has_connection_fence` the cluster refuses late V1 requests (KAFKA-17754).
    """

    has_connection_fence: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopic(Sighting):
    topic: str
    min_insync_replicas: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVerdict(Sighting):
    """The outputs were judged.

    is_sink: a database, not a topic, was judged. lost_inputs: the inputs without all their outputs.
    inputs, outputs: the topics. is_open: inputs are pending, or aborted ones have outputs.
    """

    doubled: int = 0
    lost: int = 0
    lost_inputs: frozenset[Input] = frozenset()
    wrong_finals: int = 0
    is_sink: bool = False
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    is_open: bool = False

    @property
    def is_wrong(self) -> bool:
        """Return whether outputs are doubled, lost or have wrong values."""
        return bool(self.doubled or self.lost or self.wrong_finals)
