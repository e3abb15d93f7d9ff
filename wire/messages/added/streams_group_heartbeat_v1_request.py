# Made by tests/wire/added_schemas.py from StreamsGroupHeartbeatRequest.json of
# Apache Kafka 4.4.0.
from dataclasses import dataclass, field
from datetime import timedelta

from kio.static.primitive import i16, i32, i32Timedelta, i64, u16

from . import Flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue(Flexible):
    key: str = field(metadata={"kafka_type": "string"})
    value: str = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo(Flexible):
    name: str = field(metadata={"kafka_type": "string"})
    partitions: i32 = field(metadata={"kafka_type": "int32"})
    replication_factor: i16 = field(metadata={"kafka_type": "int16"})
    topic_configs: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopartitionGroup(Flexible):
    source_topics: tuple[i16, ...] = field(metadata={"kafka_type": "int16"}, default=())
    source_topic_regex: tuple[i16, ...] = field(metadata={"kafka_type": "int16"}, default=())
    repartition_source_topics: tuple[i16, ...] = field(metadata={"kafka_type": "int16"}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology(Flexible):
    subtopology_id: str = field(metadata={"kafka_type": "string"})
    source_topics: tuple[str, ...] = field(metadata={"kafka_type": "string"}, default=())
    source_topic_regex: tuple[str, ...] = field(metadata={"kafka_type": "string"}, default=())
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_sink_topics: tuple[str, ...] = field(metadata={"kafka_type": "string"}, default=())
    repartition_source_topics: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology(Flexible):
    epoch: i32 = field(metadata={"kafka_type": "int32"})
    subtopologies: tuple[Subtopology, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIds(Flexible):
    subtopology_id: str = field(metadata={"kafka_type": "string"})
    partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Flexible):
    host: str = field(metadata={"kafka_type": "string"})
    port: u16 = field(metadata={"kafka_type": "uint16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOffset(Flexible):
    subtopology_id: str = field(metadata={"kafka_type": "string"})
    partition: i32 = field(metadata={"kafka_type": "int32"})
    offset: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupHeartbeatRequest(Flexible):
    group_id: str = field(metadata={"kafka_type": "string"})
    member_id: str = field(metadata={"kafka_type": "string"})
    member_epoch: i32 = field(metadata={"kafka_type": "int32"})
    endpoint_information_epoch: i32 = field(metadata={"kafka_type": "int32"})
    instance_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    rack_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    rebalance_timeout: i32Timedelta = field(
        metadata={"kafka_type": "timedelta_i32"},
        default=i32Timedelta.parse(timedelta(milliseconds=-1)),
    )
    topology: Topology | None = field(default=None)
    active_tasks: tuple[TaskIds, ...] | None = field(default=None)
    standby_tasks: tuple[TaskIds, ...] | None = field(default=None)
    warmup_tasks: tuple[TaskIds, ...] | None = field(default=None)
    process_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: tuple[KeyValue, ...] | None = field(default=None)
    task_offsets: tuple[TaskOffset, ...] | None = field(default=None)
    task_end_offsets: tuple[TaskOffset, ...] | None = field(default=None)
    shutdown_application: bool = field(metadata={"kafka_type": "bool"}, default=False)
