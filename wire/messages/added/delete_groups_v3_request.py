# Made by tests/wire/added_schemas.py from DeleteGroupsRequest.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest(Flexible):
    groups_names: tuple[str, ...] = field(metadata={"kafka_type": "string"}, default=())
