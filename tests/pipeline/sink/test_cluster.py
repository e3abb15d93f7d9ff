"""The sink on real clusters, without Spark: twins, sleepers, zombies, deaths, expiry.

Every test ends with what a reader of committed records sees: each row once, and nothing open.
"""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.client import Admin, Producer
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.lookup import ClusterChoice
from oncelog.deploy.inspect.abort_transactions import abort_id
from oncelog.pipeline.sink import decision as sink_decision
from oncelog.pipeline.sink.checks import SMALL, check_brokers, flaws, ready_topic
from oncelog.pipeline.sink.names import control_id
from oncelog.pipeline.sink.protocol import Mode
from oncelog.pipeline.sink.steps import (
    AbortChildren,
    BatchGiven,
    BatchOver,
    CommitChildren,
    Effect,
    ListOpen,
    RunTasks,
    TasksDone,
    WriteBatch,
    WriteDecision,
)
from oncelog.pipeline.sink.stop_words import SinkStopped
from oncelog.wire.errors import KafkaError

from ...interop.client_peers import KAFKA, OURS, PREPARES, new_topic
from ...interop.kafka_peer import KafkaPeer, is_enabled
from .manual_driver import QUERY, ManualDriver, batch_rows, rows, write_rows
from .output import assert_once, open_transactions

