# Made by tests/wire/added_schemas.py from UnregisterControllerRequest.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field

from kio.static.primitive import i32

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRequest(Flexible):
    controller_id: i32 = field(metadata={"kafka_type": "int32"})
