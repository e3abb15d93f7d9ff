"""Test CreateTopics, DeleteTopics and CreatePartitions."""

import pytest

from oncelog.storage.topic_configs import TOPIC_CONFIGS
from oncelog.wire.errors import ErrorCode, RequestTimedOut

from ...fake_broker import FakeBroker

CREATE, DELETE, EXTEND = 19, 20, 37
ZERO_ID = bytes(16)


def new(name: str, partitions: int = 1, factor: int = 1, **more: object) -> dict[str, object]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


def with_configs(name: str, **configs: str | None) -> dict[str, object]:
    listed = [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()]
    return new(name, configs=listed)


def errors_of(answer: object) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_of_every_version_creates_a_topic(broker: FakeBroker, version: int) -> None:
    question = {"topics": [new("a", 3, 2)], "timeout": 1000}
    (topic,) = broker.ask(CREATE, version, question).topics
    assert (topic.name, topic.error_code, topic.error_message) == ("a", 0, None)
    made = broker.state.topics["a"]
    assert [len(p.replicas) for p in made.partitions] == [2, 2, 2]
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 2)
    if version >= 7:
        assert topic.topic_id == made.topic_id


def test_create_topics_answer_shows_every_config_and_its_source() -> None:
    broker = FakeBroker(log_segment_bytes="2000000")
    (topic,) = broker.ask(CREATE, 7, {"topics": [with_configs("a", retention_ms="5")]}).topics
    configs = {c.name: (c.value, c.config_source) for c in topic.configs}
    assert sorted(configs) == sorted(n for n, row in TOPIC_CONFIGS.items() if not row.is_internal)
    assert configs["retention.ms"] == ("5", 1)
    assert configs["segment.bytes"] == ("2000000", 4)
    assert configs["min.insync.replicas"] == ("2", 3)
    assert configs["cleanup.policy"] == ("delete", 5)


def test_create_topics_answers_each_topic_separately(broker: FakeBroker) -> None:
    broker.create("there")
    answer = broker.ask(
        CREATE,
        7,
        {
            "topics": [
                new("good", -1, -1),
                new("there"),
                new("twice"),
                new("twice"),
                new("no good"),
                new("wide", 1, 9),
                new("none", 0, 1),
                with_configs("unknown", nope="1"),
                with_configs("wrong", retention_ms="soon"),
                with_configs("null", retention_ms=None),
                with_configs("unhonoured", compression_type="zstd"),
            ]
        },
    )
    assert errors_of(answer) == {
        "good": 0,
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "twice": ErrorCode.INVALID_REQUEST,
        "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
        "none": ErrorCode.INVALID_PARTITIONS,
        "unknown": ErrorCode.INVALID_CONFIG,
        "wrong": ErrorCode.INVALID_CONFIG,
        "null": ErrorCode.INVALID_CONFIG,
        "unhonoured": ErrorCode.INVALID_CONFIG,
    }
    assert set(broker.state.topics) == {"there", "good"}
    for topic in answer.topics:
        if topic.error_code:
            assert topic.error_message
            assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
            assert (topic.topic_id, topic.configs) == (ZERO_ID, [])


def test_create_topics_with_a_config_given_twice_uses_the_last_value(broker: FakeBroker) -> None:
    configs = [{"name": "retention.ms", "value": value} for value in ("1", "2")]
    assert broker.ask(CREATE, 7, {"topics": [new("a", configs=configs)]}).topics[0].error_code == 0
    assert broker.state.topics["a"].configs == {"retention.ms": "2"}


def test_create_topics_validated_only_creates_no_topic(broker: FakeBroker) -> None:
    question = {"topics": [new("a", 3, 2), new("b", 1, 9)], "validate_only": True}
    assert errors_of(broker.ask(CREATE, 7, question)) == {"a": 0, "b": 38}
    assert broker.state.topics == {}


def test_create_topics_with_manual_replica_assignments_places_replicas_accordingly(
    broker: FakeBroker,
) -> None:
    assignments = [
        {"partition_index": 0, "broker_ids": [3, 1]},
        {"partition_index": 1, "broker_ids": [2, 3]},
    ]
    question = {"topics": [new("a", -1, -1, assignments=assignments)]}
    assert errors_of(broker.ask(CREATE, 5, question)) == {"a": 0}
    assert [p.replicas for p in broker.state.topics["a"].partitions] == [(3, 1), (2, 3)]


def test_create_topics_with_a_silent_controller_fails_every_topic(broker: FakeBroker) -> None:
    broker.controller.failure = RequestTimedOut()
    assert errors_of(broker.ask(CREATE, 7, {"topics": [new("a"), new("b")]})) == {"a": 7, "b": 7}
    deleted = broker.ask(DELETE, 6, {"topics": [{"name": "a"}, {"topic_id": b"x" * 16}]})
    assert [(r.name, r.topic_id, r.error_code) for r in deleted.responses] == [
        ("a", ZERO_ID, 7),
        (None, b"x" * 16, 7),
    ]
    extended = broker.ask(EXTEND, 3, {"topics": [{"name": "a", "count": 2, "assignments": None}]})
    assert [(r.name, r.error_code) for r in extended.results] == [("a", 7)]


