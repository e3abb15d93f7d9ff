"""Test the timeouts of the sink, their messages, and settings, without a cluster."""

import asyncio
import gc
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client import ClusterView, ProducerState
from oncelog.pipeline.sink import checks
from oncelog.pipeline.sink import cluster as sink_cluster
from oncelog.pipeline.sink.checks import check_brokers, ready_topic
from oncelog.pipeline.sink.cluster import CONTROL_TRIES, READ_TIMEOUT_S, THREAD, SinkCluster
from oncelog.pipeline.sink.decision import TOPIC, Decision
from oncelog.pipeline.sink.sink import ExactlyOnceSink
from oncelog.pipeline.sink.stop_words import SinkStopped
from oncelog.wire.errors import (
    ClusterAuthorizationFailed,
    InvalidReplicationFactor,
    KafkaError,
    NetworkException,
    RecordListTooLarge,
    RequestTimedOut,
    TransactionAbortable,
    UnknownTopicOrPartition,
)

DECISION = Decision(generation=1, query_id="q")


class Control:
    """A control producer that raises the given error at each send."""

    def __init__(self, problem: KafkaError) -> None:
        self.state, self.problem, self.begun, self.aborted = ProducerState.READY, problem, 0, 0

    async def begin_transaction(self) -> None:
        self.begun += 1

    async def send(self, *_: Any, **__: Any) -> None:
        raise self.problem

    async def abort_transaction(self) -> None:
        self.aborted += 1


@pytest.mark.parametrize(
    ("problem", "tries"),
    [(RecordListTooLarge(), 1), (TransactionAbortable(), CONTROL_TRIES),
     (RequestTimedOut(), CONTROL_TRIES)],
)  # fmt: skip
async def test_sink_decision_is_retried_only_after_an_error_that_may_pass(
    problem: KafkaError, tries: int
) -> None:
    control = Control(problem)
    cluster = SinkCluster(ClusterView("127.0.0.1:1"), "s")
    cluster._control = control  # type: ignore[assignment]
    with pytest.raises(type(problem)):
        await cluster.write_decision(DECISION)
    assert control.begun == control.aborted == tries


class Brokers:
    """An admin client that describes each broker's transaction.max.timeout.ms.

    A broker with None does not answer.
    """

    def __init__(self, by_node: dict[int, int | None], problem: KafkaError) -> None:
        self.view, self._by_node, self._problem = self, by_node, problem
        self.snapshot = SimpleNamespace(brokers=by_node)

    async def refresh(self, _: list[str]) -> None:
        pass

    async def broker(self, node_id: int) -> Any:
        return SimpleNamespace(versions={checks.INIT_PRODUCER_ID: (0, 6)})

    async def describe_configs(self, name: str, kind: int) -> list[Any]:
        most = self._by_node[int(name)]
        if most is None:
            raise self._problem
        return [SimpleNamespace(name=checks.TIMEOUT_MAX, value=str(most))]


def check(by_node: dict[int, int | None], problem: KafkaError, *, prepared: bool = False) -> None:
    admin: Any = Brokers(by_node, problem)
    asyncio.run(check_brokers(admin, 60_000, "transaction_timeout_ms", needs_prepared=prepared))


@pytest.mark.parametrize("prepared", [True, False])
def test_sink_settings_check_does_not_wait_for_a_dead_broker(prepared: bool) -> None:
    check({1: 900_000, 2: None}, NetworkException(), prepared=prepared)
    with pytest.raises(SinkStopped, match=r"transaction.max.timeout.ms=1000 of broker 3\. A"):
        check({1: 900_000, 2: None, 3: 1_000}, NetworkException(), prepared=prepared)


def test_sink_in_driver_mode_needs_no_permission_to_describe_configs() -> None:
    check({1: None, 2: None}, ClusterAuthorizationFailed())
    with pytest.raises(ClusterAuthorizationFailed):
        check({1: None, 2: None}, ClusterAuthorizationFailed(), prepared=True)


def test_decision_topic_that_gets_no_leader_times_out_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Admin:
        async def describe_topics(self, names: list[str]) -> list[Any]:
            if not hasattr(self, "is_made"):
                raise UnknownTopicOrPartition
            return [SimpleNamespace(leader=-1, replicas=(1,))]

        async def describe_cluster(self) -> Any:
            return SimpleNamespace(brokers=(SimpleNamespace(is_fenced=False),))

        async def create_topic(self, name: str, **more: Any) -> None:
            self.is_made = more["configs"]

    admin: Any = Admin()
    monkeypatch.setattr(checks, "APPEARS_S", 0.2)
    with pytest.raises(TimeoutError, match=f"The topic {TOPIC}, .* has no leader"):
        asyncio.run(ready_topic(admin))
    assert admin.is_made["segment.bytes"] == "16777216"


