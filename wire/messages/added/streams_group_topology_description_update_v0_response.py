# Made by tests/wire/added_schemas.py from StreamsGroupTopologyDescriptionUpdateResponse.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupTopologyDescriptionUpdateResponse(Flexible):
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)
