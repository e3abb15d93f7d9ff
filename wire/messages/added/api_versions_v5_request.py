# Made by tests/wire/added_schemas.py from ApiVersionsRequest.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field

from kio.static.primitive import i32

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest(Flexible):
    client_software_name: str = field(metadata={"kafka_type": "string"})
    client_software_version: str = field(metadata={"kafka_type": "string"})
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    node_id: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
