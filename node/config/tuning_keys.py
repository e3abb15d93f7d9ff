"""Kafka's keys that are accepted and described, but have no effect here.

A server.properties or a script written for Kafka may set them. The broker logs the keys that were
set. A value is refused only if it has a wrong type or is below Kafka's minimum.
"""

from collections.abc import Iterable

from ...storage.topic_configs import ConfigType
from .keys import BOOLEAN, INT, LONG, SHORT, STRING, BrokerKey, Check, anything, at_least

WITHOUT_EFFECT = (
    "No effect. In Kafka it tunes threads, buffers, timers, internal topics, or tiered storage."
)
DOUBLE = ConfigType.DOUBLE
_THREADS, _ANY = at_least(1), anything
_TIER_METADATA = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)

# the last value is True for a dynamic key
_ROWS: tuple[tuple[str, ConfigType, str, Check, bool], ...] = (
    ("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", at_least(0), False),
    ("add.partitions.to.txn.retry.backoff.ms", INT, "20", at_least(1), False),
    ("alter.log.dirs.replication.quota.window.num", INT, "11", _ANY, False),
    ("alter.log.dirs.replication.quota.window.size.seconds", INT, "1", _ANY, False),
    ("background.threads", INT, "10", _THREADS, True),
    ("controller.quorum.append.linger.ms", INT, "25", _ANY, False),
    ("controller.quorum.election.backoff.max.ms", INT, "1000", _ANY, False),
    ("controller.quorum.election.timeout.ms", INT, "1000", _ANY, False),
    ("controller.quorum.fetch.max.bytes", INT, "1048576", _ANY, False),
    ("controller.quorum.fetch.snapshot.max.bytes", INT, "1048576", _ANY, False),
    ("controller.quorum.fetch.timeout.ms", INT, "2000", _ANY, False),
    ("controller.quorum.request.timeout.ms", INT, "2000", _ANY, False),
    ("controller.quorum.retry.backoff.ms", INT, "20", _ANY, False),
    ("controller.quota.window.num", INT, "11", _ANY, False),
    ("controller.quota.window.size.seconds", INT, "1", _ANY, False),
    ("controller.socket.timeout.ms", INT, "30000", _ANY, False),
    ("delegation.token.expiry.check.interval.ms", LONG, "3600000", _ANY, False),
    ("delegation.token.expiry.time.ms", LONG, "86400000", _ANY, False),
    ("delegation.token.max.lifetime.ms", LONG, "604800000", _ANY, False),
    ("delete.records.purgatory.purge.interval.requests", INT, "1", _ANY, False),
    ("fetch.purgatory.purge.interval.requests", INT, "1000", _ANY, False),
    ("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false", _ANY, True),
    ("group.coordinator.append.linger.ms", INT, "-1", at_least(-1), False),
    ("group.coordinator.background.threads", INT, "2", _THREADS, False),
    ("group.coordinator.cached.buffer.max.bytes", INT, "1048588", at_least(0), True),
    ("group.coordinator.threads", INT, "4", _THREADS, False),
    ("initial.broker.registration.timeout.ms", INT, "60000", _ANY, False),
    ("kafka.metrics.polling.interval.secs", INT, "10", _ANY, False),
    ("log.cleaner.dedupe.buffer.size", LONG, "134217728", _ANY, True),
    ("log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", _ANY, True),
    ("log.cleaner.io.buffer.size", INT, "524288", at_least(0), True),
    ("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", _ANY, True),
    ("log.cleaner.threads", INT, "1", at_least(0), True),
    ("log.dir.failure.timeout.ms", LONG, "30000", _ANY, False),
    ("log.flush.scheduler.interval.ms", LONG, str(2**63 - 1), _ANY, False),
    ("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520", _ANY, False),
    ("metadata.log.max.snapshot.interval.ms", LONG, "3600000", _ANY, False),
    ("metadata.log.segment.bytes", INT, "1073741824", _ANY, False),
    ("metadata.log.segment.ms", LONG, "604800000", _ANY, False),
    ("metadata.max.idle.interval.ms", INT, "500", _ANY, False),
    ("metadata.max.retention.bytes", LONG, "104857600", _ANY, False),
    ("metadata.max.retention.ms", LONG, "604800000", _ANY, False),
    ("metrics.num.samples", INT, "2", _ANY, False),
    ("metrics.recording.level", STRING, "INFO", _ANY, False),
    ("metrics.sample.window.ms", LONG, "30000", _ANY, False),
    ("num.io.threads", INT, "8", _THREADS, True),
    ("num.network.threads", INT, "3", _THREADS, True),
    ("num.recovery.threads.per.data.dir", INT, "2", _THREADS, True),
    ("num.replica.alter.log.dirs.threads", INT, "", _ANY, False),
    ("num.replica.fetchers", INT, "1", _ANY, True),
    ("offsets.load.buffer.size", INT, "5242880", _THREADS, False),
    ("producer.purgatory.purge.interval.requests", INT, "1000", _ANY, False),
    ("queued.max.requests", INT, "500", _THREADS, False),
    ("remote.fetch.max.wait.ms", INT, "500", _ANY, True),
    ("remote.list.offsets.request.timeout.ms", LONG, "30000", _ANY, True),
    ("remote.log.index.file.cache.total.size.bytes", LONG, "1073741824", _ANY, True),
    ("remote.log.manager.copier.thread.pool.size", INT, "10", _ANY, True),
    ("remote.log.manager.copy.max.bytes.per.second", LONG, str(2**63 - 1), _ANY, True),
    ("remote.log.manager.copy.quota.window.num", INT, "11", _ANY, False),
    ("remote.log.manager.copy.quota.window.size.seconds", INT, "1", _ANY, False),
    ("remote.log.manager.expiration.thread.pool.size", INT, "10", _ANY, True),
    ("remote.log.manager.fetch.max.bytes.per.second", LONG, str(2**63 - 1), _ANY, True),
    ("remote.log.manager.fetch.quota.window.num", INT, "11", _ANY, False),
    ("remote.log.manager.fetch.quota.window.size.seconds", INT, "1", _ANY, False),
    ("remote.log.manager.follower.thread.pool.size", INT, "2", _ANY, True),
    ("remote.log.manager.task.interval.ms", LONG, "30000", _ANY, False),
    ("remote.log.manager.thread.pool.size", INT, "2", _ANY, False),
    ("remote.log.metadata.custom.metadata.max.bytes", INT, "128", _ANY, False),
    ("remote.log.metadata.manager.class.name", STRING, _TIER_METADATA, _ANY, False),
    ("remote.log.metadata.manager.class.path", STRING, "", _ANY, False),
    ("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", _ANY, False),
    ("remote.log.metadata.manager.listener.name", STRING, "", _ANY, False),
    ("remote.log.reader.max.pending.tasks", INT, "100", _ANY, False),
    ("remote.log.reader.threads", INT, "10", _ANY, True),
    ("remote.log.storage.manager.class.name", STRING, "", _ANY, False),
    ("remote.log.storage.manager.class.path", STRING, "", _ANY, False),
    ("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", _ANY, False),
    ("replica.alter.log.dirs.io.max.bytes.per.second", LONG, str(2**63 - 1), _ANY, True),
    ("replica.socket.receive.buffer.bytes", INT, "65536", _ANY, False),
    ("replica.socket.timeout.ms", INT, "30000", _ANY, False),
    ("socket.connection.setup.timeout.max.ms", LONG, "30000", _ANY, False),
    ("socket.connection.setup.timeout.ms", LONG, "10000", _ANY, False),
    ("socket.receive.buffer.bytes", INT, "102400", at_least(-1), False),
    ("socket.send.buffer.bytes", INT, "102400", at_least(-1), False),
    ("telemetry.max.bytes", INT, "1048576", _ANY, False),
    ("transaction.state.log.load.buffer.size", INT, "5242880", _ANY, False),
    ("transaction.state.log.min.isr", INT, "2", _ANY, False),
    ("transaction.state.log.replication.factor", SHORT, "3", _ANY, False),
    ("transaction.state.log.segment.bytes", INT, "104857600", _ANY, False),
)
_HIDDEN = ("replica.alter.log.dirs.io.max.bytes.per.second",)  # as Kafka hides its throttles
TUNING_KEYS = {
    name: BrokerKey(
        name=name,
        type=config_type,
        default=default,
        doc=WITHOUT_EFFECT,
        check=check,
        is_dynamic=is_dynamic,
        shown_unset="hidden" if name in _HIDDEN else "null",
    )
    for name, config_type, default, check, is_dynamic in _ROWS
}


def without_effect(names: Iterable[str]) -> str | None:
    """Return a sentence that names the keys without effect, or None if all have an effect."""
    idle = sorted(TUNING_KEYS.keys() & set(names))
    if not idle:
        return None
    return f"{', '.join(idle)}: accepted, but without effect; they tune parts that only Kafka has"