SCANS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
FORGETS = {
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(nodes=3, data=tmp_path_factory.mktemp("sink") / "data", config=SCANS) as running:
        yield running


@contextmanager
def peer(folder: Path, settings: dict[str, str]) -> Iterator[str]:
    """An Apache Kafka, where it is wanted."""
    if not is_enabled():
        pytest.skip("ONCELOG_KAFKA is not 1")
    with KafkaPeer(folder, settings=settings) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with peer(tmp_path_factory.mktemp("kafka"), PREPARES | SCANS) as bootstrap:
        yield bootstrap


EITHER = [OURS, pytest.param(KAFKA, marks=pytest.mark.kafka)]


@pytest.fixture(params=EITHER)
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == OURS:
        return request.getfixturevalue("ours").bootstrap
    return request.getfixturevalue("kafka")


@pytest.fixture(params=EITHER)
def expiring_ids(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """One that forgets idle ids within seconds."""
    if request.param == OURS:
        with Cluster(nodes=1, config=FORGETS) as running:
            yield running.bootstrap
    else:
        with peer(tmp_path, PREPARES | FORGETS) as bootstrap:
            yield bootstrap


def play(bootstrap: str, scene: Callable[[str, str], Awaitable[list[str]]]) -> None:
    """Run a scene with a topic and a sink of its own; what it returns has to be in the topic."""

    async def run() -> tuple[str, list[str]]:
        topic = await new_topic(bootstrap, 3)
        return topic, await asyncio.wait_for(scene(topic, topic), 240)

    topic, wanted = asyncio.run(run())
    assert_once(bootstrap, topic, wanted)


def test_batches_are_written_skipped_and_their_ids_used_again(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="oncelog.sink")

    async def scene(topic: str, sink: str) -> list[str]:
        first = ManualDriver(bootstrap, topic, sink)
        workers = [first.worker() for _ in range(3)]

        async def run_tasks(effect: RunTasks) -> TasksDone:
            spec = first.task_spec(effect)
            reports = [await first.attempt(spec, p, workers[p]) for p in range(3)]
            return TasksDone(tuple(reports))

        first.run_tasks = run_tasks  # type: ignore[method-assign]
        for batch in range(4):
            assert await first.write(batch) == BatchOver(was_written=True)
        assert await first.write(3) == BatchOver(was_written=False)
        await first.close()
        second = ManualDriver(bootstrap, topic, sink)
        assert await second.write(3) == BatchOver(was_written=False)
        assert await second.write(4) == BatchOver(was_written=True)
        await second.close()
        async with Admin(bootstrap) as admin:
            listed = await admin.transactions.list_transactions(prefix=f"oncelog.spark.{sink}.g1")
        # two for each worker, and those whose first answer a busy machine has lost
        assert len(listed) <= 6 + caplog.text.count("another id is taken")
        return [value for batch in range(5) for value in batch_rows(batch)]

    play(bootstrap, scene)


def test_of_twin_attempts_the_one_that_spark_kept_counts(bootstrap: str) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        driver = ManualDriver(bootstrap, topic, sink)
        effect = await driver.until(RunTasks, 0)
        assert isinstance(effect, RunTasks)
        spec = driver.task_spec(effect)
        twins = [await driver.attempt(spec, 0) for _ in range(2)]
        others = [await driver.attempt(spec, p) for p in (1, 2)]
        await driver.on(driver.protocol.step(TasksDone((twins[1], *others))))
        await driver.close()
        return batch_rows(0)

    play(bootstrap, scene)


def test_a_zombie_attempt_of_an_older_batch_is_harmless_and_aborted(bootstrap: str) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        driver = ManualDriver(bootstrap, topic, sink)
        effect = await driver.until(RunTasks, 0)
        assert isinstance(effect, RunTasks)
        spec, sleeper = driver.task_spec(effect), driver.worker()
        await driver.on(effect)
        await driver.write(1)
        effect = await driver.until(CommitChildren, 2)  # decided, not committed
        await driver.attempt(spec, 0, sleeper)
        assert len(await open_transactions(bootstrap)) == 4
        await driver.on(effect)
        await driver.close()
        return [value for batch in range(3) for value in batch_rows(batch)]

    play(bootstrap, scene)


@pytest.mark.parametrize("point", [WriteDecision, CommitChildren, AbortChildren])
def test_a_zombie_driver_that_wakes_can_decide_nothing(bootstrap: str, point: type) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        zombie = ManualDriver(bootstrap, topic, sink)
        await zombie.write(0)
        effect = await zombie.until(point, 1)
        successor = ManualDriver(bootstrap, topic, sink)
        is_decided = point is not WriteDecision
        assert await successor.write(1) == BatchOver(was_written=not is_decided)
        held = await successor.until(CommitChildren, 2)  # decided; now the other one wakes
        with pytest.raises(SinkStopped, match="is written" if is_decided else "not decided"):
            await zombie.on(effect)
        await successor.on(held)
        await successor.close()
        await zombie.close()
        return [value for batch in range(3) for value in batch_rows(batch)]

    play(bootstrap, scene)


def test_a_batch_is_not_written_twice_after_a_stop_longer_than_every_expiry(
    expiring_ids: str,
) -> None:
    async def scene(point: type[Effect] | str) -> tuple[str, list[str]]:
        topic = await new_topic(expiring_ids, 3)
        dead = ManualDriver(expiring_ids, topic, topic)
        await dead.write(0)
        effect = await dead.until(CommitChildren if isinstance(point, str) else point, 1)
        if point == "half":
            assert isinstance(effect, CommitChildren)
            await dead.cluster.children.commit(effect.children[:1])
        await dead.close()
        await until_forgotten(expiring_ids, topic)
        successor = ManualDriver(expiring_ids, topic, topic)
        # Only without a decision is the batch written now; a decided one was, or is committed.
        expected = BatchOver(was_written=point is WriteDecision)
        assert await successor.write(1) == expected
        await successor.close()
        return topic, [value for batch in range(2) for value in batch_rows(batch)]

    async def nothing_to_do() -> tuple[str, list[str]]:
        topic = await new_topic(expiring_ids, 3)
        idle = ManualDriver(expiring_ids, topic, topic)
        await idle.write(0)
        await until_forgotten(expiring_ids, topic)
        given = BatchGiven(query_id=QUERY, batch_id=1, is_long_after=True)
        assert await idle.on(idle.protocol.step(given)) == BatchOver(was_written=True)
        await idle.close()
        return topic, [value for batch in range(2) for value in batch_rows(batch)]

    async def scenes() -> list[tuple[str, list[str]]]:
        points = (WriteDecision, CommitChildren, "half", ListOpen, BatchOver)
        return await asyncio.gather(*map(scene, points), nothing_to_do())

    for topic, wanted in asyncio.run(scenes()):
        assert_once(expiring_ids, topic, wanted)


async def until_forgotten(bootstrap: str, sink: str) -> None:
    """Wait until coordinators know only those ids of the sink that have something open."""
    prefix = f"oncelog.spark.{sink}."
    async with Admin(bootstrap) as admin, asyncio.timeout(60):
        while True:
            listed = await admin.transactions.list_transactions(prefix=prefix)
            if all(each.state == "Ongoing" for each in listed):
                return
            await asyncio.sleep(0.2)


def test_a_control_transaction_that_timed_out_is_retried(bootstrap: str) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        slow = ManualDriver(bootstrap, topic, sink, timeout_ms=1_000)
        effect = await slow.until(WriteDecision, 0)
        effect = await slow.on(await slow.carry_out(effect), WriteDecision)  # the first is a claim
        assert isinstance(effect, WriteDecision)
        naps = [3]

        async def dawdle(control: Producer) -> None:
            await control.send(sink_decision.TOPIC, b"{}", key=b"dawdle")
            await control.flush()
            await asyncio.sleep(naps.pop() if naps else 0)

        event = await slow.cluster.write_decision(effect.decision, dawdle)
        assert await slow.on(slow.protocol.step(event)) == BatchOver(was_written=True)
        assert await slow.write(1) == BatchOver(was_written=True)
        await slow.close()
        return [value for batch in range(2) for value in batch_rows(batch)]

    play(bootstrap, scene)


def test_a_driver_that_writes_by_itself_is_fenced_and_goes_on_as_well(bootstrap: str) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        zombie = ManualDriver(bootstrap, topic, sink, mode=Mode.DRIVER)
        await zombie.write(0)
        effect = await zombie.until(WriteBatch, 1)
        successor = ManualDriver(bootstrap, topic, sink, mode=Mode.DRIVER)
        assert await successor.write(1) == BatchOver(was_written=True)
        with pytest.raises(SinkStopped, match="not decided"):
            await zombie.on(effect)
        await zombie.close()
        await successor.close()
        third = ManualDriver(bootstrap, topic, sink)  # the mode may change from start to start
        assert await third.write(1) == BatchOver(was_written=False)
        assert await third.write(2) == BatchOver(was_written=True)
        await third.close()
        return [value for batch in range(3) for value in batch_rows(batch)]

    play(bootstrap, scene)


def test_orphans_are_ended_and_what_is_decided_is_kept(bootstrap: str, tmp_path: Path) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        dead = ManualDriver(bootstrap, topic, sink)
        effect = await dead.until(RunTasks, 0)
        assert isinstance(effect, RunTasks)
        orphan = await asyncio.to_thread(
            write_rows, dead.task_spec(effect), dead.worker(), rows(9, 9)
        )
        decided = await dead.on(effect, CommitChildren)
        assert isinstance(decided, CommitChildren)
        first = decided.children[0].transactional_id
        cluster = ClusterChoice(data=Path(), bootstrap=bootstrap)
        by_id = await asyncio.to_thread(abort_id, cluster, first)
        assert by_id.startswith("kept: it belongs to batch 0, which is decided")
        outcomes = await asyncio.to_thread(abort_by_command, bootstrap, f"oncelog.spark.{sink}")
        nothing = await asyncio.to_thread(abort_id, cluster, orphan.transactional_id)
        assert nothing == "nothing is open"
        kept = {c.transactional_id: "kept" for c in decided.children}
        assert outcomes == kept | {orphan.transactional_id: "aborted"}
        await dead.close()
        successor = ManualDriver(bootstrap, topic, sink)
        assert await successor.write(0) == BatchOver(was_written=False)
        await successor.close()
        return batch_rows(0)

    play(bootstrap, scene)


def test_open_transactions_of_others_are_ended_by_prefix(ours: Cluster) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        name = f"plain-{sink}"
        async with Producer(ours.bootstrap, transactional_id=name) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send(topic, b"open"))
            outcomes = await asyncio.to_thread(abort_by_command, ours.bootstrap, "plain-")
            assert outcomes == {name: "aborted"}
            with pytest.raises(KafkaError):
                await producer.commit_transaction()
        return []

    play(ours.bootstrap, scene)


@pytest.mark.parametrize("words", [[], ["x", "--prefix", "y"], ["--prefix", ""]])
def test_abort_needs_exactly_one_of_id_and_prefix(words: list[str]) -> None:
    command = [sys.executable, "-P", "-m", "oncelog.deploy.cli", "txn", "abort", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "Which ones?" in done.stderr


def abort_by_command(bootstrap: str, prefix: str) -> dict[str, str]:
    command = [sys.executable, "-P", "-m", "oncelog.deploy.cli", "txn", "abort"]
    done = subprocess.run(
        [*command, "--prefix", prefix, "--bootstrap", bootstrap, "--format", "json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {row["id"]: row["outcome"] for row in json.loads(done.stdout)}


def test_a_decided_transaction_that_was_aborted_by_hand_is_an_alarm(bootstrap: str) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        driver = ManualDriver(bootstrap, topic, sink)
        await driver.write(0)
        effect = await driver.until(CommitChildren, 1)
        assert isinstance(effect, CommitChildren)
        await driver.cluster.children.abort([effect.children[1].transactional_id])
        with pytest.raises(SinkStopped, match="ARE MISSING"):
            await driver.on(effect)
        await driver.close()
        return [*batch_rows(0), *rows(1, 0), *rows(1, 2)]

    play(bootstrap, scene)


@pytest.mark.parametrize(
    "victim",
    [
        "control",
        pytest.param("leader", marks=pytest.mark.chaos),
        pytest.param("child", marks=pytest.mark.chaos),
        pytest.param("decisions", marks=pytest.mark.chaos),
    ],
)
def test_a_node_that_dies_at_any_step_costs_nothing(ours: Cluster, victim: str) -> None:
    async def scene(topic: str, sink: str) -> list[str]:
        driver = ManualDriver(ours.bootstrap, topic, sink)
        await driver.write(0)
        killed: list[int] = []
        point = {"leader": RunTasks, "control": WriteDecision}.get(victim, CommitChildren)
        if victim == "decisions":
            point = WriteDecision
        effect = await driver.until(point, 1)
        if victim == "leader":
            node = await asyncio.to_thread(ours.leader, topic, 0)
        elif victim == "decisions":
            node = await asyncio.to_thread(ours.leader, sink_decision.TOPIC, 0)
        else:
            name = control_id(sink)
            if isinstance(effect, CommitChildren):
                name = effect.children[0].transactional_id
            node = await asyncio.to_thread(ours.coordinator, "txn", name)
        await asyncio.to_thread(ours.kill, node)
        killed.append(node)
        assert await driver.on(effect) == BatchOver(was_written=True)
        assert await driver.write(2) == BatchOver(was_written=True)
        await asyncio.to_thread(ours.start, node)
        await driver.close()
        return [value for batch in range(3) for value in batch_rows(batch)]

    play(ours.bootstrap, scene)


def test_the_topic_of_decisions_is_made_so_that_compaction_reaches_it(bootstrap: str) -> None:
    async def look() -> dict[str, str | None]:
        async with Admin(bootstrap) as admin:
            await ready_topic(admin)
            return {c.name: c.value for c in await admin.describe_configs(sink_decision.TOPIC)}

    assert SMALL.items() <= asyncio.run(look()).items()


@pytest.mark.kafka
@pytest.mark.parametrize("missing", list(PREPARES))
def test_what_a_kafka_lacks_is_named(tmp_path: Path, missing: str) -> None:
    settings = {key: value for key, value in PREPARES.items() if key != missing}

    async def check(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            with pytest.raises(SinkStopped, match=f"{missing}=true on broker 1"):
                await check_brokers(admin, 60_000, "transaction_timeout_ms", needs_prepared=True)

    with peer(tmp_path, settings) as bootstrap:
        asyncio.run(check(bootstrap))


SAFE: dict[str, str | None] = {"cleanup.policy": "compact", "min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("changed", "partitions", "replicas", "brokers", "words"),
    [
        ({}, 1, 3, 3, None),
        ({}, 1, 3, 5, None),
        ({}, 1, 2, 2, None),
        ({"min.insync.replicas": None}, 1, 1, 1, None),
        ({"cleanup.policy": "compact,delete"}, 1, 3, 3, "cleanup.policy"),
        ({"cleanup.policy": "delete"}, 1, 1, 1, "cleanup.policy"),
        ({"min.insync.replicas": "1"}, 1, 3, 3, "min.insync.replicas is 1 of 3"),
        ({"min.insync.replicas": "1"}, 1, 2, 2, "min.insync.replicas is 1 of 2"),
        ({}, 1, 1, 3, "1 replica, and the cluster 3 brokers: it has to have 3"),
        ({}, 1, 2, 4, "2 replicas, and the cluster 4 brokers: it has to have 3"),
        ({}, 2, 1, 1, "2 partitions"),
        ({"unclean.leader.election.enable": "true"}, 1, 1, 1, "unclean.leader.election.enable"),
    ],
)
def test_a_topic_that_could_lose_a_decision_is_found(
    changed: dict[str, str | None], partitions: int, replicas: int, brokers: int, words: str | None
) -> None:
    found = flaws(SAFE | changed, partitions, replicas, brokers)
    assert (not found) if words is None else words in found[0]
