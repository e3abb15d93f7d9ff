"""Test the APIs for changes that this cluster does not support, which change nothing."""

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode

from ...fake_broker import CLUSTER_ID, FakeBroker

LOG_DIRS, CREATE, RENEW, EXPIRE, DESCRIBE = 34, 38, 39, 40, 41
ADD, REMOVE, UNREGISTER_CONTROLLER = 80, 81, 94


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def test_alter_replica_log_dirs_to_another_directory_is_refused(broker: FakeBroker) -> None:
    broker.create("t", 1)
    own = str(broker.services.config.log_directory.absolute())

    def errors(*paths: str) -> dict[tuple[str, int], int]:
        topics = [{"name": "t", "partitions": [0, 7]}, {"name": "none", "partitions": [0]}]
        dirs = [{"path": path, "topics": topics} for path in paths]
        return {
            (row.topic_name, each.partition_index): each.error_code
            for row in broker.ask(LOG_DIRS, 2, {"dirs": dirs}).results
            for each in row.partitions
        }

    unknown, elsewhere = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LOG_DIR_NOT_FOUND
    assert errors(own) == {("t", 0): 0, ("t", 7): unknown, ("none", 0): unknown}
    assert set(errors("/elsewhere").values()) == {elsewhere}
    assert set(errors(own, "/elsewhere").values()) == {elsewhere}, "the last entry counts"
    assert errors("/elsewhere", own)["t", 0] == 0
    assert errors() == {}


@pytest.mark.parametrize(
    ("api_key", "values"),
    [
        (CREATE, {"renewers": [], "max_lifetime": -1}),
        (RENEW, {"hmac": b"x", "renew_period": 1}),
        (EXPIRE, {"hmac": b"x", "expiry_time_period": 1}),
        (DESCRIBE, {"owners": None}),
    ],
)
def test_delegation_token_requests_are_refused(
    broker: FakeBroker, api_key: int, values: dict[str, Any]
) -> None:
    answer = broker.ask(api_key, 2, values)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize(
    ("cluster_id", "error"),
    [
        (CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION),
        (None, ErrorCode.UNSUPPORTED_VERSION),
        ("another", ErrorCode.INCONSISTENT_CLUSTER_ID),
        ("", ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_raft_voter_changes_are_refused(
    broker: FakeBroker, cluster_id: str | None, error: int
) -> None:
    values = {"cluster_id": cluster_id, "voter_id": 9, "voter_directory_id": b"d" * 16}
    assert broker.ask(REMOVE, 0, values).error_code == error
    listeners = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}]
    for version in (0, 1):
        answer = broker.ask(ADD, version, values | {"listeners": listeners, "timeout": 1_000})
        assert answer.error_code == error


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [
        (1, ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."),
        (2, ErrorCode.NONE, ""),
        (77, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "ID 77 is not currently registered."),
        (-1, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "ID -1 is not currently registered."),
    ],
)
def test_unregister_controller_of_an_unknown_or_the_active_voter_is_refused(
    broker: FakeBroker, number: int, error: int, message: str
) -> None:
    answer = broker.ask(UNREGISTER_CONTROLLER, 0, {"controller_id": number})
    assert answer.error_code == error and answer.error_message.endswith(message)


def test_alter_replica_log_dirs_of_many_partitions_answers_each_partition(
    broker: FakeBroker,
) -> None:
    topics = [{"name": "t", "partitions": list(range(30_000))}]
    answer = broker.ask(LOG_DIRS, 1, {"dirs": [{"path": "/elsewhere", "topics": topics}]})
    (row,) = answer.results
    assert len(row.partitions) == 30_000
