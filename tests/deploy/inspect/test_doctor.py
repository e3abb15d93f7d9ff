"""Test that the doctor names a skipped or damaged log, and a client with unknown requests."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.inspect.doctor import HealthCheck, _compaction, _damage, _unserved
from oncelog.deploy.inspect.node_troubles import metrics_of
from oncelog.node.listener.closing import UnservedRequest
from oncelog.wire.errors import CorruptMessage

from ...awaiting import until
from ...node.own_broker import running


async def test_doctor_names_an_uncleanable_or_damaged_log_with_its_node_and_reason(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await broker.create("a")
        await until(lambda: broker.serves("a"))

        def ask_node(node_id: int, question: dict[str, str]) -> dict[str, object]:
            if node_id == 2:
                raise Failure("node 2 does not answer")
            assert question == {"op": "metrics"}
            return broker._metrics()

        cluster: Any = SimpleNamespace(ask_node=ask_node)

        def examined() -> list[HealthCheck]:
            metrics = {node_id: metrics_of(cluster, node_id) for node_id in (1, 2)}
            return [*_compaction(metrics), *_damage(metrics)]

        assert [check.state for check in examined()] == ["ok", "ok"]
        log = broker.replicas.partition("a", 1).log
        log.uncleanable = "no batch: magic 7"
        check, _ = examined()
        assert (check.check, check.state) == ("a-1 of node 1", "bad")
        assert "magic 7" in check.found and "stop the node" in check.advice
        log.damage.found(CorruptMessage("the batch at offset 3 fails its checksum"))
        _, check = examined()
        assert (check.check, check.state) == ("a-1 of node 1", "bad")
        assert "damaged: the batch at offset 3" in check.found and "copied" in check.advice


async def test_doctor_names_a_client_that_sent_an_unsupported_request(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        cluster: Any = SimpleNamespace(ask_node=lambda node_id, question: broker._metrics())
        assert _unserved({1: metrics_of(cluster, 1)}) == []
        software = ("confluent-kafka-python", "2.16.0")
        request = UnservedRequest(76, 1)
        broker.server.unserved.note(request, software, "127.0.0.1", memoryview(b""))
        (check,) = _unserved({1: metrics_of(cluster, 1), 2: {}})
        assert (check.check, check.state) == ("client of node 1", "note")
        assert "confluent-kafka-python 2.16.0" in check.found and "API 76" in check.found
