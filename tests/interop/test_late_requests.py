"""Test KAFKA-17754, in which a delayed request ends or joins the producer's next transaction.

Transactions of clients without KIP-890 share producer id and epoch, so a late request does not show
its transaction. Here a proxy delays one request. The client abandons the connection, repeats the
request on another, and continues. Then the late request arrives, at each critical moment.
`oncelog.transaction.connection.fence` refuses it. The tests also run without that fence, and then
assert the damage, which shows that they detect the problem.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import control, produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from .delaying_proxy import DelayingProxy
from .inner_broker import InnerBroker
from .raw_peer import CLOSED, INIT_PRODUCER_ID, PRODUCE, SILENT, RawPeer
from .readers import WITH_LIBRARIES, read_to_end
from .recorded.requests import ADD_PARTITIONS, END, error_of
from .transactional_owner import wait_for_coordinator

pytestmark = WITH_LIBRARIES
PARTITIONS = 2


class Moment(IntEnum):
    """The number of steps of the second transaction before the late request arrives."""

    BEFORE = 0
    BEGUN = 1
    WRITTEN = 2
    ENDED = 3


class FencedBroker(InnerBroker):
    """A broker with or without the fence that refuses a producer's older connections."""

    def __init__(self, has_fence: bool) -> None:
        super().__init__(oncelog_transaction_connection_fence=str(has_fence).lower())
        self.has_fence = has_fence


@pytest.fixture(scope="module", params=[True, False], ids=["fence", "no fence"])
def broker(request: pytest.FixtureRequest) -> Iterator[FencedBroker]:
    running = FencedBroker(request.param)
    with running:
        yield running


class OldClient:
    """A producer with transaction version 1.

    `late` is its first connection, through the proxy, and `peer` its next one.
    """

    def __init__(self, broker: FencedBroker, proxy: DelayingProxy, name: str) -> None:
        self.name, self.topic = name, f"topic-of-{name}"
        self.late = RawPeer("late", proxy.address)
        self.peer = RawPeer("on time", broker.address)
        self.peer.create_topic(self.topic, PARTITIONS)
        # A coordinator refuses connections that are older than its election, and this broker may
        # have just begun.
        wait_for_coordinator(self.peer, 1, name)
        self.peer.close()  # connections of a producer count from its first request on
        values = {"transactional_id": name, "transaction_timeout": 60_000}
        answer = self._ask(self.late, INIT_PRODUCER_ID, 1, values)
        self.identity = answer.producer_id, answer.producer_epoch

    def close(self) -> None:
        self.late.close()
        self.peer.close()

    def begin(self, peer: RawPeer) -> None:
        values = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.identity[0],
            "v3_and_below_producer_epoch": self.identity[1],
            "v3_and_below_topics": [{"name": self.topic, "partitions": list(range(PARTITIONS))}],
        }
        self._ask(peer, ADD_PARTITIONS, 1, values)

    def write(self, peer: RawPeer, value: bytes, sequence: int, partition: int = 0) -> int:
        answer = peer.ask_raw(PRODUCE, 7, self._batch(value, sequence, partition))
        return answer.topics[0].partitions[0].error_code

    def end(self, peer: RawPeer, is_commit: bool) -> int:
        while True:
            answer = peer.ask_raw(END, 1, self._ending(is_commit))
            assert not isinstance(answer, str), answer
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return answer.error_code

    def end_late(self, is_commit: bool) -> None:
        """Send EndTxn on the first connection, where the proxy holds it."""
        self._send_late(END, 1, control.encode_request(END, 1, self._ending(is_commit)))

    def write_late(self, value: bytes, sequence: int, partition: int = 0) -> None:
        batch = self._batch(value, sequence, partition)
        self._send_late(PRODUCE, 7, b"".join(produce.encode_request(batch, 7)))

    def _send_late(self, api_key: int, version: int, body: bytes) -> None:
        frame = encode_request_header(api_key, version, 99, "late") + body
        framed = len(frame).to_bytes(4, "big") + frame
        self.late.post_bytes(framed)

    def _ask(self, peer: RawPeer, api_key: int, version: int, values: Any) -> Any:
        while error_of(answer := peer.ask_raw(api_key, version, values)):
            assert error_of(answer) == ErrorCode.CONCURRENT_TRANSACTIONS, answer
        return answer

    def _ending(self, is_commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
            "committed": is_commit,
        }

    def _batch(self, value: bytes, sequence: int, partition: int) -> ProduceRequest:
        records = encode_batch(
            [Record(0, 1, None, value)], transactional=True, producer_id=self.identity[0],
            producer_epoch=self.identity[1], base_sequence=sequence,
        )  # fmt: skip
        wanted = ProduceTopic(self.topic, None, [ProducePartition(partition, records)])
        return ProduceRequest(self.name, -1, 5000, [wanted])


