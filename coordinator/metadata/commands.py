"""The commands of the metadata group, as values and as bytes of the Raft log.

A command has only the request. Its consequences (placement, elections, epochs) are computed where
it is applied. Values that differ between nodes, such as new ids, are part of the command, and the
clock is not used.

Bytes: msgpack [type, operation_id, fields]. The fields are a list in the order of the class. Fields
with a default may be missing at the end, so that fields can be added. A new field is declared with
OMIT_DEFAULT, because nodes of older releases also read the log. Types and orders never change,
because they are stored in journals.
"""

from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

import msgpack

from ...replication.peer.codec import OMIT_DEFAULT, decode_message, encode_message
from ...runtime.sliced_work import Steps
from ...wire.errors import InvalidRequest, PolicyViolation
from ...wire.identifiers import TopicPartition
from ..acls.bindings import AclBinding
from ..quotas.quota_table import QuotaChange
from ..security.scram_changes import ScramChange

COMMAND_BYTES_MAX = 60_000
# The limit of one command, which is encoded and decoded with its result in about 2 ms each.
ITEMS_MAX = 256
BYTES_AT_ONCE_MAX = 500  # a longer command is decoded in a step of its own
NO_OPERATION = b""
_AN_ID = bytes(16)
PREFERRED, UNCLEAN = 0, 1  # election types of KIP-460
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4  # Kafka's ConfigResource types
CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3  # operations of KIP-339


class MalformedCommand(InvalidRequest):
    """The error of bytes that are not a command."""


@dataclass(frozen=True, slots=True)
class SetClusterId:
    """Set the cluster id, once, and the defaults that the rules need (see SetDefaults)."""

    cluster_id: str
    defaults: dict[str, str]


