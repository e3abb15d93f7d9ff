"""Directed scenarios about one log: what is sent again, what only a leader has, what is damaged."""

from oncelog.deploy.judge.history.schema import Outcome
from oncelog.wire.errors import KafkaError

from .old_producer import OldProducer
from .reader import Reader
from .stage import Scenario, Stage

POWER_CUTS = 4  # one may happen to leave everything
LONE_ANSWER_MS = 700  # a lone leader must not answer acks=all; this is how long it is waited for


async def lost_answer(stage: Stage) -> None:
    """The answer to a batch is lost with its connection; the producer sends the batch again."""
    topic = await stage.topic("lost-answer")
    producer = OldProducer(stage, topic)
    await producer.initialize(node_id=stage.cluster.node_ids[0])
    assert await producer.send() == 0
    row, batch = producer.record(0)
    await producer.post(batch, 0, "first")

    async def is_there() -> bool:
        return await stage.log_end(topic) >= 2

    await stage.until(is_there, "the batch in the log")
    (await producer.to_leader(0, "first")).close()
    code, offset = await producer.deliver(batch, 0, "second")
    producer.note(row, code, offset, attempts=2)
    await stage.probe("answering a batch sent again", topic, code == 0, f"error {code}")
    if code == 0:
        await producer.send()


async def lone_leader(stage: Stage) -> None:
    """A leader that nobody follows gets a record with acks=all, is read, and dies."""
    topic = await stage.topic("lone-leader")
    producer = OldProducer(stage, topic)
    await producer.initialize(node_id=stage.cluster.node_ids[0])
    for _ in range(3):
        assert await producer.send() == 0
    reader = Reader(stage, topic)
    await reader.read(3)
    leader = await stage.leader(topic)
    await stage.cluster.cut_off(leader)
    await producer.send(node_id=leader, timeout_ms=LONE_ANSWER_MS)
    await reader.poll(200)
    await stage.cluster.kill(leader)
    await reader.close()

    async def has_moved() -> bool:
        return await stage.leader(topic) != leader

    await stage.until(has_moved, "another leader")
    successor = OldProducer(stage, topic)
    await successor.initialize(node_id=await stage.leader(topic))
    for _ in range(2):
        await successor.send()
    stage.dumps = True


async def two_producers(stage: Stage) -> None:
    """Two idempotent producers get their ids from different brokers, and write to one partition."""
    topic = await stage.topic("two-producers")
    first, second = OldProducer(stage, topic), OldProducer(stage, topic)
    await first.initialize(node_id=stage.cluster.node_ids[0])
    await second.initialize(node_id=stage.cluster.node_ids[1])
    for producer in (first, second, first, second):
        await producer.send()


async def flipped_bit(stage: Stage) -> None:
    """A bit of a producer snapshot flips while its node is down; its producer goes on."""
    topic = await stage.topic("flipped-bit")
    producer = OldProducer(stage, topic)
    await producer.initialize(node_id=stage.cluster.node_ids[0])
    for _ in range(3):
        assert await producer.send() == 0
    for node_id in stage.cluster.node_ids:
        await stage.cluster.stop(node_id)
        assert stage.cluster.flip_snapshots(node_id, topic, 0) > 0
        await stage.cluster.start(node_id)
        await stage.until_whole([topic])
    row, batch = producer.record(0)
    try:
        code, offset = await producer.deliver(batch, 0)
    except KafkaError as problem:
        code, offset = problem.number, -1
        stage.recorder.send_ended(row, Outcome.INFO)
    else:
        producer.note(row, code, offset)
    await stage.probe("going on after restarts", topic, code == 0, f"error {code}")
    stage.dumps = True


async def power_cut(stage: Stage) -> None:
    """All nodes lose their power at once; the topic was promised to survive that."""
    topic = await stage.topic("power-cut", flush_messages="1")
    for _ in range(POWER_CUTS):
        producer = OldProducer(stage, topic)
        await producer.initialize(node_id=stage.cluster.node_ids[0])
        for _ in range(10):
            assert await producer.send() == 0
        await stage.cluster.cut_power()
        await stage.cluster.heal()
        await stage.until_whole([topic])


SCENARIOS: dict[str, Scenario] = {
    "power-cut": power_cut,
    "lost-answer": lost_answer,
    "lone-leader": lone_leader,
    "two-producers": two_producers,
    "flipped-bit": flipped_bit,
}
