"""The load on a simulated cluster, with the workloads of chaos tests and an administrator."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Any

from oncelog.client.admin import LATEST, Admin
from oncelog.client.consumer import Consumer
from oncelog.client.producer import Producer
from oncelog.coordinator.metadata.commands import AlterPartitionReassignments, Reassignment
from oncelog.proof.chaos.load.payloads import plain
from oncelog.proof.chaos.load.settings import APPEND, BANK, GROUPS, OUTPUTS, LoadSettings
from oncelog.proof.chaos.load.workloads import load
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.schema import NONE, OpOutcome
from oncelog.wire.errors import KafkaError, UnknownTopicOrPartition

from .old_clients import transact
from .outcome import Shape
from .topics.own_topic import OwnTopic
from .virtual_cluster import VirtualCluster
from .virtual_node import VirtualClient

PROBE_TOPIC, GROUP_TOPIC = "probe", "__consumer_offsets"
OWN_TOPICS = ("latest", "passing")
PROBE_MS = 20_000
IDS_AT_ONCE = 20
GROUP_NAMES, LOOKS, LOOK_S, AT_ONCE_S, GONE_S = 3, 4, 0.005, 0.015, 0.5
EXTRAS = 5
CHANGES = (
    "create", "create", "delete", "extend", "config", "elect", "move", "move",
    "groups", "groups", "groups",
)  # fmt: skip
SHORT_LIVED, SHORT_LIFE_S = 0.4, 0.05  # of the topics made meanwhile
FINAL_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


def settings_of(shape: Shape, seed: int) -> LoadSettings:
    """Return the load settings of a seed's clients."""
    rng = random.Random(f"load of {seed}")
    of_protocols = random.Random(f"protocols of {seed}")
    return LoadSettings(
        consumer_groups=tuple(each for each in GROUPS if of_protocols.random() < 1 / 2),
        append_partitions=rng.choice([2, 3]),
        output_partitions=3,
        bank_partitions=rng.choice([2, 3]),
        replication_factor=min(3, shape.nodes),
        records_per_send_max=4,
        steps_max=3,
        filler_bytes_max=rng.choice([40, 400]),
        pause_ms=int(rng.choice([100, 250]) * shape.pace),
        poll_ms=150,
        job_records_max=60,
        behind_max=40,
        life_ms_max=int(8_000 * max(1.0, shape.pace / 4)),
        request_timeout_ms=rng.choice([800, 2_500]),
        patience_ms=rng.choice([2_000, 6_000]),
        transaction_timeout_ms=5_000,
        session_timeout_ms=6_000,
        v1_share=rng.choice([0.3, 0.9]),
        abort_share=rng.choice([0.1, 0.35]),
    )


class Workload:
    """The client processes c1 and c2 with their workloads, which may be killed and restarted."""

    def __init__(self, cluster: VirtualCluster, recorder: Recorder, settings: LoadSettings) -> None:
        self.cluster, self.recorder, self.settings = cluster, recorder, settings
        self.clients: dict[str, VirtualClient] = {}
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        self.is_over = False

    async def prepare(self, own_topics: Iterable[OwnTopic]) -> None:
        topics = {**self.settings.topics, PROBE_TOPIC: self.cluster.shape.nodes}
        rng = random.Random(f"topics of {self.cluster.seed}")
        segment_bytes = rng.choice(["1000", "4000", "12000"])
        configs = {
            "internal.segment.bytes": str(self.cluster.shape.segment_bytes or segment_bytes),
            "index.interval.bytes": rng.choice(["100", "400", "4096"]),
        }
        async with Admin(self.cluster.bootstrap) as admin:
            for name, partitions in topics.items():
                await admin.create_topic(
                    name,
                    partitions=partitions,
                    replication_factor=self.settings.replication_factor,
                    configs=configs,
                )
            for topic in own_topics:
                await topic.make(self.cluster, admin)
            await _roll_often(admin, rng)

    def start(self) -> None:
        for name in ("c1", "c2"):
            self.begin(name)

    def begin(self, name: str) -> None:
        """Start the client process c1 or c2 with its workloads."""
        if self.is_over:
            return
        client = self.clients[name] = self.cluster.new_client()
        rng = random.Random(self.cluster.random.getrandbits(64))
        workloads = ("append", "readers") if name == "c1" else ("job", "bank", "readers")
        given = (self.cluster.bootstrap, self.recorder, self.settings, lambda: self.is_over)

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(self.cluster.shape.old_clients):
                    new_rng = random.Random(rng.getrandbits(64))
                    group.create_task(transact(*given, new_rng, f"old-{name}-{number}"))
                group.create_task(load(*given, rng, number=int(name[1:]), workloads=workloads))

        self.tasks[name] = client.run(work())

    def stop(self) -> None:
        """Let all clients end after their current operations."""
        self.is_over = True

    def has_ended(self) -> bool:
        """Return whether all client tasks have ended, except those of killed processes."""
        return all(
            task.done() or not self.clients[name].loop.is_alive for name, task in self.tasks.items()
        )

    def problems(self) -> list[str]:
        """Return a sentence for each client that ended with an exception."""
        ended = [task for task in self.tasks.values() if task.done() and not task.cancelled()]
        return [f"a client ended: {_words(e)}" for t in ended if (e := t.exception()) is not None]


