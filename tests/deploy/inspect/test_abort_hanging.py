"""Test that a hanging transaction is aborted by a marker, and one that has ended is not."""

from collections.abc import Iterable
from typing import Any, cast

import pytest

from oncelog.client.admin import Admin
from oncelog.client.transaction_admin import PartitionProducer
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.inspect.abort_transactions import abort_hanging
from oncelog.wire.identifiers import TopicPartition

KEY = ("t", 0)


class Cluster:
    """A cluster with one partition, in which a transaction that no coordinator knows is open.

    Each request for the partition's producers gets the next of `first_offsets`.
    """

    def __init__(self, *first_offsets: int) -> None:
        self.transactions = self
        self._left = list(first_offsets)
        self.aborted: list[int] = []

    async def producers(
        self, _: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[PartitionProducer]]:
        first = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        opened = PartitionProducer(
            producer_id=7,
            producer_epoch=1,
            last_sequence=0,
            last_timestamp_ms=0,
            coordinator_epoch=0,
            first_offset=first,
        )
        return {KEY: [opened]}

    async def list_transactions(self, **_: Any) -> list[Any]:
        return []

    async def describe_listed(self, _: Iterable[Any]) -> dict[str, Any]:
        return {}

    async def abort(self, topic: str, partition: int, producer: PartitionProducer) -> None:
        assert (topic, partition) == KEY
        self.aborted.append(producer.first_offset)


async def test_abort_hanging_without_a_coordinator_aborts_the_open_transaction() -> None:
    cluster = Cluster(5)
    assert await abort_hanging(cast(Admin, cluster), KEY, 7) == 5
    assert cluster.aborted == [5]


@pytest.mark.parametrize("second_look", [-1, 9])
async def test_abort_hanging_of_a_transaction_that_ended_meanwhile_is_refused(
    second_look: int,
) -> None:
    cluster = Cluster(5, second_look)
    with pytest.raises(Failure, match="has no transaction open"):
        await abort_hanging(cast(Admin, cluster), KEY, 7)
    assert cluster.aborted == []
