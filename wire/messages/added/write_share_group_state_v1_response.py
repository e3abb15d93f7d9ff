# Made by tests/wire/added_schemas.py from WriteShareGroupStateResponse.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(85)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStateResult:
    __type__: ClassVar[EntityType] = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(85)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteShareGroupStateResponse:
    __type__: ClassVar[EntityType] = EntityType.response
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(85)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    results: tuple[WriteStateResult, ...]
