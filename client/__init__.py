"""The Python client of the Kafka protocol, which uses only `wire` of this package.

`Producer`, `Consumer` and `Admin` are asynchronous. `BlockingProducer`, `BlockingConsumer` and
`BlockingAdmin` have the same methods for programs without an event loop. A producer is idempotent
by default, and supports transactions of both versions, and prepared transactions. `DualWriter`
writes to Kafka and a database in one transaction. The client shares no code with the brokers above
`wire`, so it also works with Apache Kafka.

Begin with producer.py. The modules that decide, without I/O, are transactions.producer_state,
transactions.scope, transactions.reactions, produce.accumulator, fetch.state, groups.assignors and
dual_write.protocol. A public name is imported at its first use, because the command line needs few
names.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Log records go only to programs that configure logging; the others read exceptions.
logging.getLogger(__name__).addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from .admin import Admin as Admin
    from .blocking import BlockingAdmin as BlockingAdmin
    from .blocking import BlockingConsumer as BlockingConsumer
    from .blocking_producer import BlockingProducer as BlockingProducer
    from .cluster_view import ClusterView as ClusterView
    from .consumer import Consumer as Consumer
    from .dual_write.blocking_writer import BlockingDualWriter as BlockingDualWriter
    from .dual_write.check_back_service import CheckBack as CheckBack
    from .dual_write.check_back_task import BlockingCheckBack as BlockingCheckBack
    from .dual_write.check_back_task import CheckBackTask as CheckBackTask
    from .dual_write.http_resolver import HttpResolver as HttpResolver
    from .dual_write.resolvers import DatabaseResolver as DatabaseResolver
    from .dual_write.stop_words import DecisionInDoubt as DecisionInDoubt
    from .dual_write.stop_words import DecisionOverruled as DecisionOverruled
    from .dual_write.stop_words import DualWriteError as DualWriteError
    from .dual_write.writer import DualWriter as DualWriter
    from .fetch.record_columns import RecordColumns as RecordColumns
    from .fetch.record_reader import ConsumerRecord as ConsumerRecord
    from .fetch.state import RawBatch as RawBatch
    from .group_metadata import GroupMetadata as GroupMetadata
    from .group_metadata import OffsetAndMetadata as OffsetAndMetadata
    from .outbox.relay import OutboxRelay as OutboxRelay
    from .outbox.writer import BlockingOutboxWriter as BlockingOutboxWriter
    from .outbox.writer import OutboxWriter as OutboxWriter
    from .produce.delivery import Deliveries as Deliveries
    from .produce.delivery import RecordMetadata as RecordMetadata
    from .produce.delivery import RecordRange as RecordRange
    from .producer import Producer as Producer
    from .transactions.prepared import PreparedTransaction as PreparedTransaction
    from .transactions.prepared import complete as complete
    from .transactions.producer_state import ProducerState as ProducerState
    from .writer_pool.blocking_pool import BlockingWriterPool as BlockingWriterPool
    from .writer_pool.pool import WriterPool as WriterPool
    from .writer_pool.pool_names import NoWriterFree as NoWriterFree

_WHERE = {
    "Admin": "admin",
    "BlockingAdmin": "blocking",
    "BlockingConsumer": "blocking",
    "BlockingDualWriter": "dual_write.blocking_writer",
    "BlockingProducer": "blocking_producer",
    "BlockingWriterPool": "writer_pool.blocking_pool",
    "BlockingCheckBack": "dual_write.check_back_task",
    "CheckBackTask": "dual_write.check_back_task",
    "CheckBack": "dual_write.check_back_service",
    "ClusterView": "cluster_view",
    "DatabaseResolver": "dual_write.resolvers",
    "HttpResolver": "dual_write.http_resolver",
    "Consumer": "consumer",
    "ConsumerRecord": "fetch.record_reader",
    "DecisionInDoubt": "dual_write.stop_words",
    "DecisionOverruled": "dual_write.stop_words",
    "Deliveries": "produce.delivery",
    "DualWriteError": "dual_write.stop_words",
    "DualWriter": "dual_write.writer",
    "OutboxRelay": "outbox.relay",
    "BlockingOutboxWriter": "outbox.writer",
    "OutboxWriter": "outbox.writer",
    "NoWriterFree": "writer_pool.pool_names",
    "WriterPool": "writer_pool.pool",
    "GroupMetadata": "group_metadata",
    "OffsetAndMetadata": "group_metadata",
    "PreparedTransaction": "transactions.prepared",
    "Producer": "producer",
    "ProducerState": "transactions.producer_state",
    "RawBatch": "fetch.state",
    "RecordColumns": "fetch.record_columns",
    "RecordMetadata": "produce.delivery",
    "RecordRange": "produce.delivery",
    "complete": "transactions.prepared",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its file at the first use."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
