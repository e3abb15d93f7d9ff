"""What a produce is answered: a partition for each batch, in the order of the request."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oncelog.wire.errors import ErrorCode

from .leading_broker import LeadingBroker, batch

E = ErrorCode
Test = Callable[[LeadingBroker], Awaitable[None]]


def run(directory: Path, test: Test, **options: object) -> None:
    async def make() -> None:
        await test(LeadingBroker(directory, **options))  # type: ignore[arg-type]

    asyncio.run(make())


def plain() -> bytearray:
    return batch(-1, producer_id=-1, epoch=-1, transactional=False)


@pytest.mark.parametrize("ends_well", [True, False])
def test_each_batch_of_a_partition_that_is_named_twice_is_answered_with_what_became_of_it(
    tmp_path: Path, ends_well: bool
) -> None:
    """Kafka appends the last one only and answers once."""

    async def test(broker: LeadingBroker) -> None:
        batches = [(0, plain()), (1, plain()), (0, plain()), (0, plain()[:-1])]
        answer = broker.produce(broker.connect(), batches, transactional_id=None)
        assert not answer.is_there
        broker.replicate(1)
        broker.replicate(0, up_to=1)
        assert not answer.is_there, "the second batch is not committed"
        if ends_well:
            broker.replicate(0)
        else:
            broker.resign(0)
        (topic,) = (await answer.value()).topics
        found = [(p.index, p.error_code, p.base_offset) for p in topic.partitions]
        lost = E.NOT_LEADER_OR_FOLLOWER
        of_0 = [(0, E.NONE, 0), (0, E.NONE, 1)] if ends_well else [(0, lost, -1), (0, lost, -1)]
        assert found == [of_0[0], (1, E.NONE, 0), of_0[1], (0, E.INVALID_RECORD, -1)]

    run(tmp_path, test, partitions=2, replicas=(1, 2), min_insync_replicas=2)
