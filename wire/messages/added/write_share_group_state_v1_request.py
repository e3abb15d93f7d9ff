# Made by tests/wire/added_schemas.py from WriteShareGroupStateRequest.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field
from uuid import UUID

from kio.static.primitive import i8, i16, i32, i64

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBatch(Flexible):
    first_offset: i64 = field(metadata={"kafka_type": "int64"})
    last_offset: i64 = field(metadata={"kafka_type": "int64"})
    delivery_state: i8 = field(metadata={"kafka_type": "int8"})
    delivery_count: i16 = field(metadata={"kafka_type": "int16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData(Flexible):
    partition: i32 = field(metadata={"kafka_type": "int32"})
    state_epoch: i32 = field(metadata={"kafka_type": "int32"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    start_offset: i64 = field(metadata={"kafka_type": "int64"})
    delivery_complete_count: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
    state_batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStateData(Flexible):
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[PartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteShareGroupStateRequest(Flexible):
    group_id: str = field(metadata={"kafka_type": "string"})
    topics: tuple[WriteStateData, ...]
