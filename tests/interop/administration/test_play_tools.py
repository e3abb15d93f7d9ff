"""Test that fixed words replace the parts of a tool's output that depend on machine or time."""

import pytest

from .play_tools import comparable
from .tool_commands import CONFIGS, Command
from .tool_sessions import Outcome


@pytest.mark.parametrize("number", ["7", "4321", "54321"])
def test_console_consumer_group_number_of_any_length_is_replaced_in_tool_output(
    number: str,
) -> None:
    record = f'{{"key":{{"type":2,"data":{{"group":"console-consumer-{number}"}}}},"value":null}}'
    played = comparable(Command("formatter GroupMetadata", "", ""), Outcome("0", record, ""))
    assert played.lines == {'{"type":N,"data":{"group":"A CONSOLE CONSUMER"}}'}


def test_logger_names_except_root_and_logger_levels_are_replaced_in_tool_output() -> None:
    command = next(each for each in CONFIGS if each.name == "configs broker loggers")
    printed = "  root=ERROR sensitive=false\n  org.apache.kafka.Logger2=INFO sensitive=false\n"
    assert comparable(command, Outcome("0", printed, "")).lines == {
        "root=A LEVEL sensitive=false",
        "A LOGGER=A LEVEL sensitive=false",
    }


def test_logger_level_unknown_to_kafka_is_kept_in_tool_output() -> None:
    command = next(each for each in CONFIGS if each.name == "configs broker loggers")
    played = comparable(command, Outcome("0", "  a.b=NOTSET sensitive=false\n", ""))
    assert played.lines == {"A LOGGER=NOTSET sensitive=false"}
