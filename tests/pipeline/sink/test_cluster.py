"""Test the sink on real clusters without Spark.

The tests have second attempts, attempts that resume after their batch, deaths and expired ids.
Each test with a driver ends with a read of committed records. The expected rows are present once,
and no transaction is open.
"""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from oncelog.client import Admin, Producer
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.lookup import ClusterChoice
from oncelog.deploy.inspect.abort_transactions import abort_id
from oncelog.pipeline.sink import decision as sink_decision
from oncelog.pipeline.sink.checks import SMALL, flaws, ready_topic
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
from ...interop.kafka_peer import KafkaPeer
from ...programs import CLI, printed_by, run_to_end
from .manual_driver import (
    FORGETS,
    QUERY,
    SCANS,
    TASKS,
    ManualDriver,
    all_rows,
    batch_rows,
    driving,
    play,
    rows,
    write_rows,
)
from .output import check_once, open_transactions

# Fixtures of the module that a test may choose from: no worker is to have a second set of them.
pytestmark = pytest.mark.xdist_group("sink on clusters")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(nodes=3, data=tmp_path_factory.mktemp("sink") / "data", config=SCANS) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), settings=PREPARES | SCANS) as running:
        yield running.bootstrap


EITHER = [OURS, pytest.param(KAFKA, marks=pytest.mark.kafka)]


@pytest.fixture(params=EITHER)
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == OURS:
        return request.getfixturevalue("ours").bootstrap
    return request.getfixturevalue("kafka")


