"""The messages between a broker and the controller, as bytes (see replication/peer/codec)."""

from dataclasses import dataclass
from enum import IntEnum

from ...replication.messages import PeerMessage
from ..metadata.commands import (
    AdvanceClock,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterPartition,
    AlterPartitionReassignments,
    AlterScramCredentials,
    Command,
    CreateAcls,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    ElectLeaders,
    FailReplicas,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeatures,
)

# The commands that a broker may request, with the message type of each. The controller itself
# issues all other commands.
MESSAGE_OF: dict[type, PeerMessage] = {
    RegisterBroker: PeerMessage.REGISTER_BROKER,
    AlterPartition: PeerMessage.ALTER_PARTITION,
    AllocateProducerIds: PeerMessage.PRODUCER_IDS,
    CreateTopics: PeerMessage.ADMIN,
    DeleteTopics: PeerMessage.ADMIN,
    CreatePartitions: PeerMessage.ADMIN,
    AlterConfigs: PeerMessage.ADMIN,
    ElectLeaders: PeerMessage.ADMIN,
    FailReplicas: PeerMessage.ADMIN,
    AlterPartitionReassignments: PeerMessage.ADMIN,
    AdvanceClock: PeerMessage.ADMIN,
    AlterClientQuotas: PeerMessage.ADMIN,
    CreateAcls: PeerMessage.ADMIN,
    DeleteAcls: PeerMessage.ADMIN,
    AlterScramCredentials: PeerMessage.ADMIN,
    UpdateFeatures: PeerMessage.ADMIN,
    UnregisterBroker: PeerMessage.ADMIN,
}


class ReplyStatus(IntEnum):
    """The status of a controller's reply.

    DONE: the payload is the answer. NOT_LEADER: send the request to leader_id, or wait. RETRY: the
    request had no effect or an unknown outcome, and may be sent again.
    """

    DONE = 0
    NOT_LEADER = 1
    RETRY = 2


@dataclass(frozen=True, slots=True)
class ControllerReply:
    """The envelope of every answer of a controller. `leader_id` is -1 without a known leader."""

    status: int
    payload: bytes = b""
    leader_id: int = -1
    reason: str = ""


def may_ask(kind: int, command: Command) -> bool:
    """Return whether a message of type `kind` may contain this command."""
    return MESSAGE_OF.get(type(command)) == kind
