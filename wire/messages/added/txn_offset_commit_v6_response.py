# Made by tests/wire/added_schemas.py from TxnOffsetCommitResponse.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i32Timedelta

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition(Flexible):
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic(Flexible):
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse(Flexible):
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    topics: tuple[TxnOffsetCommitResponseTopic, ...]