@dataclass(frozen=True, slots=True)
class SetDefaults:
    """Set the static broker configuration that apply uses, so that all nodes decide equally.

    These are min.insync.replicas, unclean.leader.election.enable, num.partitions,
    default.replication.factor, and oncelog.clock if the cluster has a controlled clock.
    """

    defaults: dict[str, str]


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """Register a started broker process.

    incarnation: 16 random bytes, new in each process. expected_broker_epoch: the epoch of the
    registration to replace, or -1 without one, so that a late command of a dead process replaces
    nothing. In old journals it is None, and any registration is replaced. boot_id, directory_id,
    endpoints: see BrokerRegistration.
    """

    node_id: int
    incarnation: bytes
    boot_id: str
    host: str
    port: int
    rack: str | None = None
    cluster_id: str = ""
    expected_broker_epoch: int | None = None
    directory_id: bytes = b""
    endpoints: tuple[tuple[str, str, int, int], ...] = field(default=(), metadata=OMIT_DEFAULT)


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """Unfence a broker that serves and has applied the metadata up to its registration."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """Fence a broker that is dead, or has completed its controlled shutdown."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BeginControlledShutdown:
    """Begin a broker's controlled shutdown. It loses its leaderships and leaves every ISR."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 stands for the cluster's default.

    assignments: (partition index, replicas), instead of a count and a replication factor.
    """

    name: str
    topic_id: bytes
    partition_count: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create topics, each with its own result."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicReference:
    """A topic by name or by id, of which exactly one is given."""

    name: str | None = None
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """The command that deletes topics. Each topic has its own result."""

    topics: tuple[TopicReference, ...]


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic to extend to total_count partitions. The assignments are for the new partitions."""

    name: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """The command that adds partitions to topics. Each topic has its own result."""

    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigOperation:
    """One change of one config. APPEND and SUBTRACT on an unset list start from `list_default`."""

    key: str
    operation: int
    value: str | None = None
    list_default: str = ""


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """Changes of one resource's configs. With `replaces_all` all other configs are removed."""

    resource_type: int
    name: str
    operations: tuple[ConfigOperation, ...]
    replaces_all: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Change configs of topics, brokers and others (KIP-339), validated before the proposal."""

    resources: tuple[ResourceConfigs, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The ISR that a leader proposes, based on the epochs that the leader knows.

    isr: pairs (node id, broker epoch). The broker epoch is that of the fetches that the leader has
    counted, or -1 for a member that has not fetched from this leader yet.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """Change ISRs by compare-and-set, as their leader proposes (KIP-497, 841, 903)."""

    node_id: int
    broker_epoch: int
    changes: tuple[IsrProposal, ...]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect the preferred leader, or any live one. None stands for all partitions (KIP-460)."""

    election_type: int
    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The requested replicas of a partition. None cancels the ongoing reassignment."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignments:
    """Start, change, or cancel reassignments (KIP-455)."""

    partitions: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class FailReplicas:
    """Move the leaderships of these partitions away from a broker with a failed disk.

    partitions: pairs (topic id, partition index). The broker stays alive. After its restart it
    recovers the replicas.
    """

    node_id: int
    broker_epoch: int
    partitions: tuple[tuple[bytes, int], ...]


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Allocate a block of producer ids for one broker."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """Make all data written until at_ms, a real time, older by by_ms."""

    at_ms: int
    by_ms: int


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """Add ACLs. Existing ones stay (KIP-140)."""

    acls: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Remove ACLs. Missing ones are ignored."""

    acls: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class AlterScramCredentials:
    """Set or remove credentials of users (KIP-554).

    The changes of one user succeed or fail independently of other users.
    """

    changes: tuple[ScramChange, ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Set or remove quotas of entities (KIP-546)."""

    changes: tuple[QuotaChange, ...]


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The requested level of a feature, with Kafka's `upgrade_type` (see `features`)."""

    name: str
    level: int
    upgrade_type: int


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Set all of these feature levels or none (KIP-584). `controller_id` is for error messages."""

    updates: tuple[FeatureUpdate, ...]
    controller_id: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Unregister a broker that has stopped (KIP-631)."""

    node_id: int


# The position here is the number of a type, which never changes, so only append.
Command = (
    SetClusterId
    | SetDefaults
    | RegisterBroker
    | UnfenceBroker
    | FenceBroker
    | BeginControlledShutdown
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | AlterPartition
    | ElectLeaders
    | AlterPartitionReassignments
    | AllocateProducerIds
    | FailReplicas
    | AdvanceClock
    | CreateAcls
    | DeleteAcls
    | AlterScramCredentials
    | AlterClientQuotas
    | UpdateFeatures
    | UnregisterBroker
)
KINDS: dict[int, type[Command]] = dict(enumerate(get_args(Command), 1))
_KIND_OF = {cls: kind for kind, cls in KINDS.items()}
# Long commands that can be split into items, each with its own result.
_ITEMS_OF: dict[type[Command], str] = {
    CreateTopics: "topics",
    DeleteTopics: "topics",
    CreatePartitions: "topics",
    AlterConfigs: "resources",
    AlterPartition: "changes",
    ElectLeaders: "partitions",
    FailReplicas: "partitions",
    AlterPartitionReassignments: "partitions",
    CreateAcls: "acls",
    DeleteAcls: "acls",
    AlterScramCredentials: "changes",
    AlterClientQuotas: "changes",
}


def encode_command(command: Command, operation_id: bytes = NO_OPERATION) -> bytes:
    """Encode a command for the log.

    operation_id (16 bytes, or empty) makes a second proposal of the same operation answer with the
    first result. Raises PolicyViolation above COMMAND_BYTES_MAX.
    """
    data = _encode(command, operation_id)
    if len(data) > COMMAND_BYTES_MAX:
        raise PolicyViolation(
            f"This {type(command).__name__} takes {len(data)} bytes in the metadata log, where "
            f"one decision may take {COMMAND_BYTES_MAX}: ask for less at a time, or let the "
            f"cluster place the replicas."
        )
    return data


def decode_command(data: bytes) -> tuple[Command, bytes]:
    """Decode a command and its operation id, or raise MalformedCommand."""
    try:
        kind, operation_id, fields = msgpack.unpackb(data, use_list=False)
        if type(kind) is not int or type(operation_id) is not bytes or type(fields) is not bytes:
            raise MalformedCommand("a command is a kind, an operation id, and fields")
        return decode_message(KINDS[kind], fields), operation_id
    except MalformedCommand:
        raise
    except (InvalidRequest, ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise MalformedCommand(f"not a command of the metadata log: {error}") from error


def is_encoded(data: bytes, kind: type[Command]) -> bool:
    """Return whether bytes that have not been decoded yet are a command of this type."""
    return data[1:2] == bytes([_KIND_OF[kind]])  # after the byte of the list


def decoding_of(data: bytes) -> Steps[tuple[Command, bytes]]:
    """Decode a command. Yield once before a long command is decoded."""
    if len(data) > BYTES_AT_ONCE_MAX:
        yield
    return decode_command(data)


def has_items(command: Command) -> bool:
    """Return False if the command has a list of changes and the list is empty."""
    name = _ITEMS_OF.get(type(command))
    return name is None or getattr(command, name) != ()


def split_command(command: Command) -> Steps[list[Command]]:
    """Return the command, or several short commands with the same effect.

    Raises PolicyViolation if a single item is too long.
    """
    name = _ITEMS_OF.get(type(command), "")
    items = getattr(command, name, None) or ()
    if len(items) <= ITEMS_MAX:
        return _split(command, name)
    parts: list[Command] = []
    for start in range(0, len(items), ITEMS_MAX):
        some = items[start : start + ITEMS_MAX]
        parts += _split(replace(cast(Any, command), **{name: some}), name)
        yield
    return parts


def _split(command: Command, name: str) -> list[Command]:
    if len(_encode(command, _AN_ID)) <= COMMAND_BYTES_MAX:
        return [command]
    items = getattr(command, name, ())
    if len(items) < 2:
        encode_command(command, _AN_ID)  # raises an error, because it is too long
    half = len(items) // 2
    return [
        part
        for some in (items[:half], items[half:])
        for part in _split(replace(cast(Any, command), **{name: some}), name)
    ]


def _encode(command: Command, operation_id: bytes) -> bytes:
    return msgpack.packb([_KIND_OF[type(command)], operation_id, encode_message(command)])
