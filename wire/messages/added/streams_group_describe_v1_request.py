# Made by tests/wire/added_schemas.py from StreamsGroupDescribeRequest.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescribeRequest(Flexible):
    group_ids: tuple[str, ...] = field(metadata={"kafka_type": "string"}, default=())
    include_authorized_operations: bool = field(metadata={"kafka_type": "bool"}, default=False)
    include_topology_description: bool = field(metadata={"kafka_type": "bool"}, default=False)
