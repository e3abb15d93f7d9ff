"""Kafka's keys that only tune its threads, buffers and timers: taken, shown, without effect.

A server.properties or a script that was made for Kafka sets them, and means no harm. The log names
those that were set.
"""

from collections.abc import Iterable

from ...storage.topic_configs import ConfigType
from .keys import INT, LONG, BrokerKey, Check, anything, at_least

WITHOUT_EFFECT = "It tunes threads, buffers or timers of Kafka; a broker of ours has none like it."
DOUBLE = ConfigType.DOUBLE
_THREADS, _ANY = at_least(1), anything

_ROWS: tuple[tuple[str, ConfigType, str, Check, bool], ...] = (  # with whether it is dynamic
    ("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", at_least(0), False),
    ("add.partitions.to.txn.retry.backoff.ms", INT, "20", at_least(1), False),
    ("background.threads", INT, "10", _THREADS, True),
    ("delete.records.purgatory.purge.interval.requests", INT, "1", _ANY, False),
    ("fetch.purgatory.purge.interval.requests", INT, "1000", _ANY, False),
    ("group.coordinator.append.linger.ms", INT, "-1", at_least(-1), False),
    ("group.coordinator.background.threads", INT, "2", _THREADS, False),
    ("group.coordinator.cached.buffer.max.bytes", INT, "1048588", at_least(0), True),
    ("group.coordinator.threads", INT, "4", _THREADS, False),
    ("log.cleaner.dedupe.buffer.size", LONG, "134217728", _ANY, True),
    ("log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", _ANY, True),
    ("log.cleaner.io.buffer.size", INT, "524288", at_least(0), True),
    ("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", _ANY, True),
    ("log.cleaner.threads", INT, "1", at_least(0), True),
    ("log.flush.scheduler.interval.ms", LONG, str(2**63 - 1), _ANY, False),
    ("num.io.threads", INT, "8", _THREADS, True),
    ("num.network.threads", INT, "3", _THREADS, True),
    ("num.recovery.threads.per.data.dir", INT, "2", _THREADS, True),
    ("num.replica.alter.log.dirs.threads", INT, "", _ANY, False),
    ("num.replica.fetchers", INT, "1", _ANY, True),
    ("offsets.load.buffer.size", INT, "5242880", _THREADS, False),
    ("producer.purgatory.purge.interval.requests", INT, "1000", _ANY, False),
    ("queued.max.requests", INT, "500", _THREADS, False),
    ("replica.socket.receive.buffer.bytes", INT, "65536", _ANY, False),
    ("replica.socket.timeout.ms", INT, "30000", _ANY, False),
    ("socket.connection.setup.timeout.max.ms", LONG, "30000", _ANY, False),
    ("socket.connection.setup.timeout.ms", LONG, "10000", _ANY, False),
    ("socket.receive.buffer.bytes", INT, "102400", at_least(-1), False),
    ("socket.send.buffer.bytes", INT, "102400", at_least(-1), False),
)
TUNING_KEYS = {
    name: BrokerKey(
        name=name,
        type=config_type,
        default=default,
        doc=WITHOUT_EFFECT,
        check=check,
        is_dynamic=is_dynamic,
    )
    for name, config_type, default, check, is_dynamic in _ROWS
}


def without_effect(names: Iterable[str]) -> str | None:
    """A sentence about those of the keys that change nothing here; None if all of them count."""
    idle = sorted(TUNING_KEYS.keys() & set(names))
    if not idle:
        return None
    return f"{', '.join(idle)}: taken and shown, but what they tune in Kafka is not in this broker"
