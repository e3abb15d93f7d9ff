"""Test the connections that clients share, and the order in which brokers are asked."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client import Admin, Consumer, Producer, cluster_view
from oncelog.client.cluster_view import BrokerNode, ClusterSnapshot, ClusterView, PartitionInfo
from oncelog.client.connection import BrokerConnection
from oncelog.client.failures import ClientClosed
from oncelog.client.groups.member import GroupMember
from oncelog.client.transaction_admin import TransactionAdmin
from oncelog.wire.errors import NetworkException, RequestTimedOut
from oncelog.wire.identifiers import TopicPartition

DEAF, ALIVE = ("10.0.0.1", 9092), ("10.0.0.2", 9092)
PLACE = ("t", 0)


class Hosts:
    """Brokers, one of which never accepts a connection, so that an attempt ends by its timeout."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 0.2) -> None:
        self.opened: list[tuple[str, int]] = []
        self.timeout_s = timeout_s
        self._loop, self._really_open = asyncio.get_running_loop(), BrokerConnection.open
        monkeypatch.setattr(BrokerConnection, "open", self.open)

    async def open(self, host: str, port: int, **keywords: Any) -> BrokerConnection:
        if asyncio.get_running_loop() is not self._loop:  # a client in another thread
            return await self._really_open(host, port, **keywords)
        self.opened.append((host, port))
        if (host, port) == DEAF:
            await asyncio.sleep(self.timeout_s)
            raise RequestTimedOut(f"{host}:{port} took no connection")
        connection = BrokerConnection(host, port, "test", 1_000)
        connection._transport = _Open()
        return connection


class _Open(asyncio.Transport):
    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


async def test_connection_that_fails_fails_all_waiting_callers_without_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, view = Hosts(monkeypatch), ClusterView("127.0.0.1:1")
    waiting = [asyncio.create_task(view.connection_to(*DEAF)) for _ in range(10)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, RequestTimedOut) for each in outcomes)
    assert hosts.opened == [DEAF], "one after the other"
    assert len({id(each) for each in outcomes}) == 10, "errors are marked by those who get them"
    with pytest.raises(RequestTimedOut):
        await view.connection_to(*DEAF)
    assert hosts.opened == [DEAF, DEAF], "who comes later tries anew"