def test_decision_topic_created_while_a_broker_is_away_asks_first_for_a_replica_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    class Admin:
        async def describe_topics(self, names: list[str]) -> list[Any]:
            raise UnknownTopicOrPartition

        async def describe_cluster(self) -> Any:
            brokers = tuple(SimpleNamespace(is_fenced=fenced) for fenced in (False, False, True))
            return SimpleNamespace(brokers=brokers)

        async def create_topic(self, name: str, **more: Any) -> None:
            asked.append(more["replication_factor"])
            if more["replication_factor"] == 3:
                raise InvalidReplicationFactor

    admin: Any = Admin()
    monkeypatch.setattr(checks, "APPEARS_S", 0.1)
    with pytest.raises(TimeoutError):
        asyncio.run(ready_topic(admin))
    assert asked == [3, 2]


@pytest.mark.parametrize(("stable", "words"), [(4, "a transaction began"), (9, "no broker gives")])
def test_decision_read_that_does_not_reach_the_end_names_the_open_transaction_or_the_silent_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stable: int, words: str
) -> None:
    class Admin:
        view = None

        async def list_offsets(self, wanted: Any, *, read_committed: bool = False) -> Any:
            latest = stable if read_committed else 9
            return {key: latest if at == sink_cluster.LATEST else 0 for key, at in wanted.items()}

    class Consumer:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def __aenter__(self) -> "Consumer":
            return self

        async def __aexit__(self, *_: object) -> None: ...

        def assign(self, _: Any) -> None: ...

        def position(self, *_: Any) -> int:
            return 4

        async def poll(self, _: int) -> list[Any]:
            await asyncio.sleep(0.01)
            return []

    admin: Any = Admin()
    monkeypatch.setattr(sink_cluster, "Consumer", Consumer)
    monkeypatch.setattr(sink_cluster, "READ_TIMEOUT_S", 0.3)
    monkeypatch.setattr(sink_cluster, "LOG_INTERVAL_S", 0.1)
    said = (
        f"{TOPIC} is read to offset 4, and has to be read to 9; its last stable offset is {stable}"
    )
    with pytest.raises(TimeoutError, match=f"{said}, .*{words}"):
        asyncio.run(sink_cluster.read_topic(admin))
    assert said in caplog.text


def test_decision_read_timeout_exceeds_the_default_transaction_max_timeout_of_kafka() -> None:
    assert READ_TIMEOUT_S > 900


@pytest.mark.parametrize("name", ["client_id", "transactional_id", "bootstrap_servers"])
def test_sink_setting_that_would_be_ignored_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is the sink's own to set"):
        ExactlyOnceSink("s", "127.0.0.1:1", "t", **{name: "billing"})


def threads() -> int:
    return sum(thread.name == THREAD for thread in threading.enumerate())


def test_sink_that_is_closed_or_garbage_collected_leaves_no_thread() -> None:
    async def nothing(_: Any) -> None: ...

    before = threads()
    sink = ExactlyOnceSink("s", "127.0.0.1:1", "t")
    sink._run(nothing)
    assert threads() == before + 1
    sink.close()
    sink.close()
    assert threads() == before
    sink._run(nothing)
    del sink
    gc.collect()
    deadline = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == before


@pytest.mark.parametrize("value", [0, "-5", "soon"])
@pytest.mark.parametrize("name", ["transaction_timeout_ms", "kafka.transaction.timeout.ms"])
def test_sink_timeout_that_is_invalid_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"transaction_timeout_ms is a whole number from 1 on"):
        ExactlyOnceSink("s", "127.0.0.1:1", "t", mode="transactional", **{name: value})


def test_sink_shared_by_two_queries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One query would abort the task transactions of the other before they are decided."""
    sink = ExactlyOnceSink("s", "127.0.0.1:1", "t")
    frame: Any = object()
    monkeypatch.setattr(sink, "_given", lambda _, batch_id: sink(frame, batch_id + 1))
    for _ in range(2):  # the sink is free again
        with pytest.raises(RuntimeError, match="sink s is at work on another batch: a sink serves"):
            sink(frame, 7)