async def _roll_often(admin: Admin, rng: random.Random) -> None:
    """Give __consumer_offsets small segments for some seeds, so that it is compacted."""
    configs = {
        "internal.segment.bytes": rng.choice(["800", "4000", None]),
        "delete.retention.ms": rng.choice(["2000", None]),
    }
    while True:
        try:
            await admin.groups.committed(PROBE_TOPIC)  # the request makes the topic
            return await admin.alter_configs(GROUP_TOPIC, configs)
        except UnknownTopicOrPartition:
            await asyncio.sleep(0.1)


def _words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_words(one) for one in error.exceptions)
    trace, where = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{error!r} in {where}"


async def administer(
    cluster: VirtualCluster, stop: Callable[[], bool], rng: random.Random, mean_s: float
) -> int:
    """Change topics, partitions, configs, replicas and leaders at random until `stop()`.

    Returns the number of changes.
    """
    done = number = 0
    async with Admin(cluster.bootstrap, timeout_ms=4_000) as admin:
        while not stop():
            await asyncio.sleep(min(rng.expovariate(1 / mean_s), 4 * mean_s))
            number += 1
            try:
                await _one_change(cluster, admin, rng, number)
                done += 1
            except (KafkaError, TimeoutError):
                continue
    return done


async def administer_size(cluster: VirtualCluster, size: int) -> None:
    """Create one topic of many partitions and many transactional ids, then delete the topic."""
    async with Admin(cluster.bootstrap, timeout_ms=10_000) as admin:
        with contextlib.suppress(KafkaError, TimeoutError):
            await admin.create_topic("large", partitions=size, replication_factor=1)
        for first in range(0, size, IDS_AT_ONCE):
            names = [f"large-{i}" for i in range(first, min(size, first + IDS_AT_ONCE))]
            await asyncio.gather(*(_initialize(cluster.bootstrap, name) for name in names))
        with contextlib.suppress(KafkaError, TimeoutError):
            await admin.delete_topics(["large"])


async def _initialize(bootstrap: str, name: str) -> None:
    with contextlib.suppress(KafkaError, TimeoutError):
        async with Producer(bootstrap, transactional_id=name) as producer:
            await producer.init_transactions()


async def _one_change(
    cluster: VirtualCluster, admin: Admin, rng: random.Random, number: int
) -> None:
    topic = rng.choice([APPEND, OUTPUTS, BANK])
    what = rng.choice(CHANGES)
    match what:
        case "create":
            name = f"extra-{rng.randrange(EXTRAS)}"  # the topic may have existed before
            await admin.create_topic(
                name, partitions=rng.randint(1, 3), replication_factor=min(3, len(cluster.ids))
            )
            if rng.random() < SHORT_LIVED:
                await asyncio.sleep(rng.expovariate(1 / SHORT_LIFE_S))
                await admin.delete_topics([name])
        case "delete":
            extras = {
                p.topic for p in await admin.describe_topics() if p.topic.startswith("extra-")
            }
            if extras:
                await admin.delete_topics([rng.choice(sorted(extras))])
        case "extend":
            count = len(await admin.describe_topics([topic]))
            if topic != OUTPUTS and count < 5:
                await admin.create_partitions(topic, count + 1)
        case "config":
            name, values = rng.choice(
                [
                    ("max.message.bytes", ("900000", None)),
                    ("internal.segment.bytes", ("1500", "6000", "30000")),
                    # Where power may fail at any time, topics must be as durable as their brokers.
                    ("flush.messages", ("1", None) if cluster.shape.durable else ("1", "10")),
                    ("min.insync.replicas", ("2",)),
                ]
            )
            await admin.alter_configs(topic, {name: rng.choice(values)})
        case "elect":
            described = await admin.describe_topics([topic])
            await admin.elect_leaders([(p.topic, p.partition) for p in described])
        case "move":
            await _move(cluster, rng, rng.choice([topic, GROUP_TOPIC, *OWN_TOPICS]))
        case "groups":
            await _groups_come_and_go(cluster, admin, rng, f"extra-{rng.randrange(GROUP_NAMES)}")


