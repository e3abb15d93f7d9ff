"""Test the metrics page of a broker, with the parser of the Prometheus client."""

import asyncio
import gc
import re
import time
from pathlib import Path

import pytest

from oncelog.client import Consumer, Producer
from oncelog.client.admin import Admin
from oncelog.deploy.cluster.ports import free_ports
from oncelog.node.metrics import figures
from oncelog.node.metrics.figures import Figures, FigureSources, taking
from oncelog.runtime.metric_families import FAMILIES, KAFKA
from oncelog.runtime.steps import run_to_end

from ...awaiting import until
from ..own_broker import OwnBroker, running

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
from prometheus_client.openmetrics.parser import text_string_to_metric_families

STEP_S = 0.010  # half of the time that a turn may take


async def page_of(port: int) -> str:
    """Return the metrics page as a scraper gets it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
    async with asyncio.timeout(20):
        answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), head
    return body


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the samples by name and label values, in the order of the label names."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_page_of_a_broker_shows_the_broker_counts(tmp_path: Path) -> None:
    kafka, metrics = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka}",
        "oncelog.metrics.port": str(metrics),
        "offsets.topic.num.partitions": "2",
    }
    where = f"127.0.0.1:{kafka}"
    async with running(tmp_path, settings=settings), Admin(where) as admin:
        await admin.create_topic("orders", partitions=1)
        async with Producer({"bootstrap.servers": where}) as plain:
            for _ in range(3):
                await plain.send("orders", b"x")
        config = {"bootstrap.servers": where, "group.id": "billing"}
        config["isolation.level"] = "read_committed"  # the last fetch may wait after the close
        async with Consumer({**config, "auto.offset.reset": "earliest"}) as reader:
            reader.subscribe(["orders"])
            async with asyncio.timeout(20):
                while not await reader.poll(1_000):
                    pass
            await reader.commit()
        async with Producer({"bootstrap.servers": where, "transactional.id": "app-1"}) as open_one:
            await open_one.init_transactions()
            await open_one.begin_transaction()
            await open_one.send("orders", b"open")
            await open_one.flush()
            found = values(await page_of(metrics))
            await open_one.abort_transaction()
    at, of_group = ("0", "orders"), ("billing", "0", "orders")
    assert found["kafka_log_log_logendoffset", at] == 4
    assert found["oncelog_partition_high_watermark", at] == 4
    assert found["oncelog_partition_last_stable_offset", at] == 3
    assert found["kafka_cluster_partition_laststableoffsetlag", at] == 1
    assert found["kafka_cluster_partition_insyncreplicascount", at] == 1
    assert found["oncelog_group_committed_offset", of_group] == 3
    assert found["oncelog_group_lag_to_last_stable", of_group] == 0
    assert found["oncelog_transactions", ("Ongoing",)] == 1
    assert found["oncelog_transactional_ids", ()] == 1
    assert 0 <= found["oncelog_transaction_oldest_open_seconds", ()] < 60
    assert found["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroups", ()] == 1
    assert found["oncelog_events_total", ("node", "started")] == 1
    assert found["oncelog_raft_leader", ("0",)] == 1
    for topic in ("orders", ""):
        name = "kafka_server_brokertopicmetrics_"
        assert found[f"{name}messagesin_total", (topic,)] == 4
        assert 2 <= found[f"{name}totalproducerequests_total", (topic,)] <= 4  # batches
        assert found[f"{name}failedproducerequests_total", (topic,)] == 0
        written, read = (found[f"{name}bytes{way}_total", (topic,)] for way in ("in", "out"))
        assert written > read > written / 2  # the open transaction was not read
    name = "kafka_network_requestmetrics_"
    assert 2 <= found[f"{name}requests_total", ("Produce",)] <= 4
    assert found[f"{name}totaltimems_count", ("FetchConsumer",)] >= 1
    assert 0 < found[f"{name}totaltimems", ("0.50", "Produce")] < 10_000
    names = {re.sub("_(total|count|sum)$", "", name) for name, _ in found}
    assert KAFKA.keys() <= names
    assert names <= FAMILIES.keys()


def sources_of(broker: OwnBroker) -> FigureSources:
    return FigureSources(
        services=broker.services,
        engine=broker.engine,
        transport=broker.transport,
        server=broker.server,
        watchdog=broker.watchdog,
    )


async def test_metrics_of_many_partitions_are_collected_in_short_steps(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.create("many", 300)
        await until(lambda: broker.serves("many", 300))
        steps = taking(sources_of(broker))
        longest_s, count, found = 0.0, 0, None
        gc.disable()  # a collection of all that other tests have left takes longer than a step
        try:
            while found is None:
                began_s = time.thread_time()
                try:
                    next(steps)
                except StopIteration as end:
                    found = end.value
                longest_s = max(longest_s, time.thread_time() - began_s)
                count += 1
        finally:
            gc.enable()
        assert len(found.families["kafka_log_log_size"]) == 300
        assert count > 300 // figures.ITEMS_A_STEP
        assert longest_s < STEP_S


async def test_metrics_of_a_partition_without_its_producer_state_have_no_stable_offset(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await broker.create("t", 2)
        await until(lambda: broker.serves("t"))
        log = broker.append("t")
        log.local.rebuild = object()  # type: ignore[assignment]  # it is running
        found = run_to_end(taking(sources_of(broker)))
        log.local.rebuild = None
        rows = found.families["oncelog_partition_last_stable_offset"]
        assert [labels for labels, _ in rows] == [("t", "1")]


def test_metrics_family_beyond_its_limit_counts_omitted_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "SERIES_MAX", 2)
    found = Figures()
    for number in range(5):
        found.add("oncelog_raft_term", 1, number)
    assert (len(found.families["oncelog_raft_term"]), found.left_out) == (2, 3)