@pytest.fixture(params=[OURS, pytest.param(KAFKA, marks=[pytest.mark.kafka, pytest.mark.chaos])])
def expiring_ids(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Run a cluster in which idle transactional ids expire within seconds."""
    if request.param == OURS:
        with Cluster(nodes=1, config=FORGETS) as running:
            yield running.bootstrap
    else:
        with KafkaPeer(tmp_path, settings=PREPARES | FORGETS) as running:
            yield running.bootstrap


@pytest.fixture
def driver(bootstrap: str) -> AbstractAsyncContextManager[ManualDriver]:
    return driving(bootstrap)


async def test_sink_writes_new_batches_and_skips_repeated_batches(
    driver: ManualDriver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="oncelog.sink")
    driver.kept_workers = [driver.worker() for _ in range(TASKS)]
    for batch in range(4):
        assert await driver.write(batch) == BatchOver(was_written=True)
    assert await driver.write(3) == BatchOver(was_written=False)
    await driver.close()
    second = driver.successor()
    assert await second.write(3) == BatchOver(was_written=False)
    assert await second.write(4) == BatchOver(was_written=True)
    prefix = f"oncelog.spark.{driver.sink_id}.g1"
    async with Admin(driver.bootstrap) as admin:
        listed = await admin.transactions.list_transactions(prefix=prefix)
    # two for each worker, and the ids whose first answer a busy machine has lost
    assert len(listed) <= 6 + caplog.text.count("another transactional id is used")
    await driver.assert_once(all_rows(5))


async def test_sink_with_two_attempts_of_a_task_commits_the_one_spark_kept(
    driver: ManualDriver,
) -> None:
    spec = driver.task_spec(await driver.until(RunTasks, 0))
    twins = [await driver.attempt(spec, 0) for _ in range(2)]
    others = [await driver.attempt(spec, p) for p in (1, 2)]
    await driver.on(driver.protocol.step(TasksDone((twins[1], *others))))
    await driver.assert_once(batch_rows(0))


async def test_sink_attempt_of_an_older_batch_that_arrives_late_is_aborted(
    driver: ManualDriver,
) -> None:
    effect = await driver.until(RunTasks, 0)
    spec, sleeper = driver.task_spec(effect), driver.worker()
    await driver.on(effect)
    await driver.write(1)
    decided = await driver.until(CommitChildren, 2)  # and not committed
    await driver.attempt(spec, 0, sleeper)
    assert len(await open_transactions(driver.bootstrap)) == 4
    await driver.on(decided)
    await driver.assert_once(all_rows(3))


@pytest.mark.parametrize("point", [WriteDecision, CommitChildren, AbortChildren])
async def test_sink_driver_that_resumes_after_its_successor_started_decides_no_batch(
    driver: ManualDriver, point: type[Effect]
) -> None:
    await driver.write(0)
    effect = await driver.until(point, 1)
    successor = driver.successor()
    is_decided = point is not WriteDecision
    assert await successor.write(1) == BatchOver(was_written=not is_decided)
    held = await successor.until(CommitChildren, 2)  # decided; now the other one wakes
    with pytest.raises(SinkStopped, match="is written" if is_decided else "not decided"):
        await driver.on(effect)
    await successor.on(held)
    await driver.assert_once(all_rows(3))


async def test_sink_batch_is_not_written_twice_after_a_stop_longer_than_every_expiry(
    expiring_ids: str,
) -> None:
    async def dies_at(point: type[Effect] | str, driver: ManualDriver) -> list[str]:
        await driver.write(0)
        effect = await driver.until(CommitChildren if isinstance(point, str) else point, 1)
        if point == "half":
            assert isinstance(effect, CommitChildren)
            await driver.cluster.children.commit(effect.children[:1])
        await driver.close()
        await until_forgotten(driver)
        # Only without a decision is the batch written now; a decided one was, or is committed.
        expected = BatchOver(was_written=point is WriteDecision)
        assert await driver.successor().write(1) == expected
        return all_rows(2)

    async def nothing_to_do(driver: ManualDriver) -> list[str]:
        await driver.write(0)
        await until_forgotten(driver)
        given = BatchGiven(query_id=QUERY, batch_id=1, is_long_after=True)
        assert await driver.on(driver.protocol.step(given)) == BatchOver(was_written=True)
        return all_rows(2)

    points = (WriteDecision, CommitChildren, "half", ListOpen, BatchOver)
    await play(expiring_ids, *(partial(dies_at, point) for point in points), nothing_to_do)


async def until_forgotten(driver: ManualDriver) -> None:
    """Wait until the sink's idle ids have expired, so that coordinators list only open ones."""
    prefix = f"oncelog.spark.{driver.sink_id}."
    async with Admin(driver.bootstrap) as admin, asyncio.timeout(60):
        while True:
            listed = await admin.transactions.list_transactions(prefix=prefix)
            if all(each.state == "Ongoing" for each in listed):
                return
            await asyncio.sleep(0.2)


async def test_sink_control_transaction_that_timed_out_is_retried(driver: ManualDriver) -> None:
    slow = driver.successor(timeout_ms=1_000)
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
    await slow.assert_once(all_rows(2))


async def test_superseded_driver_in_mode_driver_is_fenced(
    driver: ManualDriver,
) -> None:
    zombie, successor = (driver.successor(mode=Mode.DRIVER) for _ in range(2))
    await zombie.write(0)
    effect = await zombie.until(WriteBatch, 1)
    assert await successor.write(1) == BatchOver(was_written=True)
    with pytest.raises(SinkStopped, match="not decided"):
        await zombie.on(effect)
    # The mode may change from start to start.
    assert await driver.write(1) == BatchOver(was_written=False)
    assert await driver.write(2) == BatchOver(was_written=True)
    await driver.assert_once(all_rows(3))


@pytest.mark.in_turn
async def test_sink_orphan_transactions_are_aborted_and_decided_ones_kept(
    driver: ManualDriver,
) -> None:
    effect = await driver.until(RunTasks, 0)
    orphan = await asyncio.to_thread(
        write_rows, driver.task_spec(effect), driver.worker(), rows(9, 9)
    )
    decided = await driver.on(effect, CommitChildren)
    assert isinstance(decided, CommitChildren)
    first = decided.children[0].transactional_id
    cluster = ClusterChoice(data=Path(), bootstrap=driver.bootstrap)
    by_id = await asyncio.to_thread(abort_id, cluster, first)
    assert by_id.startswith("kept: it belongs to batch 0, which is decided")
    outcomes = await asyncio.to_thread(
        abort_by_command, driver.bootstrap, f"oncelog.spark.{driver.sink_id}"
    )
    nothing = await asyncio.to_thread(abort_id, cluster, orphan.transactional_id)
    assert nothing == "nothing is open"
    kept = {c.transactional_id: "kept" for c in decided.children}
    assert outcomes == kept | {orphan.transactional_id: "aborted"}
    await driver.close()
    assert await driver.successor().write(0) == BatchOver(was_written=False)
    await driver.assert_once(batch_rows(0))


async def test_txn_abort_with_a_prefix_aborts_open_transactions_of_other_writers(
    ours: Cluster,
) -> None:
    topic = await new_topic(ours.bootstrap, 3)
    name = f"plain-{topic}"
    async with Producer(ours.bootstrap, transactional_id=name) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send(topic, b"open"))
        outcomes = await asyncio.to_thread(abort_by_command, ours.bootstrap, "plain-")
        assert outcomes == {name: "aborted"}
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
    await check_once(ours.bootstrap, topic, [])


