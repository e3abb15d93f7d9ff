"""Test the verification of transactions by their coordinator, in joint requests."""

import asyncio
from typing import Any, cast

import pytest

from oncelog.coordinator.transactions.messages import VerifyTransaction, VerifyTransactionReply
from oncelog.node.transactions.verifier import TransactionVerifier
from oncelog.replication.messages import PeerMessage
from oncelog.replication.peer.codec import decode_message, encode_message
from oncelog.replication.peer.transport import PeerTimeout, PeerTransport
from oncelog.wire.errors import ErrorCode

from .one_node import NODE, OneNode

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)


class Remote:
    """A coordinator on another node, which answers when `gate` is set."""

    def __init__(self, leader: int | None = 2) -> None:
        self.leader = leader
        self.asked: list[VerifyTransaction] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.reply: VerifyTransactionReply | bytes | Exception | None = None
        self.verifier = TransactionVerifier(
            node_id=NODE,
            coordinators=self,  # type: ignore[arg-type]
            links=self,  # type: ignore[arg-type]
            hold_ms=10,
        )

    def leader_of(self, transactional_id: str) -> int | None:
        return self.leader

    async def request(self, peer: int, kind: int, header: bytes, *, timeout_ms: int) -> Any:
        assert (peer, kind) == (2, PeerMessage.VERIFY_TRANSACTION)
        question = decode_message(VerifyTransaction, header)
        self.asked.append(question)
        await self.gate.wait()
        if isinstance(self.reply, Exception):
            raise self.reply
        if isinstance(self.reply, bytes):
            return self.reply, []
        reply = self.reply or VerifyTransactionReply(0, (0,) * len(question.partitions))
        return encode_message(reply), []

    def ask(self, *partitions: tuple[str, int], epoch: int = 3, adds: bool = False, name="id"):
        async def errors() -> list[int]:
            verified = await self.verifier.verify(name, 7, epoch, partitions, adds=adds)
            return verified.errors

        return asyncio.ensure_future(errors())


@pytest.fixture
def remote() -> Remote:
    return Remote()


async def test_transaction_verifications_during_a_request_are_joined_into_the_next_request(
    remote: Remote,
) -> None:
    remote.gate.clear()
    first = remote.ask(T0)
    await asyncio.sleep(0.01)
    rest = [remote.ask(T0), remote.ask(T1), remote.ask(T1, T0), remote.ask(T0, adds=True)]
    await asyncio.sleep(0.01)
    assert len(remote.asked) == 1  # one question of an id is in flight
    remote.gate.set()
    assert await first == [0]
    assert await asyncio.gather(*rest) == [[0], [0], [0, 0], [0]]
    assert [(q.partitions, q.adds) for q in remote.asked[1:]] == [((T0, T1), False), ((T0,), True)]


async def test_transaction_verification_started_later_never_uses_an_earlier_answer(
    remote: Remote,
) -> None:
    """Between the first answer and the second request a marker may have ended the transaction."""
    remote.gate.clear()
    first = remote.ask(T0)
    await asyncio.sleep(0.01)
    second = remote.ask(T0)
    remote.gate.set()
    await asyncio.gather(first, second)
    assert len(remote.asked) == 2


async def test_transaction_verification_of_a_newer_epoch_fails_a_waiting_one_of_an_older_epoch(
    remote: Remote,
) -> None:
    remote.gate.clear()
    under_way = remote.ask(T0)
    await asyncio.sleep(0.01)
    old = remote.ask(T0)
    await asyncio.sleep(0.01)
    new = remote.ask(T0, epoch=4)
    assert await old == [E.INVALID_PRODUCER_EPOCH]
    assert await remote.ask(T0, T1, epoch=2) == [E.INVALID_PRODUCER_EPOCH] * 2
    remote.gate.set()
    assert await under_way == [0]
    assert await new == [0]


async def test_transaction_verifications_of_other_ids_do_not_wait(remote: Remote) -> None:
    remote.gate.clear()
    asking = [remote.ask(T0, name=name) for name in ("one", "two")]
    await asyncio.sleep(0.01)
    assert len(remote.asked) == 2
    remote.gate.set()
    await asyncio.gather(*asking)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (PeerTimeout("late"), E.NETWORK_EXCEPTION),
        (RuntimeError("a defect"), E.NETWORK_EXCEPTION),
        (b"\xc1", E.NETWORK_EXCEPTION),
        (VerifyTransactionReply(0, (0, 0, 0)), E.NETWORK_EXCEPTION),
        (VerifyTransactionReply(E.NOT_COORDINATOR), E.NOT_COORDINATOR),
        (VerifyTransactionReply(E.PRODUCER_FENCED), E.PRODUCER_FENCED),
    ],
)
async def test_transaction_verification_that_fails_fails_every_partition(
    remote: Remote, reply, error
) -> None:
    remote.reply = reply
    assert await remote.ask(T0, T1) == [error, error]
    remote.reply = None
    assert await remote.ask(T0, T1) == [0, 0]  # nothing is left behind


async def test_transaction_verification_without_a_coordinator_gets_a_retriable_error() -> None:
    remote = Remote(leader=None)
    assert await remote.ask(T0) == [E.COORDINATOR_NOT_AVAILABLE]


async def test_transaction_verifications_are_answered_when_the_broker_stops(remote: Remote) -> None:
    remote.gate.clear()
    asking = [remote.ask(T0), remote.ask(T1)]
    await asyncio.sleep(0.01)
    asking.append(remote.ask(T1))
    await asyncio.sleep(0.01)
    await remote.verifier.stop()
    assert await asyncio.gather(*asking) == [[E.NETWORK_EXCEPTION]] * 3


async def test_transaction_verification_by_the_local_coordinator_is_a_direct_call(
    node: OneNode,
) -> None:
    verifier = TransactionVerifier(
        node_id=NODE,
        coordinators=node.coordinators,
        links=cast(PeerTransport, node.links),
        hold_ms=10,
    )
    who = await node.init()
    await node.add(who, T0)
    identity = ("id", who.producer_id, who.producer_epoch)
    verified = await verifier.verify(*identity, [T0, T1], adds=False)
    assert verified.errors == [0, E.TRANSACTION_ABORTABLE]
    assert (await verifier.verify(*identity, [T0, T1], adds=True)).errors == [0, 0]


async def test_transaction_verification_of_a_peer_is_answered_over_the_link(node: OneNode) -> None:
    who = await node.init()
    answered: asyncio.Future[bytes] = node.loop.create_future()
    question = VerifyTransaction("id", who.producer_id, who.producer_epoch, (T0,), adds=True)
    handler = node.links.handlers[PeerMessage.VERIFY_TRANSACTION]
    handler(2, encode_message(question), [], lambda header, _: answered.set_result(header))
    assert decode_message(VerifyTransactionReply, await answered).errors == (0,)
    answered = node.loop.create_future()
    handler(2, b"\xc1", [], lambda header, _: answered.set_result(header))
    assert decode_message(VerifyTransactionReply, await answered).error == E.INVALID_REQUEST
