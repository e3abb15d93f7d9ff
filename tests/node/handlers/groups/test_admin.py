"""Test ListGroups while shards (partitions of __consumer_offsets) resign or fail."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.coordinator.groups.group import GroupType
from oncelog.node.groups.shard import ShardState
from oncelog.node.handlers.groups.admin import list_groups
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator


class Shard(SimpleNamespace):
    """A shard with one group. The records of the group are not committed yet."""

    def __init__(self, group_id: str) -> None:
        group = SimpleNamespace(
            group_id=group_id, protocol_type="consumer", state_name="Empty",
            type=GroupType.CONSUMER,
        )  # fmt: skip
        super().__init__(
            groups={group_id: group}, state=ShardState.SERVING, consumer_records_until=2, replayed=1
        )


class Groups:
    """The shards of a broker. The first one resigns or fails while its records are awaited."""

    is_stopping = False

    def __init__(self, error: KafkaError) -> None:
        self.shards, self.error = [Shard("a"), Shard("b")], error

    async def until_settled(self, shard: Shard) -> None:
        if shard is self.shards[0]:
            shard.groups.clear()
            shard.state = ShardState.CLOSED
            raise self.error


def listing(error: KafkaError) -> Any:
    context: Any = SimpleNamespace(broker=SimpleNamespace(groups=Groups(error)))
    header: Any = SimpleNamespace(api_version=5)
    request: Any = SimpleNamespace()
    return list_groups(context, header, request)


async def test_list_groups_while_a_shard_resigns_lists_groups_of_other_shards() -> None:
    found: Any = run_to_end(await listing(NotCoordinator()))
    assert [group["group_id"] for group in found["groups"]] == ["b"]


async def test_list_groups_with_group_records_that_stay_unreplicated_is_refused() -> None:
    with pytest.raises(CoordinatorNotAvailable):
        await listing(CoordinatorNotAvailable())
