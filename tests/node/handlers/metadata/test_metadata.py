"""Test Metadata, DescribeTopicPartitions, and the automatic creation of topics."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER
from oncelog.node.handlers.metadata import auto_creation, metadata
from oncelog.node.handlers.metadata.topic_partitions import describe_topic_partitions
from oncelog.wire.errors import ErrorCode, InvalidReplicationFactor
from oncelog.wire.messages import control

from ....awaiting import turns_until, until
from ...fake_broker import CLUSTER_ID, FakeBroker

METADATA, CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS = 3, 19, 75
ZERO_ID = bytes(16)


def asking(*names: str | None, creates: bool = False) -> dict[str, object]:
    return {
        "topics": [{"name": name} for name in names],
        "allow_auto_topic_creation": creates,
    }


@pytest.mark.parametrize("version", range(14))
def test_metadata_request_of_every_version_returns_brokers_topics_and_leaders(
    broker: FakeBroker, version: int
) -> None:
    topic_id = broker.create("orders", partitions=3)
    answer = broker.ask(METADATA, version, asking("orders"))
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (node, "127.0.0.1", 9090 + node) for node in (1, 2, 3)
    ]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "orders")
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert partition.leader_id == partition.replica_nodes[0]
        assert sorted(partition.isr_nodes) == [1, 2, 3]
        if version >= 5:
            assert partition.offline_replicas == []
        if version >= 7:
            assert partition.leader_epoch == 0
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert answer.cluster_id == CLUSTER_ID
    if version >= 8:
        assert topic.topic_authorized_operations == -(2**31)
    if 8 <= version <= 10:
        assert answer.cluster_authorized_operations == -(2**31)
    if version >= 10:
        assert topic.topic_id == topic_id != ZERO_ID
    if version >= 13:
        assert answer.error_code == 0


@pytest.mark.parametrize(
    ("version", "topics", "names"),
    [(0, [], ["a", "b"]), (1, [], []), (1, None, ["a", "b"]), (12, None, ["a", "b"]), (12, [], [])],
)
def test_metadata_request_returns_all_topics_for_null_or_in_version_0_for_an_empty_list(
    broker: FakeBroker, version: int, topics: list[str] | None, names: list[str]
) -> None:
    broker.create("a")
    broker.create("b")
    answer = broker.ask(METADATA, version, {"topics": topics})
    assert sorted(topic.name for topic in answer.topics) == names


def test_metadata_request_with_a_repeated_topic_returns_the_topic_once(broker: FakeBroker) -> None:
    broker.create("a")
    assert [t.name for t in broker.ask(METADATA, 9, asking("a", "a")).topics] == ["a"]


def test_metadata_of_a_leaderless_partition_has_its_current_leader_epoch() -> None:
    broker = FakeBroker(count=1)
    broker.create("a", partitions=1, factor=1)
    broker.fence(1)
    answer = broker.ask(METADATA, 9, asking("a"))
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, partition.leader_epoch) == (-1, 1)
    assert partition.offline_replicas == [1]
    assert (answer.brokers, answer.controller_id) == ([], -1)


def test_metadata_of_version_0_hides_replicas_on_dead_brokers(broker: FakeBroker) -> None:
    broker.create("a", partitions=1)
    broker.fence(3)
    (old,) = broker.ask(METADATA, 0, asking("a")).topics[0].partitions
    (new,) = broker.ask(METADATA, 5, asking("a")).topics[0].partitions
    assert old.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert sorted(old.replica_nodes) == sorted(old.isr_nodes) == [1, 2]
    assert new.error_code == 0
    assert sorted(new.replica_nodes) == [1, 2, 3]
    assert new.offline_replicas == [3]


def test_metadata_request_by_topic_id_finds_the_topic(broker: FakeBroker) -> None:
    topic_id = broker.create("a")
    topics = [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": b"x" * 16}]
    known, unknown = broker.ask(METADATA, 12, {"topics": topics}).topics
    assert (known.name, known.topic_id, known.error_code) == ("a", topic_id, 0)
    assert (unknown.name, unknown.topic_id) == (None, b"x" * 16)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_request_by_topic_id_in_versions_10_and_11_is_refused(
    broker: FakeBroker, version: int
) -> None:
    (topic,) = broker.ask(
        METADATA, version, {"topics": [{"name": "a", "topic_id": b"x" * 16}]}
    ).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_metadata_request_for_authorized_operations_returns_all_without_an_authorizer(
    broker: FakeBroker,
) -> None:
    broker.create("a")
    wanted = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    answer = broker.ask(METADATA, 10, {"topics": [{"name": "a"}]} | wanted)
    assert answer.topics[0].topic_authorized_operations == 3576
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no good", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
@pytest.mark.parametrize("version", [0, 4, 9, 13])
def test_metadata_of_a_missing_or_invalid_topic_has_an_error_without_automatic_creation(
    version: int, name: str, code: ErrorCode
) -> None:
    broker = FakeBroker(auto_create_topics_enable="false")
    (topic,) = broker.ask(METADATA, version, asking(name, creates=True)).topics
    assert (topic.error_code, topic.name, topic.partitions) == (code, name, [])
    assert broker.state.topics == {}


def test_metadata_answer_is_encoded_once_until_the_metadata_changes(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("a")
    encoded = []
    encode = control.encode_short_response
    monkeypatch.setattr(
        control, "encode_short_response", lambda *args: (encoded.append(args), encode(*args))[1]
    )
    for _ in range(3):
        broker.ask(METADATA, 12, {"topics": None})
    assert len(encoded) == 1
    broker.ask(METADATA, 9, {"topics": None})
    assert len(encoded) == 2
    broker.create("b")
    encoded.clear()
    assert len(broker.ask(METADATA, 12, {"topics": None}).topics) == 2
    broker.group.leader_id = 2
    assert broker.ask(METADATA, 12, {"topics": None}).controller_id == 2
    assert len(encoded) == 2


def test_metadata_answer_cache_is_bounded() -> None:
    broker = FakeBroker(auto_create_topics_enable="false")
    (handle,) = {broker.dispatcher.table[METADATA].handle}
    answers = handle.__self__  # type: ignore[attr-defined]
    for number in range(200):
        name = f"{number:0200d}"
        broker.ask(METADATA, 9, asking(name))
    assert answers._cached_bytes == sum(map(len, answers._cached.values()))
    answers._cached_bytes = 4 * 1024 * 1024
    before = len(answers._cached)
    broker.ask(METADATA, 9, asking("one more"))
    assert len(answers._cached) == before


async def test_metadata_answer_built_by_several_requests_is_counted_once_in_the_cache(
    broker: FakeBroker,
) -> None:
    topic = NewTopic("a", b"a".ljust(16), 2, 3)
    broker.controller.apply(CreateTopics((topic,)))
    names = ["a"] * 150  # the steps of a list this long let further requests in
    requests = [broker.request(METADATA, 9, asking(*names)) for _ in range(3)]
    assert not any(each.is_there for each in requests)
    for each in requests:
        assert len((await each.value()).topics) == 1
    answers = broker.dispatcher.table[METADATA].handle.__self__  # type: ignore[attr-defined]
    assert answers._cached_bytes == sum(map(len, answers._cached.values())) > 0


def test_metadata_request_creates_a_missing_topic() -> None:
    broker = FakeBroker(num_partitions="4")
    (topic,) = broker.ask(METADATA, 9, asking("new", creates=True)).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 4)
    assert len(broker.state.topics["new"].partitions[0].replicas) == 3


def test_metadata_request_below_version_4_always_creates_a_missing_topic(
    broker: FakeBroker,
) -> None:
    assert broker.ask(METADATA, 3, {"topics": [{"name": "new"}]}).topics[0].error_code == 0


def test_metadata_request_that_declines_creation_creates_no_topic(broker: FakeBroker) -> None:
    (topic,) = broker.ask(METADATA, 4, asking("new")).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.controller.commands == []


@pytest.mark.parametrize("name", ["no good", "__transaction_state", "__cluster_metadata"])
def test_metadata_request_never_creates_a_topic_with_a_reserved_or_invalid_name(
    broker: FakeBroker, name: str
) -> None:
    assert broker.ask(METADATA, 9, asking(name, creates=True)).topics[0].error_code != 0
    assert broker.controller.commands == []


def test_metadata_request_creates_the_offsets_topic_with_its_own_config() -> None:
    broker = FakeBroker(offsets_topic_num_partitions="7")
    (topic,) = broker.ask(METADATA, 9, asking("__consumer_offsets", creates=True)).topics
    assert topic.is_internal
    assert len(topic.partitions) == 7
    assert broker.state.topics["__consumer_offsets"].configs["cleanup.policy"] == "compact"


async def test_metadata_requests_for_a_new_topic_share_one_creation(broker: FakeBroker) -> None:
    broker.controller.delay_s = 0.02
    questions = [broker.answer(METADATA, 9, asking("new", creates=True)) for _ in range(20)]
    answers = await asyncio.gather(*questions)
    assert {answer.topics[0].error_code for answer in answers} == {0}
    assert len(broker.controller.commands) == 1


async def test_metadata_request_that_loses_the_creation_race_finds_the_topic(
    broker: FakeBroker,
) -> None:
    gate = broker.controller.gate = asyncio.Event()
    question = asyncio.ensure_future(broker.answer(METADATA, 9, asking("new", creates=True)))
    await turns_until(lambda: broker.controller.commands)
    first = {"name": "new", "num_partitions": 5, "replication_factor": 1}
    await broker.answer(CREATE_TOPICS, 7, {"topics": [first]})
    gate.set()
    assert len((await question).topics[0].partitions) == 5


def test_metadata_of_a_topic_that_cannot_be_created_is_unknown(broker: FakeBroker) -> None:
    broker.controller.failure = InvalidReplicationFactor("too few brokers")
    (topic,) = broker.ask(METADATA, 9, asking("new", creates=True)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.controller.failure = None
    assert broker.ask(METADATA, 9, asking("new", creates=True)).topics[0].error_code == 0


async def test_metadata_request_with_a_slow_topic_creation_gets_a_retriable_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto_creation, "CREATION_TIMEOUT_MS", 20)
    broker = FakeBroker()
    broker.controller.delay_s = 0.1
    first = await broker.answer(METADATA, 9, asking("new", creates=True))
    assert first.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    await until(lambda: "new" in broker.state.topics)
    second = await broker.answer(METADATA, 9, asking("new", creates=True))
    assert second.topics[0].error_code == 0
    assert len(broker.controller.commands) == 1


def pages(broker: FakeBroker, names: list[str], limit: int) -> list[list[tuple[str, int]]]:
    found: list[list[tuple[str, int]]] = []
    cursor = None
    while True:
        topics = [{"name": name} for name in names]
        question = {"topics": topics, "response_partition_limit": limit, "cursor": cursor}
        answer = broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, question)
        found.append([(t.name, p.partition_index) for t in answer.topics for p in t.partitions])
        if answer.next_cursor is None:
            return found
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
@pytest.mark.parametrize("names", [[], ["b", "a", "c"]])
def test_describe_topic_partitions_pages_have_every_partition_once_in_order(
    broker: FakeBroker, names: list[str], limit: int
) -> None:
    for name, count in (("b", 2), ("a", 3), ("c", 1)):
        broker.create(name, partitions=count)
    found = pages(broker, names, limit)
    partitions = [f"{topic}{index}" for page in found for topic, index in page]
    assert partitions == ["a0", "a1", "a2", "b0", "b1", "c0"]
    assert all(len(page) <= limit for page in found)


def test_describe_topic_partitions_page_stays_within_the_broker_limit() -> None:
    broker = FakeBroker(max_request_partition_size_limit="2")
    broker.create("a", partitions=5)
    assert [len(page) for page in pages(broker, ["a"], 2000)] == [2, 2, 1]


def test_describe_topic_partitions_shows_eligible_leader_replicas(broker: FakeBroker) -> None:
    broker.create("a", partitions=1)
    for node in (2, 3):
        broker.fence(node)
    (topic,) = broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": "a"}]}).topics
    (partition,) = topic.partitions
    assert partition.isr_nodes == [1]
    assert sorted(partition.eligible_leader_replicas) == sorted(
        broker.state.topics["a"].partitions[0].elr
    )
    assert partition.offline_replicas in ([2, 3], [3, 2])


def test_describe_topic_partitions_of_a_missing_topic_has_its_error_code(
    broker: FakeBroker,
) -> None:
    broker.create("b")
    question = {"topics": [{"name": "a"}, {"name": "b"}, {"name": "?"}]}
    answer = broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, question)
    assert [(t.name, t.error_code) for t in answer.topics] == [("?", 17), ("a", 3), ("b", 0)]


@pytest.mark.parametrize("cursor", [("z", 0), ("a", -1)])
def test_describe_topic_partitions_with_a_cursor_outside_the_request_is_refused(
    broker: FakeBroker, cursor: tuple[str, int]
) -> None:
    broker.create("a")
    question = {
        "topics": [{"name": "a"}],
        "cursor": {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    (topic,) = broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, question).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_metadata_request_of_librdkafka_with_three_extra_bytes_is_answered(
    broker: FakeBroker,
) -> None:
    broker.create("a")
    # Recorded from confluent-kafka 2.16.1, list_topics(): the count of topics as 4 bytes, not 1.
    frame = memoryview(bytearray.fromhex("0003000d00000003000772646b61666b610000000000010000"))
    answer = broker.dispatcher.dispatch(broker.context, broker.dispatcher.find(frame), frame)
    assert isinstance(answer, list)
    body = memoryview(b"".join(answer))[9:]
    assert [topic.name for topic in control.decode_response(METADATA, 13, body).topics] == ["a"]


async def test_metadata_of_many_partitions_is_encoded_in_slices_and_cached(
    broker: FakeBroker,
) -> None:
    for name, partitions in (("large", 3_000), ("small", 2)):
        new = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        await broker.answer(CREATE_TOPICS, 7, {"topics": [new]})
    answers = broker.dispatcher.table[METADATA].handle.__self__  # type: ignore[attr-defined]
    first = broker.answer(METADATA, 12, asking("large", "small"))
    assert len(answers._cached) == 0
    large, small = (await first).topics
    assert [p.partition_index for p in large.partitions] == list(range(3_000))
    assert len(small.partitions) == 2
    assert len(answers._cached) == 1
    changing = asyncio.ensure_future(broker.answer(METADATA, 12, asking("large")))
    await asyncio.sleep(0)
    later = {"name": "later", "num_partitions": 1, "replication_factor": 1}
    await broker.answer(CREATE_TOPICS, 5, {"topics": [later], "timeout": 1_000})
    assert len((await changing).topics[0].partitions) == 3_000
    assert len(answers._cached) == 0, "an outdated answer is not cached"


def test_metadata_request_for_5000_topics_is_answered(broker: FakeBroker) -> None:
    broker.create("t0")
    names = [f"t{n}" for n in range(5_000)]
    answer = broker.ask(METADATA, 12, asking(*names))
    assert [topic.name for topic in answer.topics] == names
    assert [topic.error_code for topic in answer.topics[:2]] == [0, 3]


SECURED = {"authorizer_class_name": STANDARD_AUTHORIZER}


def with_topics(broker: FakeBroker, topics: int, partitions: int = 1) -> list[str]:
    names = [f"t{n}" for n in range(topics)]
    new = tuple(NewTopic(each, each.encode().ljust(16), partitions, 3) for each in names)
    broker.controller.apply(CreateTopics(new))
    return names


def question_for(broker: FakeBroker, names: list[str] | None) -> metadata._Question:
    request: Any = SimpleNamespace()
    return metadata._Question(broker.context, 12, request, names)


@pytest.mark.parametrize("are_named", [False, True])
def test_metadata_of_many_denied_topics_runs_in_steps(are_named: bool) -> None:
    broker = FakeBroker(3, **SECURED)
    names = with_topics(broker, 1_000)
    question = question_for(broker, names if are_named else None)
    assert sum(1 for _ in metadata._values(question, {})) >= 20


def test_metadata_of_many_topics_with_few_partitions_runs_in_steps(broker: FakeBroker) -> None:
    names = with_topics(broker, 40, partitions=40)
    steps = metadata._values(question_for(broker, names), {})
    assert sum(1 for _ in steps) >= 32


@pytest.mark.parametrize("are_denied", [False, True])
def test_metadata_request_for_many_topics_checks_creatable_topics_in_steps(
    are_denied: bool,
) -> None:
    broker = FakeBroker(3, **SECURED) if are_denied else FakeBroker()
    names = [f"t{n}" for n in range(1_000)] if are_denied else with_topics(broker, 1_000)
    answers = broker.dispatcher.table[METADATA].handle.__self__  # type: ignore[attr-defined]
    assert sum(1 for _ in answers._to_create(question_for(broker, names))) >= 10


def test_describe_topic_partitions_of_many_names_runs_in_steps(broker: FakeBroker) -> None:
    names = [SimpleNamespace(name=f"t{n}") for n in range(1_000)]
    request: Any = SimpleNamespace(topics=names, cursor=None, response_partition_limit=2_000)
    context: Any = SimpleNamespace(broker=broker.services)
    header: Any = SimpleNamespace(api_version=0)
    steps = describe_topic_partitions(context, header, request)
    assert sum(1 for _ in steps) >= 20


def test_metadata_of_a_topic_that_cannot_be_created_logs_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    broker = FakeBroker(default_replication_factor="5")
    (topic,) = broker.ask(METADATA, 9, asking("new", creates=True)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "the automatic creation of new failed: " in caplog.text
