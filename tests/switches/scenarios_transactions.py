"""Directed scenarios about transactions: zombies, late requests, deposed coordinators, timeouts."""

import asyncio

from oncelog.client.group_metadata import GroupMetadata
from oncelog.deploy.chaos.load.payloads import plain
from oncelog.deploy.chaos.load.recorded_producer import RecordedProducer
from oncelog.deploy.judge.history.schema import Outcome
from oncelog.wire.messages import control

from .old_producer import END, END_VERSION, OldProducer
from .reader import Reader
from .stage import Scenario, Stage

WRITE_MARKERS, MARKERS_VERSION = 27, 1
TIMEOUT_MS = 1_000


async def zombie(stage: Stage) -> None:
    """A producer writes once more after another one has taken its transactional id over."""
    topic = await stage.topic("zombie")
    old, new = OldProducer(stage, topic, "worker"), OldProducer(stage, topic, "worker")
    await old.initialize()
    await old.begin(0)
    assert await old.send() == 0
    await new.initialize()
    await new.begin(0)
    assert await new.send() == 0
    await old.send()
    old.give_up()
    assert await new.end(True) is Outcome.OK


async def late_marker(stage: Stage) -> None:
    """A marker of a coordinator that has lost its office comes in the middle of a transaction."""
    topic = await stage.topic("late-marker")
    producer = OldProducer(stage, topic, "worker")
    await producer.initialize()
    await producer.begin(0)
    await producer.send()
    await producer.end(False)
    epoch = await _marked(stage, topic, producer)
    deposed = await producer.coordinator()
    await stage.cluster.kill(deposed)

    async def has_moved() -> bool:
        return await producer.coordinator() != deposed

    await stage.until(has_moved, "another coordinator")
    await stage.cluster.start(deposed)
    await stage.until_whole([topic])
    await producer.begin(0)
    await producer.send()
    assert await producer.end(True) is Outcome.OK

    async def is_marked_anew() -> bool:
        return await _marked(stage, topic, producer) > epoch

    await stage.until(is_marked_anew, "a marker of the new coordinator")
    await producer.begin(0)
    assert await producer.send() == 0
    marker = {
        "producer_id": producer.identity[0],
        "producer_epoch": producer.identity[1],
        "coordinator_epoch": epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    leader = await stage.connection(await stage.leader(topic))
    await leader.call(WRITE_MARKERS, {"markers": [marker]}, newest=MARKERS_VERSION)
    await producer.send()
    assert await producer.end(True) is Outcome.OK


async def dead_coordinator(stage: Stage) -> None:
    """A coordinator dies when it has decided, and before a marker could be written."""
    topic = await stage.topic("dead-coordinator")
    leader = await stage.leader(topic)
    producer = OldProducer(stage, topic, "worker-0")
    number = 0
    while await producer.coordinator() == leader:
        number += 1
        producer = OldProducer(stage, topic, f"worker-{number}")
    await producer.initialize()
    await producer.begin(0)
    assert await producer.send() == 0
    coordinator = await producer.coordinator()
    await stage.cluster.cut_off(leader)
    assert await producer.end(True) is Outcome.OK
    await stage.cluster.kill(coordinator)


async def two_partitions(stage: Stage) -> None:
    """A transaction over two partitions is committed."""
    topic = await stage.topic("two-partitions", 2)
    producer = await _new_producer(stage, "worker")
    await producer.begin()
    await _send(stage, producer, topic, 0)
    await _send(stage, producer, topic, 1)
    assert await producer.commit() is Outcome.OK
    await producer.close()


async def open_transaction(stage: Stage) -> None:
    """A reader of committed data reads while a transaction is open."""
    topic = await stage.topic("open-transaction")
    producer = await _new_producer(stage, "worker")
    await producer.begin()
    await _send(stage, producer, topic, 0)

    async def is_there() -> bool:
        return await stage.log_end(topic) >= 1

    await stage.until(is_there, "the record in the log")
    reader = Reader(stage, topic)
    await reader.poll(500)
    await asyncio.sleep(0.1)  # that the commit is later can be told from the times only
    assert await producer.commit() is Outcome.OK
    await reader.read(1)
    await reader.close()
    await producer.close()


async def late_produce(stage: Stage) -> None:
    """A batch comes when its producer has given it up and had the transaction aborted."""
    topic = await stage.topic("late-produce")
    producer = OldProducer(stage, topic, "worker")
    await producer.initialize()
    await producer.begin(0)
    assert await producer.send() == 0
    assert await producer.end(True) is Outcome.OK
    await producer.begin(0)
    transaction = producer.transaction
    row, late = producer.record(0, transaction)
    await producer.end(False)

    async def is_aborted() -> bool:
        return await stage.log_end(topic) >= 3  # a record and two markers

    await stage.until(is_aborted, "the marker of the abort")  # before it, the batch is not late
    code, offset = await producer.deliver(late, 0)
    producer.note(row, code, offset)


async def aborted_offsets(stage: Stage) -> None:
    """A job commits the offset of one input, and aborts the transaction of the next two."""
    source, sink = await stage.topic("inputs"), await stage.topic("outputs")
    recorder, group = stage.recorder, "job"
    writer = OldProducer(stage, source)
    await writer.initialize(node_id=stage.cluster.node_ids[0])
    for _ in range(3):
        assert await writer.send() == 0
    producer = await _new_producer(stage, "job-1")
    for first, end, is_commit in ((0, 1, True), (1, 3, False)):
        transaction = await producer.begin()
        for offset in range(first, end):
            value = await _send(stage, producer, sink, 0)
            recorder.add("derivations", value, group, f"{source}/0", offset)
        row = (transaction.number, producer.process, group, f"{source}/0", first, end)
        recorder.add("offset_commits", *row, recorder.now_ns(), Outcome.INFO)
        await producer.send_offsets({(source, 0): end}, GroupMetadata(group))
        await (producer.commit() if is_commit else producer.abort())
    await producer.close()
    found = await stage.admin.groups.committed(group, [(source, 0)], stable=True)
    offset = found[source, 0].offset
    recorder.add("committed", group, f"{source}/0", offset, recorder.now_ns())


async def late_end(stage: Stage) -> None:
    """An EndTxn is held up on its way; its client repeats it on another connection and goes on.

    The late one arrives in the middle of the next transaction (KAFKA-17754).
    """
    topic = await stage.topic("late-end")
    producer = OldProducer(stage, topic, "worker")
    await producer.initialize()
    await producer.begin(0)
    assert await producer.send() == 0
    at = await producer.coordinator()
    body = control.encode_request(END, END_VERSION, producer.ending(True))
    late = await stage.cluster.hold_request(at, END, END_VERSION, body)
    assert await producer.end(True, channel="next", attempts=2) is Outcome.OK
    await producer.begin(0, channel="next")
    assert await producer.send() == 0
    await late.arrive()

    async def has_arrived() -> bool:
        return late.is_over()

    await stage.until(has_arrived, "the late request")
    late.close()
    await producer.end(False, channel="next")


async def timeout(stage: Stage) -> None:
    """A producer is silent for longer than its timeout, and then goes on elsewhere."""
    topic = await stage.topic("timeout", 2)
    producer = OldProducer(stage, topic, "worker")
    await producer.initialize(timeout_ms=TIMEOUT_MS)
    await producer.begin(0)
    assert await producer.send(0) == 0

    async def is_over() -> bool:
        state = await stage.admin.transactions.describe("worker")
        return state.state == "CompleteAbort"

    await stage.until(is_over, "the timeout")
    if await producer.add(1) == 0:
        await producer.send(1)
        await producer.end(True)
    else:
        producer.give_up()
    successor = OldProducer(stage, topic, "worker")
    await successor.initialize()
    await successor.begin(0)
    assert await successor.send() == 0
    assert await successor.end(True) is Outcome.OK


async def _new_producer(stage: Stage, name: str) -> RecordedProducer:
    recorder = stage.recorder
    producer = RecordedProducer(
        stage.cluster.bootstrap,
        recorder,
        recorder.new_process(),
        stage.settings,
        transactional_id=name,
    )
    await producer.initialize()
    return producer


async def _send(stage: Stage, producer: RecordedProducer, topic: str, partition: int) -> int:
    value = stage.recorder.new_value()
    await producer.send(topic, partition, value, plain(value, 0))
    return value


async def _marked(stage: Stage, topic: str, producer: OldProducer) -> int:
    """The coordinator epoch of the producer's last marker in a partition."""
    found = await stage.admin.transactions.producers([(topic, 0)])
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
