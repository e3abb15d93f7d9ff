# Made by tests/wire/added_schemas.py from WriteShareGroupStateResponse.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult(Flexible):
    partition: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStateResult(Flexible):
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteShareGroupStateResponse(Flexible):
    results: tuple[WriteStateResult, ...]
