"""The values of the cluster's metadata.

All are immutable. A change replaces a value by a new one, so a reader may keep a value and compare
it later.
"""

from dataclasses import dataclass, field, fields
from typing import NamedTuple

from ...wire.identifiers import TopicPartition

NO_LEADER = -1
PLAINTEXT = "PLAINTEXT"  # the listener of a broker without named listeners
TOPIC_ID_BYTES = 16
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One registration of a broker process.

    `broker_epoch` is the log index of the registration, which differs for every incarnation
    (KIP-903). `boot_id` changes when the machine lost power, and with it data that was not synced.
    `directory_id` changes when the data directory was replaced, so that all data is lost.
    Registrations of old journals have both in `boot_id`. A fenced broker leads no partition and is
    in no ISR. `endpoints` are the addresses for clients, with name, host, port, and Kafka's id of
    the security protocol of each listener. Without endpoints, as in old journals, `host` and `port`
    are those of the listener PLAINTEXT.
    """

    node_id: int
    broker_epoch: int
    incarnation: bytes
    boot_id: str
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = True
    is_shutting_down: bool = False
    directory_id: bytes = b""
    endpoints: tuple[tuple[str, str, int, int], ...] = ()

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Return host and port of a listener, or None if the broker has no such listener."""
        for name, host, port in self.advertised:
            if name == listener:
                return host, port
        return None

    @property
    def advertised(self) -> tuple[tuple[str, str, int], ...]:
        """Return name, host and port of each listener that is advertised to clients."""
        return tuple(each[:3] for each in self.endpoints) or ((PLAINTEXT, self.host, self.port),)

    @property
    def is_active(self) -> bool:
        """Return whether the broker may lead and be in an ISR."""
        return not self.is_fenced and not self.is_shutting_down


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """The replicas of a partition, its ISR, and its leader.

    replicas: in order of preference, with the preferred leader first. isr: in-sync replicas, empty
    exactly when there is no leader. elr: eligible leader replicas, which have all committed records
    although they left the ISR (KIP-966). They left an ISR that was too small for further commits.
    last_known_elr: replicas that have since lost power or failed, and would otherwise be in the ISR
    or ELR, the latest first. elr and last_known_elr are empty when the ISR has min.insync.replicas
    members. leader_epoch rises with each leader, each dropped replica, and each replica whose log
    failed, partition_epoch with every change of this value. adding, removing: replicas of an
    ongoing reassignment (KIP-455). last_known_leader: the last leader while there is none.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    last_known_elr: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        """Return whether a reassignment is ongoing."""
        return bool(self.adding or self.removing)

    @property
    def is_imbalanced(self) -> bool:
        """Return whether another replica than the preferred leader leads."""
        return self.leader not in (NO_LEADER, self.replicas[0])


class FeatureLevel(NamedTuple):
    """The level of a feature, and the log index of the command that set it."""

    level: int
    log_index: int


BeforeAndAfter = tuple[PartitionRegistration | None, PartitionRegistration]


@dataclass(slots=True)
class Topic:
    """A topic, with its partitions by index and its own configs as text."""

    name: str
    topic_id: bytes
    partitions: list[PartitionRegistration]
    configs: dict[str, str]

    @property
    def is_internal(self) -> bool:
        """Return whether the topic is internal, such as __consumer_offsets."""
        return self.name in INTERNAL_TOPICS


@dataclass(slots=True)
class Changes:
    """The changes of one command, or of the installation of a snapshot.

    partitions_changed has the old value (None for a new partition) and the new value of partitions,
    without those of created or deleted topics. configs_changed names topics, broker_configs_changed
    single brokers. cluster_configs_changed is set for the configs of the whole cluster, dynamic or
    static.
    """

    topics_created: set[str] = field(default_factory=set[str])
    topics_deleted: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    partitions_changed: dict[TopicPartition, BeforeAndAfter] = field(
        default_factory=dict[TopicPartition, BeforeAndAfter]
    )
    configs_changed: set[str] = field(default_factory=set[str])
    brokers_changed: set[int] = field(default_factory=set[int])
    broker_configs_changed: set[int] = field(default_factory=set[int])
    cluster_configs_changed: bool = False
    others_changed: bool = False  # producer ids, placement, clock, groups, ACLs, quotas, features

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))
