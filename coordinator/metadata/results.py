"""The result of a command, with an error for the whole command and for each item.

Errors are Kafka's codes, and a message is a sentence for the user of the request.
"""

from dataclasses import dataclass, replace
from itertools import chain

from ...replication.peer.codec import decode_message, encode_message
from ...runtime.steps import Steps
from ...wire.errors import ErrorCode, KafkaError

ITEMS_AT_ONCE_MAX = 32  # a result with more of them is encoded in a step of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The result for one topic, partition, or config resource of a command.

    Only the fields that concern the command are set. After AlterPartition the fields from `leader`
    on describe the current partition, even after a refusal. `min_insync_replicas` is the
    effective value at that time.
    """

    name: str = ""
    partition: int = -1
    error: int = ErrorCode.NONE
    message: str | None = None
    resource_type: int = 0
    topic_id: bytes = b""
    partition_count: int = -1
    replication_factor: int = -1
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    min_insync_replicas: int = -1

    def refused(self, error: KafkaError) -> "Item":
        """Return this item with an error code and message."""
        return replace(self, error=error.code, message=str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a command.

    index: the log index of the command. A node that has applied this index sees the effect.
    broker_epoch: the result of RegisterBroker. If the registration was refused as stale,
    broker_epoch is the epoch of the current registration (-1 without one). first_producer_id,
    producer_id_count: the block of AllocateProducerIds.
    """

    error: int = ErrorCode.NONE
    message: str | None = None
    items: tuple[Item, ...] = ()
    index: int = -1
    broker_epoch: int = -1
    first_producer_id: int = -1
    producer_id_count: int = 0


def encode_result(result: Result) -> bytes:
    """Encode a result for a peer or a snapshot."""
    return encode_message(result)


def encoding_of(result: Result) -> Steps[bytes]:
    """Encode a result. Yield once before a long result is encoded."""
    if len(result.items) > ITEMS_AT_ONCE_MAX:
        yield
    return encode_result(result)


def decode_result(data: bytes) -> Result:
    """Decode a result, or raise MalformedPeerMessage."""
    return decode_message(Result, data)


def merge_results(results: list[Result]) -> Result:
    """Return the result of a command that was split, with all items in order."""
    first_error = next((result for result in results if result.error), results[0])
    return replace(
        first_error,
        items=tuple(chain.from_iterable(result.items for result in results)),
        index=max(result.index for result in results),
    )
