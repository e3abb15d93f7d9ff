"""Test Kafka's error table against those of kio and kafka-python."""

import kafka.errors
import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from oncelog.wire import errors
from oncelog.wire.errors import (
    MESSAGE_MAX,
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnknownServerError,
    error_for,
)

every_code = pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)


def test_error_table_has_every_code_of_kio_with_name_and_retriable_flag() -> None:
    theirs = {int(code): (code.name.upper(), code.retriable) for code in KioErrorCode}
    ours = {int(code): (code.name, code.is_retriable) for code in ErrorCode}
    assert {number: ours.get(number) for number in theirs} == theirs


def test_error_table_has_every_code_of_kafka_python() -> None:
    numbers = {number for number in kafka.errors.kafka_errors if number is not None}
    assert numbers <= {int(code) for code in ErrorCode}


@every_code
def test_error_code_of_each_number_has_a_named_class_and_a_sentence(code: ErrorCode) -> None:
    assert code.sentence.endswith(".")
    if code is ErrorCode.NONE:
        return
    name = "".join(part.capitalize() for part in code.name.split("_"))
    error = error_for(code)
    assert type(error) is getattr(errors, name)
    assert error.code is code
    assert (error.number, error.retriable) == (code, code.is_retriable)
    assert str(error) == code.sentence


def test_error_with_its_own_message_shows_that_message_instead_of_the_standard_sentence() -> None:
    assert str(error_for(3, "no topic named t")) == "no topic named t"


def test_error_message_longer_than_its_field_keeps_both_ends() -> None:
    text = str(InvalidRequest(f"Invalid value {'9' * 40_000} for it: not a number"))
    assert len(text) <= MESSAGE_MAX
    assert text.startswith("Invalid value 999") and text.endswith("999 for it: not a number")


def test_error_with_an_unknown_number_keeps_the_number() -> None:
    error = error_for(31000)
    assert isinstance(error, UnknownServerError)
    assert error.number == 31000
    assert not error.retriable
    assert isinstance(error, KafkaError)