def test_create_topics_with_an_internal_error_is_answered_and_logged(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.controller.failure = ZeroDivisionError("a defect")
    assert errors_of(broker.ask(CREATE, 7, {"topics": [new("a")]})) == {
        "a": ErrorCode.UNKNOWN_SERVER_ERROR
    }
    assert len([r for r in caplog.records if "a defect" in r.getMessage()]) == 1


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_of_every_version_deletes_by_name(broker: FakeBroker, version: int) -> None:
    broker.create("a")
    question: dict[str, object] = {"topic_names": ["a", "b"]}
    if version >= 6:
        question = {"topics": [{"name": "a"}, {"name": "b"}]}
    answer = broker.ask(DELETE, version, question)
    assert {r.name: r.error_code for r in answer.responses} == {"a": 0, "b": 3}
    assert broker.state.topics == {}


def test_delete_topics_by_id_deletes_the_topic(broker: FakeBroker) -> None:
    topic_id = broker.create("a")
    question = {"topics": [{"topic_id": topic_id}, {"topic_id": b"x" * 16}, {"name": None}]}
    answer = broker.ask(DELETE, 6, question)
    assert [(r.name, r.topic_id, r.error_code) for r in answer.responses] == [
        ("a", topic_id, 0),
        (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ZERO_ID, ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73), (6, 73)])
def test_delete_topics_with_deletion_disabled_is_refused(version: int, code: int) -> None:
    broker = FakeBroker(delete_topic_enable="false")
    broker.create("a")
    topics = {"topics": [{"name": "a"}]} if version >= 6 else {"topic_names": ["a"]}
    assert [r.error_code for r in broker.ask(DELETE, version, topics).responses] == [code]
    assert set(broker.state.topics) == {"a"}


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_of_every_version_adds_partitions(
    broker: FakeBroker, version: int
) -> None:
    for name in ("a", "b", "c"):
        broker.create(name)
    question = {
        "topics": [
            {"name": "a", "count": 5, "assignments": None},
            {"name": "b", "count": 2, "assignments": None},
            {"name": "nope", "count": 2, "assignments": None},
            {"name": "c", "count": 3, "assignments": [{"broker_ids": [3, 2, 1]}]},
            {"name": "twice", "count": 3, "assignments": None},
            {"name": "twice", "count": 4, "assignments": None},
        ]
    }
    answer = broker.ask(EXTEND, version, question)
    assert {r.name: r.error_code for r in answer.results} == {
        "a": 0,
        "b": ErrorCode.INVALID_PARTITIONS,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "c": 0,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert len(broker.state.topics["a"].partitions) == 5
    assert broker.state.topics["c"].partitions[2].replicas == (3, 2, 1)


def test_create_partitions_of_the_offsets_topic_is_refused(broker: FakeBroker) -> None:
    """A group's partition is the hash of its id modulo the number of partitions."""
    broker.create("a")
    broker.create("__consumer_offsets", 2)
    more = [{"name": name, "count": 4, "assignments": None} for name in ("__consumer_offsets", "a")]
    answer = broker.ask(EXTEND, 3, {"topics": more, "timeout": 1000})
    codes = {each.name: each.error_code for each in answer.results}
    assert codes == {"__consumer_offsets": ErrorCode.POLICY_VIOLATION, "a": 0}
    assert len(broker.state.topics["__consumer_offsets"].partitions) == 2


def test_create_partitions_validated_only_adds_no_partition(broker: FakeBroker) -> None:
    broker.create("a")
    topics = [{"name": "a", "count": 5, "assignments": None}]
    answer = broker.ask(EXTEND, 3, {"topics": topics, "validate_only": True})
    assert [r.error_code for r in answer.results] == [0]
    assert len(broker.state.topics["a"].partitions) == 2


@pytest.mark.parametrize(
    ("key", "version", "question"),
    [(CREATE, 7, {"topics": []}), (DELETE, 6, {"topics": []}), (EXTEND, 3, {"topics": []})],
)
def test_topic_request_without_items_proposes_no_command(
    broker: FakeBroker, key: int, version: int, question: dict[str, object]
) -> None:
    broker.ask(key, version, question)
    assert broker.controller.commands == []


@pytest.mark.parametrize("timeout_ms", [-1, 0, 5, 2**31 - 1])
def test_topic_request_timeout_of_a_client_is_bounded(broker: FakeBroker, timeout_ms: int) -> None:
    seen = []
    submit = broker.controller.submit

    async def watch(command, *, timeout_ms):
        seen.append(timeout_ms)
        return await submit(command, timeout_ms=timeout_ms)

    broker.controller.submit = watch  # type: ignore[method-assign]
    broker.ask(CREATE, 7, {"topics": [new("a")], "timeout": timeout_ms})
    assert 100 <= seen[0] <= 600_000
