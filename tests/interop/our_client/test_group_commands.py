"""Test that `oncelog group` and `why --group` report consumer groups correctly."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncelog.cli.main import run
from oncelog.client import Consumer

from ..client_peers import TIMEOUT_S, new_topic
from .test_consumer_protocol import fill, settings, until, until_read

pytestmark = pytest.mark.cluster
Command = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def command(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs an `oncelog` command and returns its exit code and output."""

    async def ran(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(run, [*arguments, "--bootstrap", bootstrap])
        told = capsys.readouterr()
        return code or 0, told.out + told.err

    return ran


async def described(command: Command, group: str) -> dict[str, Any]:
    code, told = await command("group", "describe", group, "--format", "json")
    assert code == 0, told
    return json.loads(told)


async def test_group_commands_for_a_group_with_members_show_the_group_and_refuse_a_reset(
    bootstrap, command
):
    topic = await new_topic(bootstrap, 4)
    await fill(bootstrap, topic, range(40), 4)
    may_go_on = asyncio.Event()

    async def waits(_: object) -> None:
        await may_go_on.wait()

    given = settings(topic)
    async with Consumer(bootstrap, **given) as first, Consumer(bootstrap, **given) as second:
        first.subscribe([topic], on_revoked=waits)
        await until_read(40, [], first)
        await first.commit()
        second.subscribe([topic])
        member = second.group_metadata
        await until(lambda: first._positions.states[topic, 3].is_frozen, first, second)
        listed = json.loads((await command("group", "list", "--format", "json"))[1])
        (mine,) = [each for each in listed if each["group"] == topic]
        assert (mine["type"], mine["state"]) == ("consumer", "Reconciling")
        found = await described(command, topic)
        assert (found["type"], found["state"], found["members"]) == ("consumer", "Reconciling", 2)
        assert found["epoch"] == found["target epoch"] == member().generation_id
        who = {each["member"]: each for each in found["who"]}
        gives, takes = who[first.group_metadata().member_id], who[member().member_id]
        assert gives["epoch"] < takes["epoch"] == found["epoch"]
        assert gives["partitions"] == [f"{topic}/{index}" for index in range(4)]
        assert takes["partitions"] == [] and len(takes["target"]) == 2
        assert [each["lag"] for each in found["offsets"]] == [0] * 4
        asked = takes["target"][0]
        code, told = await command("why", asked, "--group", topic)
        assert code == 0 and f"read by {gives['member']}" in told
        assert "gives it up" in told and "takes it" in told
        code, told = await command("group", "describe", topic)
        assert f"{gives['member']} has yet to give up {', '.join(takes['target'])}" in told
        assert f"{takes['member']} waits for {', '.join(takes['target'])}" in told
        for arguments in (
            ("group", "reset", topic, "--to", "earliest", "--execute"),
            ("group", "delete", topic),
        ):
            code, told = await command(*arguments)
            assert code == 1 and "Reconciling with 2 members: stop them first" in told
        may_go_on.set()
    await asyncio.wait_for(ends_well(command, topic), TIMEOUT_S)


async def ends_well(command: Command, group: str) -> None:
    """Assert that an empty group can be described, reset and deleted."""
    assert (await described(command, group))["state"] == "Empty"
    code, told = await command("group", "reset", group, "--to", "earliest", "--execute")
    assert code == 0, told
    found = await described(command, group)
    assert [each["committed"] for each in found["offsets"]] == [0] * 4
    assert (await command("group", "delete", group))[0] == 0
    code, told = await command("group", "describe", group)
    assert code == 1 and "not found" in told
