"""The keys of the group coordinator and of the transaction coordinator. See `broker_keys`."""

from dataclasses import dataclass
from typing import Any

from ...coordinator.groups.assignors.catalogue import ASSIGNORS
from ...wire.errors import InvalidConfig, KafkaError
from .authorizer_keys import AuthorizerSettings
from .keys import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    SHORT,
    STRING,
    at_least,
    at_least_one_or_default,
    between,
    one_of_in_any_case,
    setting,
    some_of,
)

MIB = 1024 * 1024
# the values of group.consumer.migration.policy
UPGRADE, DOWNGRADE, BIDIRECTIONAL = "upgrade", "downgrade", "bidirectional"


def _known_assignors(names: tuple[str, ...]) -> str | None:
    if not names or len(set(names)) != len(names) or not ASSIGNORS.keys() >= set(names):
        return f"Must be different names of: {', '.join(ASSIGNORS)}"
    return None


def _protocols(names: tuple[str, ...]) -> str | None:
    if "classic" not in names:
        return "Disabling the 'classic' protocol is not supported."
    return some_of("classic", "consumer", "share", "streams")(names)


def _of_consumer_groups(name: str, default: str, doc: str, least: int = 1) -> Any:
    return setting(f"group.consumer.{name}", INT, default, doc, at_least(least))


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings(AuthorizerSettings):
    """The typed values of the coordinators' keys."""

    # groups
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        INT,
        "6000",
        "The minimum session timeout of a classic member.",
        at_least(1),
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        INT,
        "1800000",
        "The maximum session timeout of a classic member.",
        at_least(1),
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", INT, "0",
        "The time that a new group waits for further members before its first rebalance.",
        at_least(0), kafka_default="3000",
    )  # fmt: skip
    group_max_size: int = setting(
        "group.max.size",
        INT,
        "2147483647",
        "The maximum number of members of a classic group.",
        at_least(1),
    )

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols", LIST, "classic,consumer,streams",
        "The enabled group protocols. Streams groups are not supported.", _protocols,
    )  # fmt: skip

    # groups of the consumer protocol (KIP-848); `group_configs` has the configs of single groups
    group_consumer_session_timeout_ms: int = _of_consumer_groups(
        "session.timeout.ms", "45000", "The session timeout of members of the consumer protocol."
    )
    group_consumer_min_session_timeout_ms: int = _of_consumer_groups(
        "min.session.timeout.ms",
        "45000",
        "The minimum of the group config consumer.session.timeout.ms.",
    )
    group_consumer_max_session_timeout_ms: int = _of_consumer_groups(
        "max.session.timeout.ms",
        "60000",
        "The maximum of the group config consumer.session.timeout.ms.",
    )
    group_consumer_heartbeat_interval_ms: int = _of_consumer_groups(
        "heartbeat.interval.ms",
        "5000",
        "The heartbeat interval of members of the consumer protocol.",
    )
    group_consumer_min_heartbeat_interval_ms: int = _of_consumer_groups(
        "min.heartbeat.interval.ms",
        "5000",
        "The minimum of the group config consumer.heartbeat.interval.ms.",
    )
    group_consumer_max_heartbeat_interval_ms: int = _of_consumer_groups(
        "max.heartbeat.interval.ms",
        "15000",
        "The maximum of the group config consumer.heartbeat.interval.ms.",
    )
    group_consumer_assignment_interval_ms: int = _of_consumer_groups(
        "assignment.interval.ms", "1000", "The minimum time between two assignments of a group.", 0
    )
    group_consumer_min_assignment_interval_ms: int = _of_consumer_groups(
        "min.assignment.interval.ms",
        "0",
        "The minimum of the group config consumer.assignment.interval.ms.",
        0,
    )
    group_consumer_max_assignment_interval_ms: int = _of_consumer_groups(
        "max.assignment.interval.ms",
        "15000",
        "The maximum of the group config consumer.assignment.interval.ms.",
        0,
    )
    group_consumer_max_size: int = _of_consumer_groups(
        "max.size", "2147483647", "The maximum number of members of a consumer group."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        LIST,
        "uniform,range",
        "The server-side assignors that members can choose. The first is the default.",
        _known_assignors,
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        STRING,
        BIDIRECTIONAL,
        "Whether groups with members can migrate from the classic to the consumer protocol "
        "(upgrade) or back (downgrade).",
        one_of_in_any_case("disabled", DOWNGRADE, UPGRADE, BIDIRECTIONAL),
    )

    # committed offsets
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", INT, "8",
        "The number of partitions of __consumer_offsets.", at_least(1),
        kafka_default="50",
    )  # fmt: skip
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", SHORT, "-1",
        "The replication factor of __consumer_offsets. -1 means default.replication.factor.",
        at_least_one_or_default, kafka_default="3",
    )  # fmt: skip
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        INT,
        str(100 * MIB),
        "The segment size of __consumer_offsets.",
        at_least(MIB),
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", INT, "4096",
        "The maximum size of the metadata of a committed offset.",
        at_least(0),
    )  # fmt: skip
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms", INT, "5000",
        "The maximum time that a commit waits for the replicas of __consumer_offsets.", at_least(1),
    )  # fmt: skip
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", INT, "10080",
        "The offsets of a group that has been empty for this time expire.", at_least(1),
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", LONG, "600000",
        "How often expired offsets are removed.", at_least(1),
    )  # fmt: skip

    # transactions
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", INT, "4",
        "The number of Raft groups that coordinate transactions. It never changes.", between(1, 50),
        kafka_default="50",
    )  # fmt: skip
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", INT, "900000",
        "The maximum transaction timeout of a producer.", at_least(1),
    )  # fmt: skip
    transaction_abort_timed_out_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "1000",
        "How often transactions past their timeout are aborted.", at_least(1),
        kafka_default="10000",
    )  # fmt: skip
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", INT, "604800000",
        "A transactional id without a transaction for this time expires.", at_least(1),
    )  # fmt: skip
    transaction_remove_expired_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000",
        "How often expired transactional ids are removed.", at_least(1),
    )  # fmt: skip
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable", BOOLEAN, "false",
        "Whether producers may begin transactions without a timeout (KIP-939). Dual writes "
        "and the prepared mode of the Spark sink need it.",
    )  # fmt: skip
    transactional_ids_max: int = setting(
        "oncelog.transactional.ids.max",
        INT,
        "100000",
        "The maximum number of transactional ids in a shard of the transaction coordinator.",
        at_least(1),
    )
    transactions_open_max: int = setting(
        "oncelog.transactions.open.max", INT, "10000",
        "The maximum number of open transactions in a coordinator shard.", at_least(1),
    )  # fmt: skip
    transaction_partitions_max: int = setting(
        "oncelog.transaction.partitions.max",
        INT,
        "3000",
        "The maximum number of partitions in a transaction.",
        between(1, 3000),
    )
    producer_ids_max: int = setting(
        "oncelog.producer.ids.max",
        INT,
        "500000",
        "The maximum number of producers with state on a broker, in all partitions together. "
        "Above it, the state of the producers that have been idle the longest expires early, but "
        "not within five minutes of their last batch. A partition has at most 100,000 producers.",
        at_least(1000),
    )
    transaction_hold_ms: int = setting(
        "oncelog.transaction.hold.ms", INT, "500",
        "The maximum time that a request waits for the markers of the previous "
        "transaction, before it fails with CONCURRENT_TRANSACTIONS.", at_least(0),
    )  # fmt: skip
    transaction_connection_fence: bool = setting(
        "oncelog.transaction.connection.fence",
        BOOLEAN,
        "true",
        "Whether a late request of a transactional producer, on a connection older than its "
        "newest one, closes that older connection (KAFKA-17754).",
    )
    transaction_stale_request_ms: int = setting(
        "oncelog.transaction.stale.request.ms",
        INT,
        "5000",
        "The maximum time that an EndTxn request may wait in the kernel before the broker reads "
        "it. Then its connection is closed.",
        at_least(1),
    )

    def check_consumer_groups(self) -> None:
        """Raise InvalidConfig unless the default timeouts of groups are within their bounds."""
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            attribute = name.replace(".", "_")
            least = getattr(self, f"group_consumer_min_{attribute}")
            most = getattr(self, f"group_consumer_max_{attribute}")
            value = getattr(self, f"group_consumer_{attribute}")
            if least > most:
                raise _out_of_bounds(f"max.{name}", "greater", f"min.{name}")
            if value < least:
                raise _out_of_bounds(name, "greater", f"min.{name}")
            if value > most:
                raise _out_of_bounds(name, "less", f"max.{name}")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise InvalidConfig(
                "group.consumer.heartbeat.interval.ms must be less than "
                "group.consumer.session.timeout.ms"
            )


def _out_of_bounds(name: str, relation: str, other: str) -> KafkaError:
    return InvalidConfig(
        f"group.consumer.{name} must be {relation} than or equal to group.consumer.{other}"
    )
