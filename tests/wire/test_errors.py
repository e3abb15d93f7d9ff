"""Kafka's error table against the two other tables at hand."""

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


def test_the_table_has_every_code_of_kio_with_its_name_and_its_retriable_flag() -> None:
    theirs = {int(code): (code.name.upper(), code.retriable) for code in KioErrorCode}
    ours = {int(code): (code.name, code.is_retriable) for code in ErrorCode}
    assert {number: ours.get(number) for number in theirs} == theirs


def test_kafka_python_knows_no_code_that_we_lack() -> None:
    numbers = {number for number in kafka.errors.kafka_errors if number is not None}
    assert numbers <= {int(code) for code in ErrorCode}


@every_code
def test_each_code_has_a_class_named_after_it_and_a_sentence(code: ErrorCode) -> None:
    assert code.sentence.endswith(".")
    if code is ErrorCode.NONE:
        return
    name = "".join(part.capitalize() for part in code.name.split("_"))
    error = error_for(code)
    assert type(error) is getattr(errors, name)
    assert error.code is code
    assert (error.number, error.retriable) == (code, code.is_retriable)
    assert str(error) == code.sentence


def test_an_own_message_takes_the_place_of_the_sentence() -> None:
    assert str(error_for(3, "no topic named t")) == "no topic named t"


def test_message_longer_than_a_field_holds_keeps_both_ends() -> None:
    text = str(InvalidRequest(f"Invalid value {'9' * 40_000} for it: not a number"))
    assert len(text) <= MESSAGE_MAX
    assert text.startswith("Invalid value 999") and text.endswith("999 for it: not a number")


def test_an_unknown_number_is_kept() -> None:
    error = error_for(31000)
    assert isinstance(error, UnknownServerError)
    assert error.number == 31000
    assert not error.retriable
    assert isinstance(error, KafkaError)
