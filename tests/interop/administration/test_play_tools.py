"""Test that machine- and time-dependent parts of the tools' output are removed."""

import pytest

from .play_tools import comparable
from .tool_commands import Command
from .tool_sessions import Outcome


@pytest.mark.parametrize("number", ["7", "4321", "54321"])
def test_number_of_a_console_consumers_group_of_any_length_is_left_out(number: str) -> None:
    record = f'{{"key":{{"type":2,"data":{{"group":"console-consumer-{number}"}}}},"value":null}}'
    played = comparable(Command("formatter GroupMetadata", "", ""), Outcome("0", record, ""))
    assert played.lines == {'{"type":N,"data":{"group":"A CONSOLE CONSUMER"}}'}
