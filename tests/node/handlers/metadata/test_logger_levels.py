"""Test the change of log levels while the broker runs (KIP-412)."""

import logging
from collections.abc import Iterator

import pytest

from oncelog.wire.errors import ErrorCode

from ...fake_broker import FakeBroker
from .test_configs import APPEND, DESCRIBE, SET, SUBTRACT, UNSET, alter, change, described, resource

LOGGER = 8
NAME = "oncelog.test.levels"


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger(NAME)
    root = logging.root.level
    yield made
    made.setLevel(logging.NOTSET)
    logging.root.setLevel(root)


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_logger_level_is_set_and_shown_by_the_name_of_kafka(
    broker: FakeBroker, logger: logging.Logger, level: str
) -> None:
    assert alter(broker, change(LOGGER, "1", (NAME, SET, level))) == [(0, None)]
    shown = described(broker, LOGGER, "1")
    entry = shown[NAME]
    assert (entry.value, entry.config_source, entry.read_only) == (level, 6, False)
    assert {"root", "oncelog.test"} <= shown.keys()
    child = logging.getLogger(f"{NAME}.child")
    assert described(broker, LOGGER, "1")[child.name].value == level, "a child has it, too"
    assert not broker.controller.commands, "levels are no metadata"


def test_logger_level_that_is_deleted_falls_back_to_the_parent(
    broker: FakeBroker, logger: logging.Logger
) -> None:
    logging.root.setLevel(logging.ERROR)
    logger.setLevel(logging.DEBUG)
    assert alter(broker, change(LOGGER, "1", (NAME, UNSET, None))) == [(0, None)]
    assert logger.level == logging.NOTSET
    assert described(broker, LOGGER, "1")[NAME].value == "ERROR"


def test_logger_level_change_validated_only_sets_no_level(
    broker: FakeBroker, logger: logging.Logger
) -> None:
    resource = change(LOGGER, "1", (NAME, SET, "FATAL"))
    assert alter(broker, resource, validate_only=True) == [(0, None)]
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "operation", "code", "says"),
    [
        ("1", ("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG, "does not exist!"),
        ("1", (NAME, SET, "LOUD"), ErrorCode.INVALID_CONFIG, "not a supported log level"),
        ("1", (NAME, SET, None), ErrorCode.INVALID_REQUEST, "Null value"),
        ("1", ("root", UNSET, None), ErrorCode.INVALID_REQUEST, "root logger is not allowed"),
        ("1", (NAME, APPEND, "INFO"), ErrorCode.INVALID_REQUEST, "APPEND operation"),
        ("1", (NAME, SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST, "SUBTRACT operation"),
        ("2", (NAME, SET, "INFO"), ErrorCode.INVALID_REQUEST, "expected 1, but received 2"),
        ("", (NAME, SET, "INFO"), ErrorCode.INVALID_REQUEST, "must be an integer"),
    ],
)
def test_logger_level_change_with_one_wrong_entry_is_refused_as_a_whole(
    broker: FakeBroker,
    logger: logging.Logger,
    name: str,
    operation: tuple[str, int, str | None],
    code: int,
    says: str,
) -> None:
    good = ("oncelog.test", SET, "ERROR")
    logging.getLogger("oncelog.test")
    ((found, message),) = alter(broker, change(LOGGER, name, good, operation))
    assert (found, says in message) == (code, True)
    assert logger.level == logging.getLogger("oncelog.test").level == logging.NOTSET


@pytest.mark.parametrize("name", ["", "2", "x"])
def test_loggers_of_another_broker_are_not_described(broker: FakeBroker, name: str) -> None:
    (result,) = broker.ask(DESCRIBE, 4, {"resources": [resource(LOGGER, name)]}).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
