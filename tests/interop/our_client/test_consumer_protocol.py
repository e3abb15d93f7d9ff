"""Test members with group.protocol=consumer (KIP-848) on oncelog and on Apache Kafka."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from oncelog.client import Admin, BlockingConsumer, Consumer, OffsetAndMetadata, Producer
from oncelog.client.failures import CommitFailed
from oncelog.client.groups.consumer_member import ConsumerGroupMember
from oncelog.wire.errors import ErrorCode, KafkaError

from ...present import present
from ..client_peers import QUICK, TIMEOUT_S, new_topic

pytestmark = pytest.mark.cluster
GONE_ON = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH)
Places = list[tuple[str, int]]


def settings(group: str, **more: Any) -> dict[str, Any]:
    reads = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return {**QUICK, **reads, "group_protocol": "consumer", "group_id": group, **more}


async def fill(bootstrap: str, topic: str, numbers: range, partitions: int) -> None:
    async with Producer(bootstrap, **QUICK) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % partitions)


def member_of(consumer: Consumer) -> ConsumerGroupMember:
    assert isinstance(consumer._member, ConsumerGroupMember)
    return consumer._member


async def until(holds: Callable[[], bool], *consumers: Consumer) -> list[int]:
    """Poll all consumers until the condition holds, and return the values that they read."""
    rows: list[int] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            for found in await asyncio.gather(*(c.poll(20) for c in consumers)):
                rows += [int(present(row.value)) for row in found]
    return rows


async def until_shared(partitions: int, *consumers: Consumer) -> list[int]:
    def holds() -> bool:
        counts = [len(c.assignment) for c in consumers]
        return all(counts) and sum(counts) == partitions

    rows = await until(holds, *consumers)
    assert len({place for c in consumers for place in c.assignment}) == partitions
    return rows


async def until_read(count: int, rows: list[int], *consumers: Consumer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while len(rows) < count:
            for consumer in consumers:
                rows += [int(present(row.value)) for row in await consumer.poll(20)]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
async def test_consumer_group_with_joining_and_leaving_members_reads_every_record_once(
    bootstrap, assignor
):
    topic = await new_topic(bootstrap, 4)
    await fill(bootstrap, topic, range(400), 4)
    given = settings(topic, group_remote_assignor=assignor, enable_auto_commit=True)
    async with AsyncExitStack() as stack:
        first, second, third = [
            await stack.enter_async_context(Consumer(bootstrap, **given)) for _ in range(3)
        ]
        first.subscribe([topic])
        rows = await until_shared(4, first)
        second.subscribe([topic])
        third.subscribe([topic])
        rows += await until_shared(4, first, second, third)
        assert sorted(len(c.assignment) for c in (first, second, third)) == [1, 1, 2]
        await fill(bootstrap, topic, range(400, 440), 4)
        await second.close()
        rows += await until_shared(4, first, third)
        await first.close()
        rows += await until_shared(4, third)
        await until_read(440, rows, third)
        await third.poll(0)
    assert sorted(rows) == list(range(440))
    async with Consumer(bootstrap, **given) as last:
        found = await last.committed([(topic, index) for index in range(4)])
        assert sum(each.offset for each in found.values()) == 440


async def test_offsets_of_revoked_partitions_are_committed_before_their_reassignment(
    bootstrap,
):
    topic = await new_topic(bootstrap, 2)
    await fill(bootstrap, topic, range(20), 2)
    happened: list[tuple[str, str, Places]] = []

    def noting(name: str) -> dict[str, Any]:
        def note(what: str) -> Callable[[Places], None]:
            return lambda places: happened.append((name, what, places))

        return {f"on_{what}": note(what) for what in ("assigned", "revoked", "lost")}

    given = settings(topic, enable_auto_commit=True)
    async with Consumer(bootstrap, **given) as second, Consumer(bootstrap, **given) as first:
        first.subscribe([topic], **noting("first"))
        rows: list[int] = []
        await until_read(20, rows, first)
        second.subscribe([topic], **noting("second"))
        rows += await until_shared(2, first, second)
        (kept,), (given_up,) = first.assignment, second.assignment
        assert (await second.committed([given_up]))[given_up].offset == 10
        rows += await until(lambda: second.position(*given_up) == 10, second)
        assert sorted(rows) == list(range(20))
    assert happened[:3] == [
        ("first", "assigned", [(topic, 0), (topic, 1)]),
        ("first", "revoked", [given_up]),
        ("second", "assigned", [given_up]),
    ]
    assert happened[3] == ("first", "revoked", [kept])
    assert not any(what == "lost" for _, what, _ in happened)


async def test_static_member_that_restarts_regains_partitions_and_a_duplicate_instance_is_refused(
    bootstrap,
):
    topic = await new_topic(bootstrap, 4)
    given = settings(topic)
    changes: list[Places] = []
    async with Consumer(bootstrap, group_instance_id="one", **given) as stays:
        stays.subscribe([topic], on_revoked=changes.append)
        async with Consumer(bootstrap, group_instance_id="two", **given) as goes:
            goes.subscribe([topic])
            await until_shared(4, stays, goes)
            await stays.poll(0)
            had, epoch = goes.assignment, stays.group_metadata().generation_id
            changes.clear()
            async with Consumer(bootstrap, group_instance_id="two", **given) as other:
                other.subscribe([topic])
                with pytest.raises(KafkaError) as caught:
                    await until(lambda: False, other)
                assert caught.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
                with pytest.raises(KafkaError):
                    await other.poll(0)
        async with Consumer(bootstrap, group_instance_id="two", **given) as back:
            back.subscribe([topic])
            await until_shared(4, stays, back)
            assert back.assignment == had
            await asyncio.gather(*(c.poll(300) for c in (stays, back)))
            assert stays.group_metadata().generation_id == epoch and changes == []


async def test_recreated_topic_gets_no_commit_of_the_old_topic(
    bootstrap,
):
    topic = await new_topic(bootstrap, 1)
    place = topic, 0
    given = settings(topic, default_api_timeout_ms=500)
    async with Consumer(bootstrap, **given) as consumer, Admin(bootstrap) as admin:
        consumer.subscribe([topic])
        await until_shared(1, consumer)
        await consumer.commit({place: 0})
        await admin.delete_topics([topic])
        await admin.create_topic(topic, partitions=1)
        with pytest.raises(KafkaError, match="no topic with this id"):
            await consumer.commit({place: 7})
        began_s = time.monotonic()
        with pytest.raises(KafkaError, match="no topic with this id"):
            await consumer._commit({place: OffsetAndMetadata(7)}, by_itself=True)
        assert time.monotonic() - began_s < 0.4, "it waited for a topic that is gone"
        assert await admin.groups.committed(topic, [place]) == {}


async def test_subscribed_pattern_gets_matching_topics_and_is_replaced_by_names(bootstrap):
    one, other = await new_topic(bootstrap, 2), await new_topic(bootstrap, 1)
    async with Consumer(bootstrap, **settings(one)) as consumer:
        consumer.subscribe(pattern=f"{one[:-1]}.|{other[:-1]}[^x]")
        await until_shared(3, consumer)
        consumer.subscribe(["not there", one])
        await until_shared(2, consumer)
        consumer.subscribe([other], pattern=one)
        await until_shared(3, consumer)
        consumer.subscribe(pattern="(")
        with pytest.raises(KafkaError) as caught:
            await until(lambda: False, consumer)
        assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_subscribed_topic_that_gains_partitions_and_is_deleted_changes_the_assignment(
    bootstrap,
):
    topic, other = await new_topic(bootstrap, 1), await new_topic(bootstrap, 1)
    async with Consumer(bootstrap, **settings(topic)) as consumer, Admin(bootstrap) as admin:
        consumer.subscribe([topic, other])
        await until_shared(2, consumer)
        await admin.create_partitions(topic, 3)
        await until_shared(4, consumer)
        await admin.delete_topics([other])
        await until_shared(3, consumer)
        consumer.subscribe([])
        await until(lambda: not consumer.assignment, consumer)
        consumer.subscribe([topic])
        await until_shared(3, consumer)


async def test_commit_refused_as_stale_member_epoch_is_repeated_with_the_newer_epoch(bootstrap):
    """After STALE_MEMBER_EPOCH the answer to the next heartbeat has the right epoch."""
    topic = await new_topic(bootstrap, 1)
    place = topic, 1
    async with Consumer(bootstrap, **settings(topic)) as consumer, Admin(bootstrap) as admin:
        consumer.subscribe([topic])
        await until_shared(1, consumer)
        membership = member_of(consumer)._membership
        before = membership.epoch
        await admin.create_partitions(topic, 2)
        await until_shared(2, consumer)
        right = membership.epoch
        assert right > before

        def lose_the_last_answer() -> None:
            membership.epoch, membership._told = before, None

        lose_the_last_answer()
        await asyncio.wait_for(consumer.commit({place: 7}), TIMEOUT_S)
        assert membership.epoch == right
        lose_the_last_answer()
        found = await asyncio.wait_for(consumer.committed([place]), TIMEOUT_S)
        assert (found[place].offset, membership.epoch) == (7, right)


async def test_member_removed_from_its_group_loses_its_partitions_and_rejoins(bootstrap):
    topic = await new_topic(bootstrap, 1)
    lost: Places = []
    async with Consumer(bootstrap, **settings(topic)) as consumer:
        consumer.subscribe([topic], on_lost=lost.extend)
        await until_shared(1, consumer)
        member = member_of(consumer)
        leaving = member._membership._leaving()
        await member.requests.heartbeat(leaving, 5_000)  # as if its session were over
        with pytest.raises(CommitFailed) as caught:
            await consumer.commit({(topic, 0): 1})
        assert caught.value.code in (ErrorCode.ILLEGAL_GENERATION, *GONE_ON)
        await until(lambda: lost == [(topic, 0)], consumer)
        await until_shared(1, consumer)
        await consumer.poll(0)
        await consumer.commit({(topic, 0): 1})
        assert (await consumer.committed([(topic, 0)]))[topic, 0].offset == 1


@pytest.mark.parametrize("instance", [None, "one"])
async def test_member_that_exceeds_max_poll_interval_leaves_and_rejoins_at_the_next_poll(
    bootstrap, instance
):
    topic = await new_topic(bootstrap, 1)
    lost: Places = []
    given = settings(topic, group_instance_id=instance, max_poll_interval_ms=500)
    async with (
        Consumer(bootstrap, **given) as slow,
        Consumer(bootstrap, **settings(topic)) as next_,
    ):
        slow.subscribe([topic], on_lost=lost.extend)
        await until_shared(1, slow)
        if instance is None:
            next_.subscribe([topic])
            await until_shared(1, next_)
            await next_.close()
        else:
            await asyncio.sleep(1.0)
        await until(lambda: lost == [(topic, 0)], slow)
        await until_shared(1, slow)


async def test_transactional_offsets_with_an_old_member_epoch_are_refused_for_revoked_partitions(
    bootstrap,
):
    topic = await new_topic(bootstrap, 2)
    first, second = (Consumer(bootstrap, **settings(topic)) for _ in range(2))
    producer = Producer(bootstrap, transactional_id=topic, **QUICK)
    revoked: Places = []

    async def commits(consumer: Consumer, places: Places, offset: int) -> None:
        await producer.begin_transaction()
        offsets = dict.fromkeys(places, offset)
        await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        await producer.commit_transaction()

    async def on_revoked(places: Places) -> None:
        await commits(first, places, 7)
        revoked.extend(places)

    async with producer, second, first, asyncio.timeout(2 * TIMEOUT_S):
        await producer.init_transactions()
        first.subscribe([topic], on_revoked=on_revoked)
        await until_shared(2, first)
        await first.poll(0)
        await commits(first, first.assignment, 1)
        of_both = first.group_metadata()
        second.subscribe([topic])
        await until_shared(2, first, second)
        assert len(revoked) == 1
        assert (await second.committed(revoked))[revoked[0]].offset == 7
        # The epoch before is right for partitions kept since, wrong for those revoked.
        for places, is_right in ((first.assignment, True), (revoked, False)):
            await producer.begin_transaction()
            sending = producer.send_offsets_to_transaction(dict.fromkeys(places, 9), of_both)
            if is_right:
                await sending
                await producer.commit_transaction()
                continue
            with pytest.raises(KafkaError) as caught:
                await sending
            assert caught.value.code in GONE_ON and caught.value.abortable
            await producer.abort_transaction()
        found = await second.committed([(topic, 0), (topic, 1)])
        assert {each.offset for each in found.values()} == {7, 9}


async def test_classic_and_consumer_protocol_members_share_one_group(bootstrap):
    topic = await new_topic(bootstrap, 2)
    classic = {"group_protocol": "classic", "partition_assignment_strategy": ["sticky"]}
    async with Consumer(bootstrap, **(settings(topic) | classic)) as first:
        first.subscribe([topic])
        await until_shared(2, first)
        async with Consumer(bootstrap, **settings(topic)) as second:
            second.subscribe([topic])
            await until_shared(2, first, second)
        await until_shared(2, first)


async def test_consumer_with_an_unknown_server_assignor_is_refused(bootstrap):
    topic = await new_topic(bootstrap, 1)
    async with Consumer(bootstrap, **settings(topic, group_remote_assignor="best")) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(KafkaError, match="uniform") as caught:
            await until(lambda: False, consumer)
        assert caught.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_blocking_consumer_of_the_consumer_protocol_reads_and_commits(bootstrap):
    topic = asyncio.run(new_topic(bootstrap, 2))
    asyncio.run(fill(bootstrap, topic, range(100), 2))
    assigned: list[Places] = []
    with BlockingConsumer(bootstrap, **settings(topic)) as consumer:
        consumer.subscribe(
            pattern=topic, on_assigned=lambda places: assigned.append(consumer.assignment)
        )
        rows, deadline = [], time.monotonic() + TIMEOUT_S
        while len(rows) < 100 and time.monotonic() < deadline:
            rows += [int(present(row.value)) for row in consumer.poll(100)]
        consumer.commit()
        assert sorted(rows) == list(range(100)) and assigned == [[(topic, 0), (topic, 1)]]
        found = consumer.committed(consumer.assignment)
        assert [each.offset for each in found.values()] == [50, 50]
        assert consumer.group_metadata().generation_id > 0