def seen(broker: FencedBroker, topic: str) -> set[bytes]:
    bootstrap = f"127.0.0.1:{broker.port}"
    return {value for _, value in read_to_end(bootstrap, topic, PARTITIONS)}


def play(broker: FencedBroker, name: str, moment: Moment, *, first_commits: bool) -> bool:
    """Return whether each transaction ended with the outcome that its client requested.

    The EndTxn of the first transaction is delayed and repeated. The second transaction has the
    opposite outcome.
    """
    with DelayingProxy(broker.address) as proxy:
        client = OldClient(broker, proxy, name)
        try:
            client.begin(client.late)
            assert client.write(client.late, b"first", 0) == 0
            proxy.hold()
            client.end_late(first_commits)
            assert client.end(client.peer, first_commits) == 0
            errors: list[int] = []
            steps = (
                lambda: client.begin(client.peer),
                lambda: errors.append(client.write(client.peer, b"second", 1)),
                lambda: errors.append(client.end(client.peer, not first_commits)),
            )
            for number, step in enumerate(steps):
                if number == moment:
                    arrive(broker, proxy, client)
                step()
            if moment == Moment.ENDED:
                arrive(broker, proxy, client)
            wanted = {b"first"} if first_commits else {b"second"}
            return errors == [0, 0] and seen(broker, client.topic) == wanted
        finally:
            client.close()


def arrive(broker: FencedBroker, proxy: DelayingProxy, client: OldClient) -> None:
    """Deliver the late request, and wait until the broker has answered or closed the connection."""
    proxy.let_go()
    outcome = client.late.await_answer()
    assert outcome != SILENT
    assert broker.has_fence or outcome != CLOSED


@pytest.mark.in_turn
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("first_commits", [True, False], ids=["late commit", "late abort"])
def test_late_end_txn_request_ends_the_next_transaction_only_without_the_connection_fence(
    broker: FencedBroker, moment: Moment, first_commits: bool
) -> None:
    is_right = play(broker, f"{moment.name}-{first_commits}", moment, first_commits=first_commits)
    hits = moment in (Moment.BEGUN, Moment.WRITTEN)
    assert is_right == (broker.has_fence or not hits)


def test_late_produce_request_joins_the_next_transaction_only_without_the_connection_fence(
    broker: FencedBroker,
) -> None:
    """The client aborted the transaction, and continues after the acknowledged sequence numbers."""
    with DelayingProxy(broker.address) as proxy:
        client = OldClient(broker, proxy, "late-write")
        try:
            client.begin(client.late)
            proxy.hold()
            client.write_late(b"aborted", 0)
            assert client.end(client.peer, False) == 0
            client.begin(client.peer)
            assert client.write(client.peer, b"elsewhere", 0, partition=1) == 0
            arrive(broker, proxy, client)
            assert client.write(client.peer, b"second", 0) == 0
            assert client.end(client.peer, True) == 0
            found = seen(broker, client.topic)
        finally:
            client.close()
    if broker.has_fence:
        assert found == {b"elsewhere", b"second"}
    else:
        assert found == {b"elsewhere", b"aborted"}, "an aborted record is read, a written one lost"


def test_client_disconnected_by_the_connection_fence_continues_on_a_new_connection(
    broker: FencedBroker,
) -> None:
    """The client is no zombie, so only its old connection is closed."""
    with DelayingProxy(broker.address) as proxy:
        client = OldClient(broker, proxy, "goes-on")
        try:
            client.begin(client.late)
            assert client.write(client.late, b"one", 0) == 0
            assert client.write(client.peer, b"two", 1) == 0
            assert client.end(client.peer, True) == 0
            repeated = client.late.ask_raw(END, 1, client._ending(True))
            if broker.has_fence:
                assert repeated == CLOSED
            client.late.close()
            assert client.end(client.late, True) == 0
            assert seen(broker, client.topic) == {b"one", b"two"}
        finally:
            client.close()
