"""Test requests of V2 transactions in a cluster with transaction.version 0."""

from oncelog.coordinator.transactions.messages import VerifyTransaction
from oncelog.wire.errors import ErrorCode

from .one_node import OneNode

REFUSED = ErrorCode.UNSUPPORTED_VERSION


async def test_transaction_v2_requests_in_a_v1_cluster_are_refused_without_a_change(
    node: OneNode,
) -> None:
    node.serves_v2 = False
    who = await node.init()
    identity = who.producer_id, who.producer_epoch
    assert await node.add(who, ("u", 0), transaction_version=2) == REFUSED
    adding = VerifyTransaction("id", *identity, (("u", 0),), adds=True)
    assert (await node.coordinators.verify(adding)).error == REFUSED
    assert node.state() == "Empty"
    assert (await node.end(who, False, v2=True)).error == REFUSED
    assert (await node.end(who, v2=True)).error == ErrorCode.INVALID_TXN_STATE
    assert await node.add(who, ("t", 0)) == 0
    for is_commit in (True, False):
        assert (await node.end(who, is_commit, v2=True)).error == REFUSED
    assert node.state() == "Ongoing"
    assert (await node.end(who)).error == 0
    await node.until_state("CompleteCommit")
    assert node.partitions.epochs() == [(("t", 0), who.producer_epoch, True)]
    await node.coordinators.stop()


async def test_v2_addition_of_a_partition_already_in_the_transaction_succeeds_in_a_v1_cluster(
    node: OneNode,
) -> None:
    node.serves_v2 = False
    who = await node.init()
    assert await node.add(who, ("t", 0)) == 0
    assert await node.add(who, ("t", 0), transaction_version=2) == 0
    await node.coordinators.stop()


async def test_transaction_v2_requests_are_served_after_the_transaction_version_is_raised(
    node: OneNode,
) -> None:
    node.serves_v2 = False
    who = await node.init()
    assert await node.add(who, ("t", 0), transaction_version=2) == REFUSED
    node.serves_v2 = True
    assert await node.add(who, ("t", 0), transaction_version=2) == 0
    ended = await node.end(who, v2=True)
    assert (ended.error, ended.producer_epoch) == (0, who.producer_epoch + 1)
    await node.coordinators.stop()
