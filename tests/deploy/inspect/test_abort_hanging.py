"""Test that a hanging transaction is aborted by a marker, and one that has ended is not."""

from collections.abc import Iterable
from typing import Any, cast

import pytest

from oncelog.client.admin import Admin
from oncelog.client.cluster_view import PartialList
from oncelog.client.transaction_admin import DescribedTransaction, PartitionProducer
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.inspect.abort_transactions import abort_hanging
from oncelog.deploy.inspect.transaction_facts import holders
from oncelog.wire.errors import KafkaError, NetworkException
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
        self.listed: list[DescribedTransaction] = []
        self.listed_later: list[DescribedTransaction] = []
        self.silent: dict[int, KafkaError] = {}

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

    async def list_transactions(self, *, needs_all_brokers: bool, **_: Any) -> PartialList[Any]:
        if needs_all_brokers and self.silent:
            raise NetworkException("node 2 cannot be reached")
        listed, self.listed = self.listed, self.listed or self.listed_later
        return PartialList(listed, self.silent)

    async def describe_listed(self, listed: Iterable[Any]) -> dict[str, Any]:
        return {each.transactional_id: each for each in listed}

    async def abort(self, topic: str, partition: int, producer: PartitionProducer) -> None:
        assert (topic, partition) == KEY
        self.aborted.append(producer.first_offset)


def described_of_epoch(epoch: int) -> DescribedTransaction:
    return DescribedTransaction(
        transactional_id="app",
        coordinator=1,
        state="Ongoing",
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=60_000,
        start_ms=0,
        partitions=(KEY,),
    )


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


@pytest.mark.parametrize("is_listed", [True, False])
async def test_abort_hanging_with_a_silent_broker_is_refused(is_listed: bool) -> None:
    """The silent broker may be the coordinator, even if an earlier one lists an older epoch."""
    cluster = Cluster(5)
    cluster.silent = {2: NetworkException("node 2 cannot be reached")}
    if is_listed:
        cluster.listed = [described_of_epoch(0)]
    with pytest.raises(NetworkException, match="node 2"):
        await abort_hanging(cast(Admin, cluster), KEY, 7)
    assert cluster.aborted == []


async def test_abort_hanging_while_the_coordinator_changes_is_refused() -> None:
    """The new coordinator was asked before its election, and the old one after its resignation."""
    cluster = Cluster(5)
    cluster.listed_later = [described_of_epoch(1)]
    with pytest.raises(Failure, match="does not hang: app"):
        await abort_hanging(cast(Admin, cluster), KEY, 7)
    assert cluster.aborted == []


async def test_holders_need_no_silent_broker_for_a_transaction_that_the_others_know() -> None:
    cluster = Cluster(5)
    cluster.silent = {2: NetworkException("node 2 cannot be reached")}
    cluster.listed = [described_of_epoch(1)]
    ((holder,),) = (await holders(cast(Admin, cluster), [KEY])).values()
    assert holder.is_known(KEY)
