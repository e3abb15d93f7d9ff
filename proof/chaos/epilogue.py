"""Records the end of a run on the running cluster, for the checks of the judge.

The record has the state of replicas and transactions, a test request to each node, and the contents
of the topics.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ...client.consumer import Consumer, ConsumerRecord
from ...client.producer import Producer
from ...client.view_source import view_of
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.inspect.transaction_facts import OPEN_STATES
from ...wire.errors import KafkaError, RequestTimedOut
from ..judge.history.recorder import Recorder
from ..judge.history.schema import NONE, Isolation, OpOutcome
from ..judge.logs.scan import scan_topics
from .load.bank import BankCheck
from .load.payloads import value_of
from .load.settings import APPEND, BANK, LoadSettings

PROBES = "probes"
REST_TIMEOUT_S, POLL_S = 60.0, 0.2
PROBE_TIMEOUT_MS = 15_000


def wait_for_rest(cluster: Cluster) -> str | None:
    """Wait, at most a minute, until all replicas are in sync and all transactions are complete.

    Return None, or a sentence about a replica or transaction that is not.
    """

    def missing() -> str | None:
        try:
            if short := cluster.missing_replicas():
                return short[0]
            opened = cluster.ask(
                lambda admin: admin.transactions.list_transactions(states=OPEN_STATES)
            )
        except KafkaError as problem:
            return str(problem)
        return f"{opened[0].transactional_id} is {opened[0].state}" if opened else None

    deadline = time.monotonic() + REST_TIMEOUT_S
    while (what := missing()) is not None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return what


def read_the_end(
    cluster: Cluster, recorder: Recorder, settings: LoadSettings
) -> tuple[BankCheck, bool]:
    """Read all topics to their ends, and record the records, the end offsets and committed offsets.

    Return the check of the bank, and whether every topic was read to its end.
    """
    check = BankCheck()

    def look(record: ConsumerRecord) -> int:
        if record.topic == BANK:
            check.saw(record.value)
        return value_of(record.value)

    given = (cluster.client_config(), settings.topics, recorder)
    is_whole = asyncio.run(scan_topics(*given, look))
    all_of_it = scan_topics(
        *given, lambda record: value_of(record.value), isolation=Isolation.READ_UNCOMMITTED
    )
    is_whole &= asyncio.run(all_of_it)
    inputs = [(APPEND, partition) for partition in range(settings.append_partitions)]
    for group in (settings.group, settings.readers):
        committed = cluster.ask(
            lambda admin, group=group: admin.groups.committed(group, inputs, stable=True)
        )
        now_ns = recorder.now_ns()
        # a missing offset is recorded, too, since it may have been lost
        for topic, partition in inputs:
            found = committed.get((topic, partition))
            offset = NONE if found is None else found.offset
            recorder.add("committed", group, f"{topic}/{partition}", offset, now_ns)
    return check, is_whole


def probe_all(cluster: Cluster, recorder: Recorder, settings: LoadSettings) -> None:
    """Send one produce, one commit and one consume through every node, and record the outcomes."""
    partitions, replicas = len(cluster.node_ids), settings.replication_factor
    cluster.ask(
        lambda admin: admin.create_topic(PROBES, partitions=partitions, replication_factor=replicas)
    )
    cluster.wait_for_isr(PROBES, min(replicas, partitions))
    for entry in cluster.file.nodes:
        at_node = {"bootstrap.servers": f"{entry.host}:{entry.port}"}
        config = cluster.client_config(**at_node)
        asyncio.run(_probe(config, entry.node_id, recorder))


async def _probe(config: Mapping[str, Any], node_id: int, recorder: Recorder) -> None:
    """Request metadata from one node, then probe a partition that it leads, or else partition 0."""
    view = view_of(config)
    try:
        snapshot = await view.refresh([PROBES])
        led = [p.partition for p in snapshot.partitions_of(PROBES) if p.leader == node_id]
        partition = led[0] if led else 0
        offset = NONE

        async def produce() -> None:
            nonlocal offset
            async with Producer(view, max_block_ms=PROBE_TIMEOUT_MS) as producer:
                offset = (await (await producer.send(PROBES, b"p", partition=partition))).offset

        async def commit() -> None:
            name = f"{PROBES}-{node_id}"
            options = {"transactional_id": name, "max_block_ms": PROBE_TIMEOUT_MS}
            async with Producer(view, **options) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send(PROBES, b"c", partition=partition)
                await producer.commit_transaction()

        async def consume() -> None:
            async with Consumer(view, isolation_level="read_committed") as consumer:
                consumer.assign({(PROBES, partition): max(offset, 0)})
                if not await consumer.poll(PROBE_TIMEOUT_MS, 1):
                    raise RequestTimedOut(f"nothing to read from {offset} on")

        for kind, work in (("produce", produce), ("commit", commit), ("consume", consume)):
            invoked_ns, outcome, error = recorder.now_ns(), OpOutcome.OK, None
            try:
                await work()
            except KafkaError as problem:
                outcome, error = OpOutcome.FAIL, type(problem).__name__
            recorder.add("probes", kind, node_id, invoked_ns, recorder.now_ns(), outcome, error)
    finally:
        await view.close()
