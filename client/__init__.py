"""client: our Python client of the Kafka protocol; floor 2, stands on wire only.

What it is: `Producer`, `Consumer` and `Admin`, asyncio first, and `BlockingProducer`,
`BlockingConsumer` and `BlockingAdmin` with the same calls for programs without an event loop;
idempotent by default, transactional in both versions, prepared transactions. What it is not: part
of a broker; the two meet on the wire, so everything here also works against Apache Kafka. Begin
with producer.py; what is decided stands in the cores: producer_state, transaction_scope, reactions,
accumulator, fetch_state, assignors. The names are handed on lazily, since the command line needs
few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .admin import Admin as Admin
    from .blocking import BlockingAdmin as BlockingAdmin
    from .blocking import BlockingConsumer as BlockingConsumer
    from .blocking_producer import BlockingProducer as BlockingProducer
    from .cluster_view import ClusterView as ClusterView
    from .consumer import Consumer as Consumer
    from .delivery import Deliveries as Deliveries
    from .delivery import RecordMetadata as RecordMetadata
    from .delivery import RecordRange as RecordRange
    from .fetch_state import RawBatch as RawBatch
    from .prepared import PreparedTransaction as PreparedTransaction
    from .prepared import complete as complete
    from .producer import Producer as Producer
    from .producer_state import ProducerState as ProducerState
    from .record_columns import RecordColumns as RecordColumns
    from .record_reader import ConsumerRecord as ConsumerRecord
    from .transaction_requests import GroupMetadata as GroupMetadata
    from .transaction_requests import OffsetAndMetadata as OffsetAndMetadata

_WHERE = {
    "Admin": "admin",
    "BlockingAdmin": "blocking",
    "BlockingConsumer": "blocking",
    "BlockingProducer": "blocking_producer",
    "ClusterView": "cluster_view",
    "Consumer": "consumer",
    "ConsumerRecord": "record_reader",
    "Deliveries": "delivery",
    "GroupMetadata": "transaction_requests",
    "OffsetAndMetadata": "transaction_requests",
    "PreparedTransaction": "prepared",
    "Producer": "producer",
    "ProducerState": "producer_state",
    "RawBatch": "fetch_state",
    "RecordColumns": "record_columns",
    "RecordMetadata": "delivery",
    "RecordRange": "delivery",
    "complete": "prepared",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its file when it is first asked for."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