@pytest.mark.parametrize("words", [[], ["x", "--prefix", "y"], ["--prefix", ""]])
def test_txn_abort_requires_exactly_one_of_id_and_prefix(words: list[str]) -> None:
    done = run_to_end([*CLI, "txn", "abort", *words])
    assert done.returncode == 2
    assert "Which ones?" in done.stderr


def abort_by_command(bootstrap: str, prefix: str) -> dict[str, str]:
    command = [*CLI, "txn", "abort", "--prefix", prefix, "--bootstrap", bootstrap]
    printed = printed_by([*command, "--format", "json"])
    return {row["id"]: row["outcome"] for row in json.loads(printed)}


async def test_sink_with_a_decided_transaction_aborted_by_hand_raises_an_alarm(
    driver: ManualDriver,
) -> None:
    await driver.write(0)
    effect = await driver.until(CommitChildren, 1)
    await driver.cluster.children.abort([effect.children[1].transactional_id])
    with pytest.raises(SinkStopped, match="ARE MISSING"):
        await driver.on(effect)
    await driver.assert_once([*batch_rows(0), *rows(1, 0), *rows(1, 2)])


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "victim",
    [
        "control",
        pytest.param("leader", marks=pytest.mark.chaos),
        pytest.param("child", marks=pytest.mark.chaos),
        pytest.param("decisions", marks=pytest.mark.chaos),
    ],
)
async def test_sink_with_a_killed_leader_or_coordinator_loses_no_row(
    ours: Cluster, victim: str
) -> None:
    async with driving(ours.bootstrap) as driver:
        await driver.write(0)
        points = {"leader": RunTasks, "child": CommitChildren}
        effect = await driver.until(points.get(victim, WriteDecision), 1)
        match victim:
            case "leader":
                find = partial(ours.leader, driver.topic, 0)
            case "decisions":
                find = partial(ours.leader, sink_decision.TOPIC, 0)
            case "control":
                find = partial(ours.coordinator, "txn", control_id(driver.sink_id))
            case _:
                assert isinstance(effect, CommitChildren)
                find = partial(ours.coordinator, "txn", effect.children[0].transactional_id)
        node = await asyncio.to_thread(find)
        await asyncio.to_thread(ours.kill, node)
        assert await driver.on(effect) == BatchOver(was_written=True)
        assert await driver.write(2) == BatchOver(was_written=True)
        await asyncio.to_thread(ours.start, node)
        await driver.assert_once(all_rows(3))


async def test_decision_topic_is_created_with_a_config_for_early_compaction(
    bootstrap: str,
) -> None:
    async with Admin(bootstrap) as admin:
        await ready_topic(admin)
        found = {c.name: c.value for c in await admin.describe_configs(sink_decision.TOPIC)}
    assert SMALL.items() <= found.items()


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
def test_decision_topic_with_a_config_that_could_lose_a_decision_is_refused(
    changed: dict[str, str | None], partitions: int, replicas: int, brokers: int, words: str | None
) -> None:
    found = flaws(SAFE | changed, partitions, replicas, brokers)
    assert (not found) if words is None else words in found[0]
