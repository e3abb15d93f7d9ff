"""Test that machine- and time-dependent parts of the tools' output are removed."""

import pytest

from .play_tools import comparable
from .tool_commands import CONFIGS, Command
from .tool_sessions import Outcome


@pytest.mark.parametrize("number", ["7", "4321", "54321"])
def test_recorded_console_consumer_group_number_of_any_length_is_left_out(number: str) -> None:
    record = f'{{"key":{{"type":2,"data":{{"group":"console-consumer-{number}"}}}},"value":null}}'
    played = comparable(Command("formatter GroupMetadata", "", ""), Outcome("0", record, ""))
    assert played.lines == {'{"type":N,"data":{"group":"A CONSOLE CONSUMER"}}'}


def test_names_and_levels_of_loggers_are_left_out_but_for_the_root() -> None:
    command = next(each for each in CONFIGS if each.name == "configs broker loggers")
    printed = "  root=ERROR sensitive=false\n  org.apache.kafka.Logger2=INFO sensitive=false\n"
    assert comparable(command, Outcome("0", printed, "")).lines == {
        "root=A LEVEL sensitive=false",
        "A LOGGER=A LEVEL sensitive=false",
    }


def test_level_that_kafka_does_not_have_is_not_left_out() -> None:
    command = next(each for each in CONFIGS if each.name == "configs broker loggers")
    played = comparable(command, Outcome("0", "  a.b=NOTSET sensitive=false\n", ""))
    assert played.lines == {"A LOGGER=NOTSET sensitive=false"}
