# Made by tests/wire/added_schemas.py from WriteShareGroupStateRequest.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kio.schema.request_header.v2.header import RequestHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBatch:
    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(85)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    first_offset: i64 = field(metadata={"kafka_type": "int64"})
    last_offset: i64 = field(metadata={"kafka_type": "int64"})
    delivery_state: i8 = field(metadata={"kafka_type": "int8"})
    delivery_count: i16 = field(metadata={"kafka_type": "int16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(85)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    partition: i32 = field(metadata={"kafka_type": "int32"})
    state_epoch: i32 = field(metadata={"kafka_type": "int32"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    start_offset: i64 = field(metadata={"kafka_type": "int64"})
    delivery_complete_count: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
    state_batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStateData:
    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(85)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[PartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteShareGroupStateRequest:
    __type__: ClassVar[EntityType] = EntityType.request
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(85)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    group_id: str = field(metadata={"kafka_type": "string"})
    topics: tuple[WriteStateData, ...]
