"""Directed scenarios about transactions, with fenced producers, late requests and failovers."""

import asyncio
from functools import partial

from oncelog.client.group_metadata import GroupMetadata
from oncelog.proof.chaos.load.payloads import plain
from oncelog.proof.chaos.load.recorded_producer import RecordedProducer
from oncelog.proof.judge.history.schema import OpOutcome
from oncelog.wire.messages import control

from .context import TIMEOUT_S, Context, Scenario
from .old_producer import END, END_VERSION, OldProducer
from .reader import Reader

WRITE_MARKERS, MARKERS_VERSION = 27, 1
TIMEOUT_MS = 1_000


async def zombie(context: Context) -> None:
    """A producer writes again after another one has initialized its transactional id."""
    topic = await context.topic("zombie")
    old, new = OldProducer(context, topic, "worker"), OldProducer(context, topic, "worker")
    await old.initialize()
    await old.begin(0)
    assert await old.send() == 0
    await new.initialize()
    await new.begin(0)
    assert await new.send() == 0
    await old.send()
    old.give_up()
    assert await new.end(True) is OpOutcome.OK


async def late_marker(context: Context) -> None:
    """A marker of a deposed coordinator arrives in the middle of a transaction."""
    topic = await context.topic("late-marker")
    producer = OldProducer(context, topic, "worker")
    await producer.initialize()
    await producer.begin(0)
    await producer.send()
    await producer.end(False)
    epoch = await _marked(context, topic, producer)
    deposed = await producer.coordinator()
    await context.cluster.kill(deposed)
    await context.until(producer.coordinator, lambda now: now != deposed, "another coordinator")
    await context.cluster.start(deposed)
    await context.until_whole([topic])
    await producer.begin(0)
    await producer.send()
    assert await producer.end(True) is OpOutcome.OK
    marked = partial(_marked, context, topic, producer)
    await context.until(marked, lambda now: now > epoch, "a marker of the new coordinator")
    await producer.begin(0)
    assert await producer.send() == 0
    marker = {
        "producer_id": producer.identity[0],
        "producer_epoch": producer.identity[1],
        "coordinator_epoch": epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    leader = await context.connection(await context.leader(topic))
    await leader.call(WRITE_MARKERS, {"markers": [marker]}, newest=MARKERS_VERSION)
    await producer.send()
    assert await producer.end(True) is OpOutcome.OK


async def dead_coordinator(context: Context) -> None:
    """A coordinator dies after its decision to commit a transaction, before a marker is written."""
    topic = await context.topic("dead-coordinator")
    leader = await context.leader(topic)
    producer = OldProducer(context, topic, "worker-0")
    number = 0
    while await producer.coordinator() == leader:
        number += 1
        producer = OldProducer(context, topic, f"worker-{number}")
    await producer.initialize()
    await producer.begin(0)
    assert await producer.send() == 0
    coordinator = await producer.coordinator()
    await context.cluster.cut_off(leader)
    assert await producer.end(True) is OpOutcome.OK
    await context.cluster.kill(coordinator)


async def two_partitions(context: Context) -> None:
    """Commit one transaction over two partitions."""
    topic = await context.topic("two-partitions", 2)
    producer = await _new_producer(context, "worker")
    await producer.begin()
    await _send(context, producer, topic, 0)
    await _send(context, producer, topic, 1)
    assert await producer.commit() is OpOutcome.OK
    await producer.close()


async def open_transaction(context: Context) -> None:
    """A reader of committed data reads while a transaction is open."""
    topic = await context.topic("open-transaction")
    producer = await _new_producer(context, "worker")
    await producer.begin()
    await _send(context, producer, topic, 0)
    await context.until(partial(context.log_end, topic), bool, "the record in the log")
    reader = Reader(context, topic)
    await reader.poll(500)
    await asyncio.sleep(0.1)  # only the times show that the commit is later
    assert await producer.commit() is OpOutcome.OK
    await reader.read(1)
    await reader.close()
    await producer.close()


async def late_produce(context: Context) -> None:
    """A batch arrives after its producer timed out and aborted the transaction."""
    topic = await context.topic("late-produce")
    producer = OldProducer(context, topic, "worker")
    await producer.initialize()
    await producer.begin(0)
    assert await producer.send() == 0
    assert await producer.end(True) is OpOutcome.OK
    await producer.begin(0)
    transaction = producer.transaction
    row, late = producer.record(0, transaction)
    await producer.end(False)
    # A record and two markers: before the second one the batch is not late.
    end = partial(context.log_end, topic)
    await context.until(end, lambda offset: offset >= 3, "the marker of the abort")
    code, offset = await producer.deliver(late, 0)
    producer.note(row, code, offset)


async def aborted_offsets(context: Context) -> None:
    """A job commits the offset of its first input, and aborts the offset of the next two inputs.

    Each of the two offsets is sent in a transaction of its own.
    """
    source, sink = await context.topic("inputs"), await context.topic("outputs")
    recorder, group = context.recorder, "job"
    writer = OldProducer(context, source)
    await writer.initialize(node_id=context.cluster.node_ids[0])
    for _ in range(3):
        assert await writer.send() == 0
    producer = await _new_producer(context, "job-1")
    for first, end, is_commit in ((0, 1, True), (1, 3, False)):
        transaction = await producer.begin()
        for offset in range(first, end):
            value = await _send(context, producer, sink, 0)
            recorder.add("derivations", value, group, f"{source}/0", offset)
        row = (transaction.number, producer.process, group, f"{source}/0", first, end)
        recorder.add("offset_commits", *row, recorder.now_ns(), OpOutcome.INFO)
        await producer.send_offsets({(source, 0): end}, GroupMetadata(group))
        await (producer.commit() if is_commit else producer.abort())
    await producer.close()
    found = await context.admin.groups.committed(group, [(source, 0)], stable=True)
    offset = found[source, 0].offset
    recorder.add("committed", group, f"{source}/0", offset, recorder.now_ns())


async def late_end(context: Context) -> None:
    """An EndTxn is delayed, and its client repeats it on another connection and continues.

    The delayed request arrives during the next transaction (KAFKA-17754).
    """
    topic = await context.topic("late-end")
    producer = OldProducer(context, topic, "worker")
    await producer.initialize()
    await producer.begin(0)
    assert await producer.send() == 0
    at = await producer.coordinator()
    body = control.encode_request(END, END_VERSION, producer.ending(True))
    late = await context.late_request(at, END, END_VERSION, body)
    assert await producer.end(True, channel="next", attempts=2) is OpOutcome.OK
    await producer.begin(0, channel="next")
    assert await producer.send() == 0
    async with asyncio.timeout(TIMEOUT_S):
        await late.arrive()
    await producer.end(False, channel="next")


async def timeout(context: Context) -> None:
    """A producer pauses beyond its transaction timeout, and then uses another connection."""
    topic = await context.topic("timeout", 2)
    producer = OldProducer(context, topic, "worker")
    await producer.initialize(timeout_ms=TIMEOUT_MS)
    await producer.begin(0)
    assert await producer.send(0) == 0
    ask = partial(context.admin.transactions.describe, "worker")
    await context.until(ask, lambda known: known.state == "CompleteAbort", "the timeout")
    if await producer.add(1) == 0:
        await producer.send(1)
        await producer.end(True)
    else:
        producer.give_up()
    successor = OldProducer(context, topic, "worker")
    await successor.initialize()
    await successor.begin(0)
    assert await successor.send() == 0
    assert await successor.end(True) is OpOutcome.OK


async def _new_producer(context: Context, name: str) -> RecordedProducer:
    recorder = context.recorder
    producer = RecordedProducer(
        context.cluster.bootstrap,
        recorder,
        recorder.new_process(),
        context.settings,
        transactional_id=name,
    )
    await producer.initialize()
    return producer


async def _send(context: Context, producer: RecordedProducer, topic: str, partition: int) -> int:
    value = context.recorder.new_value()
    await producer.send(topic, partition, value, plain(value, 0))
    return value


async def _marked(context: Context, topic: str, producer: OldProducer) -> int:
    """Return the coordinator epoch of the producer's last marker in partition 0."""
    found = await context.admin.transactions.producers([(topic, 0)])
    (known,) = [p for p in found[topic, 0] if p.producer_id == producer.identity[0]]
    return known.coordinator_epoch


SCENARIOS: dict[str, Scenario] = {
    "zombie": zombie,
    "late-marker": late_marker,
    "dead-coordinator": dead_coordinator,
    "two-partitions": two_partitions,
    "open-transaction": open_transaction,
    "late-produce": late_produce,
    "aborted-offsets": aborted_offsets,
    "late-end": late_end,
    "timeout": timeout,
}