async def _groups_come_and_go(
    cluster: VirtualCluster, admin: Admin, rng: random.Random, name: str
) -> None:
    """Create a group by a commit, delete it soon, and use its name again.

    A request for the group during the deletion must not prevent the deletion.
    """
    begun_s = cluster.timeline.now
    await admin.groups.commit(name, {(PROBE_TOPIC, 0): rng.randint(0, 9)})
    is_certain = cluster.timeline.now - begun_s < AT_ONCE_S  # no other request of it is late
    await asyncio.sleep(rng.expovariate(1 / SHORT_LIFE_S))
    async with Admin(cluster.bootstrap, timeout_ms=4_000) as other:  # of its own connection
        with contextlib.suppress(KafkaError):
            await other.groups.describe(name)
        looks = [_look(other, name, rng.expovariate(1 / LOOK_S)) for _ in range(LOOKS)]
        await asyncio.gather(admin.groups.delete(name), *looks)
    await asyncio.sleep(GONE_S)
    if is_certain and name in {group.group_id for group in await admin.groups.list_groups()}:
        cluster.broken.append(("group back", f"{name} is listed {GONE_S:g} s after its deletion"))


async def _look(admin: Admin, name: str, after_s: float) -> None:
    await asyncio.sleep(after_s)
    with contextlib.suppress(KafkaError):
        await admin.groups.describe(name)


async def _move(cluster: VirtualCluster, rng: random.Random, topic: str) -> None:
    """Reassign a random partition of the topic to two or three nodes (KIP-455)."""
    if not cluster.serving:
        return
    node = rng.choice(cluster.serving)
    found = node.broker.state.topics.get(topic) if node.broker is not None else None
    if found is None or node.loop is None:
        return
    index = rng.randrange(len(found.partitions))
    most = min(3, len(cluster.ids))
    wanted = tuple(rng.sample(cluster.ids, rng.randint(min(2, most), most)))
    command = AlterPartitionReassignments((Reassignment(topic, index, wanted),))
    node.loop.create_task(_submit(node.broker, command))
    await asyncio.sleep(0.5)


async def _submit(broker: Any, command: Any) -> None:
    try:
        await broker._controller.submit(command, timeout_ms=3_000)
    except KafkaError:
        return


async def probe(cluster: VirtualCluster, recorder: Recorder) -> None:
    """Produce, commit and consume through each broker, and record the outcomes as probes."""
    for node_id in cluster.ids:
        port = cluster.nodes[node_id].port
        bootstrap = f"127.0.0.1:{port}"
        for kind, work in (("produce", _produce), ("commit", _commit), ("consume", _consume)):
            begun = recorder.now_ns()
            error = None
            try:
                async with asyncio.timeout(PROBE_MS / 1000):
                    await work(bootstrap, node_id)
            except (KafkaError, TimeoutError) as problem:
                error = f"{type(problem).__name__}: {problem}"
            outcome = OpOutcome.OK if error is None else OpOutcome.FAIL
            recorder.add("probes", kind, node_id, begun, recorder.now_ns(), outcome, error)


async def _produce(bootstrap: str, node_id: int) -> None:
    async with Producer(bootstrap, delivery_timeout_ms=PROBE_MS) as producer:
        await (await producer.send(PROBE_TOPIC, plain(-1, 4), partition=node_id - 1))


async def _commit(bootstrap: str, node_id: int) -> None:
    async with Producer(bootstrap, transactional_id=f"probe-{node_id}") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(PROBE_TOPIC, plain(-1, 4), partition=node_id - 1)
        await producer.commit_transaction()


async def _consume(bootstrap: str, node_id: int) -> None:
    async with Consumer(
        bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(PROBE_TOPIC, node_id - 1)])
        count = 0
        while count < 2:
            count += len(await consumer.poll(500))


async def write_down_the_end(
    cluster: VirtualCluster, recorder: Recorder, settings: LoadSettings
) -> None:
    """Record the committed offsets of the groups at the end.

    A missing offset is recorded as NONE.
    """
    async with Admin(cluster.bootstrap) as admin:
        inputs = [(p.topic, p.partition) for p in await admin.describe_topics([APPEND])]
        for group in (settings.group, settings.readers):
            committed = await admin.groups.committed(group, inputs)
            for topic, partition in inputs:
                found = committed.get((topic, partition))
                offset = NONE if found is None else found.offset
                where = f"{topic}/{partition}"
                recorder.add("committed", group, where, offset, recorder.now_ns())


async def what_is_stuck(cluster: VirtualCluster) -> list[str]:
    """Describe each undecided transaction, and each partition with an LSO below its log end."""
    async with Admin(cluster.bootstrap, timeout_ms=4_000) as admin:
        keys = [(p.topic, p.partition) for p in await admin.describe_topics()]
        try:
            ends = await admin.list_offsets(dict.fromkeys(keys, LATEST))
            stable = await admin.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
        except UnknownTopicOrPartition as problem:
            return [str(problem)]  # a late request deleted the topic meanwhile
        listed = await admin.transactions.list_transactions()
    undecided = [
        f"{t.transactional_id} is {t.state}" for t in listed if t.state not in FINAL_STATES
    ]
    return undecided + [
        f"{t}/{p}: {stable[t, p]} of {ends[t, p]}" for t, p in keys if stable[t, p] != ends[t, p]
    ]