async def test_connection_attempt_of_a_cancelled_caller_is_repeated_for_the_next_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, view = Hosts(monkeypatch), ClusterView("127.0.0.1:1")
    first, second = (asyncio.create_task(view.connection_to(*DEAF)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(RequestTimedOut):
        await second
    assert hosts.opened == [DEAF, DEAF]


async def test_view_asks_a_broker_with_a_lost_connection_only_after_connected_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, view = Hosts(monkeypatch), ClusterView("127.0.0.1:1")
    await view.connection_to(*ALIVE)
    lost = BrokerConnection(*DEAF, "test", 1_000)  # this connection was open before
    view._connections[(*DEAF, "")] = lost
    view.snapshot.brokers = {1: BrokerNode(1, *DEAF), 2: BrokerNode(2, *ALIVE)}
    for _ in range(20):
        assert (await view.any_broker()).host == ALIVE[0]
    assert hosts.opened == [ALIVE]


class _Full(_Open):
    """A transport to a peer that reads nothing, so its buffer stays full."""

    def __init__(self) -> None:
        self.is_aborted = False

    def writelines(self, list_of_data: Any) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


async def test_view_that_is_closed_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, view = Hosts(monkeypatch), ClusterView("127.0.0.1:1")
    await view.connection_to(*ALIVE)
    await view.close()
    for call in (view.connection_to(*ALIVE), view.any_broker(), view.refresh()):
        with pytest.raises(ClientClosed):
            await call
    await view.close()
    assert hosts.opened == [ALIVE]


CALLS_WITH_RETRIES: dict[str, Callable[[ClusterView], Awaitable[object]]] = {
    "commit": lambda view: reader(view).commit({PLACE: 5}),
    "committed": lambda view: reader(view).committed([PLACE]),
    "commit of a consumer group": lambda view: reader(view, group_protocol="consumer").commit(
        {PLACE: 5}
    ),
    "poll": lambda view: joining(view).poll(300),
    "poll of a consumer group": lambda view: joining(view, group_protocol="consumer").poll(300),
    "end offsets": lambda view: reader(view).end_offsets([PLACE]),
    "send": lambda view: Producer(view, max_block_ms=300).send("t", b"1"),
    "init transactions": lambda view: Producer(
        view, transactional_id="x", max_block_ms=300
    ).init_transactions(),
    "delete topics": lambda view: Admin(view, timeout_ms=300).delete_topics(["t"]),
    "end a transaction": lambda view: TransactionAdmin(view, timeout_ms=300).end("x"),
}


def reader(view: ClusterView, **options: Any) -> Consumer:
    """Return a consumer with an assigned partition and a timeout of 300 ms for each call."""
    consumer = Consumer(view, group_id="g", default_api_timeout_ms=300, **options)
    consumer.assign({PLACE: 0})
    return consumer


def joining(view: ClusterView, **options: Any) -> Consumer:
    consumer = Consumer(view, group_id="g", **options)
    consumer.subscribe(["t"])
    return consumer


@pytest.mark.parametrize("name", CALLS_WITH_RETRIES)
async def test_call_on_a_closed_view_raises_before_its_deadline(name: str) -> None:
    view = ClusterView("127.0.0.1:1")
    await view.close()
    with pytest.raises(ClientClosed):
        await CALLS_WITH_RETRIES[name](view)


async def test_heartbeat_on_a_closed_view_fails_the_member() -> None:
    view = ClusterView("127.0.0.1:1")
    await view.close()
    member = joining(view, heartbeat_interval_ms=1)._member
    assert isinstance(member, GroupMember)
    async with asyncio.timeout(20):  # of a session of 45 s
        await member._beat()
    with pytest.raises(ClientClosed):
        await member.poll(0)


async def test_view_closed_while_it_connects_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, transport = ClusterView("127.0.0.1:1"), _Full()
    begun, accepted = asyncio.Event(), asyncio.Event()

    async def open_late(host: str, port: int, **_: Any) -> BrokerConnection:
        begun.set()
        await accepted.wait()
        connection = BrokerConnection(host, port, "test", 1_000)
        connection._transport = transport
        return connection

    monkeypatch.setattr(BrokerConnection, "open", open_late)
    connecting = asyncio.create_task(view.connection_to(*ALIVE))
    await begun.wait()
    await view.close()
    accepted.set()
    with pytest.raises(ClientClosed):
        await connecting
    assert transport.is_aborted


async def test_request_to_a_peer_that_reads_nothing_fails_at_its_deadline() -> None:
    connection = BrokerConnection("127.0.0.1", 1, "test", 50)
    transport = connection._transport = _Full()
    connection.writable.clear()
    with pytest.raises((RequestTimedOut, NetworkException)):
        async with asyncio.timeout(10):
            await connection.post(0, 9, [b""])
    assert transport.is_aborted


class _Kept(_Open):
    def __init__(self) -> None:
        self.correlation_ids: list[int] = []

    def writelines(self, list_of_data: Any) -> None:
        frame = b"".join(list_of_data)
        self.correlation_ids.append(int.from_bytes(frame[8:12], "big", signed=True))


async def test_connection_continues_after_correlation_ids_wrap() -> None:
    """The ids wrap after 25 days of a thousand requests a second."""
    connection = BrokerConnection("127.0.0.1", 1, "test", 10_000)
    transport = connection._transport = _Kept()
    connection._correlation_ids = itertools.count(2**31 - 1)
    await connection.post(0, 9, [b""])
    asking = asyncio.create_task(connection.send(0, 9, [b""]))
    await asyncio.sleep(0)
    assert transport.correlation_ids == [2**31 - 1, 0]
    connection.answer(memoryview(bytes(5) + b"answer"))
    assert await asking == b"answer"


class _Counted(dict[TopicPartition, PartitionInfo]):
    scans = 0

    def __iter__(self) -> Iterator[TopicPartition]:
        self.scans += 1
        return super().__iter__()

    def items(self) -> Any:
        self.scans += 1
        return super().items()


def test_partitions_of_many_topics_are_found_with_one_scan() -> None:
    """A scan for each of a thousand topics would block the group leader's loop for seconds."""
    counted = _Counted()
    snapshot = ClusterSnapshot(partitions=counted)

    def add(name: str, number: int, leader: int = 1) -> None:
        snapshot.partitions[name, number] = PartitionInfo(
            topic=name, partition=number, leader=leader, leader_epoch=0, replicas=(1,), isr=(1,)
        )

    for number in (2, 0, 1):
        for topic in range(100):
            add(f"t{topic}", number)
    for topic in range(100):
        assert [p.partition for p in snapshot.partitions_of(f"t{topic}")] == [0, 1, 2]
    assert counted.scans == 1
    add("t7", 1, leader=2)
    assert [p.leader for p in snapshot.partitions_of("t7")] == [1, 2, 1]
    add("t7", 3)
    assert len(snapshot.partitions_of("t7")) == 4 and not snapshot.partitions_of("x")


@pytest.mark.parametrize("size_bytes, is_aside", [(1_000, False), (1_000_000, True)])
async def test_large_metadata_answer_is_decoded_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int, is_aside: bool
) -> None:
    """The metadata of ten thousand partitions takes half a second to decode."""
    connection = BrokerConnection("127.0.0.1", 1, "test", 10_000)
    connection.versions = {3: (0, 12)}

    async def send(*_: Any, **__: Any) -> memoryview:
        return memoryview(bytes(size_bytes))

    def read(*_: Any) -> threading.Thread:
        return threading.current_thread()

    monkeypatch.setattr(connection, "send", send)
    monkeypatch.setattr("oncelog.client.connection.control.decode_response", read)
    where = await connection.call(3, {"topics": [], "allow_auto_topic_creation": False})
    assert (where is not threading.current_thread()) == is_aside


async def test_metadata_of_a_large_cluster_is_converted_to_a_snapshot_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, view = Hosts(monkeypatch), ClusterView(":".join(map(str, ALIVE)))
    threads: list[threading.Thread] = []

    def read(_: Any) -> ClusterSnapshot:
        threads.append(threading.current_thread())
        return ClusterSnapshot()

    async def call(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(topics=[SimpleNamespace(partitions=range(sizes.pop()))])

    monkeypatch.setattr(BrokerConnection, "call", call)
    monkeypatch.setattr("oncelog.client.cluster_view.read_metadata", read)
    sizes = [10_000, 10]
    while sizes:
        await view.refresh()
    assert hosts.opened == [ALIVE]
    assert [each is threading.current_thread() for each in threads] == [True, False]


@pytest.mark.parametrize("place", [DEAF, ALIVE])
async def test_view_reports_silence_once_unless_a_broker_answers_in_time(
    place: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    Hosts(monkeypatch)
    monkeypatch.setattr("oncelog.client.cluster_view.SILENCE_S", 0.05)
    view, told = ClusterView(f"{place[0]}:{place[1]}"), list[str]()
    view.on_silence = told.append
    for _ in range(2):
        with contextlib.suppress(NetworkException):
            await view.any_broker()
    await asyncio.sleep(0.1)
    assert told == (["no broker answers at 10.0.0.1:9092 yet (no answer)"] * (place == DEAF))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("node 1: [Errno 111] Connect call failed (x)", "connection refused"),
        ("node 1: [Errno -2] Name or service not known (x)", "name or service not known"),
        ("[Errno " + "9" * 5_000 + "] of a broker", "[Errno " + "9" * 193),
        ("x" * 100_000, "x" * 200),
    ],
    ids=["errno", "system's words", "many digits", "many words"],
)
def test_reason_of_a_failed_connection_is_short_for_any_words(told: str, expected: str) -> None:
    """A broker chooses the words that refuse a login."""
    assert cluster_view._reason((NetworkException, told)) == expected
