"""Test lists that are gathered from all brokers while some of the brokers do not answer."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.client import Admin
from oncelog.client.cluster_view import BrokerNode, ClusterSnapshot, ClusterView
from oncelog.wire.errors import CoordinatorNotAvailable, ErrorCode, NetworkException

LIST_GROUPS = 16


class HalfSilentView(ClusterView):
    """A view of three brokers, in which each live broker coordinates one group and one id.

    The producer id of a broker's transactional id is the node id.
    """

    def __init__(self, *silent: int) -> None:
        super().__init__("127.0.0.1:1")
        self._silent = silent
        self.replaced = 0  # lists of broker 3 that have the id of broker 1, too
        self.leaderless = 0  # broker that knows no coordinator of some ids

    async def refresh(self, topics: Iterable[str] | None = None) -> ClusterSnapshot:
        self.snapshot.brokers = {n: BrokerNode(n, "127.0.0.1", n) for n in (1, 2, 3)}
        return self.snapshot

    async def broker(self, node_id: int, channel: str = "") -> Any:
        if node_id in self._silent:
            raise NetworkException(f"node {node_id} cannot be reached")

        async def call(api_key: int, values: dict[str, Any]) -> SimpleNamespace:
            if api_key == LIST_GROUPS:
                group = SimpleNamespace(group_id=f"g{node_id}", protocol_type="consumer")
                return SimpleNamespace(error_code=0, groups=[group])
            wanted = values["producer_id_filters"] or [node_id]
            known = SimpleNamespace(
                transactional_id=f"t{node_id}", producer_id=node_id, transaction_state="Ongoing"
            )
            states = [known] if node_id in wanted else []
            if node_id == 3 and self.replaced:
                self.replaced -= 1
                states.append(SimpleNamespace(**vars(known) | {"transactional_id": "t1"}))
            error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE if node_id == self.leaderless else 0
            return SimpleNamespace(error_code=error_code, transaction_states=states)

        return SimpleNamespace(call=call)


def admin_without(*silent: int) -> Admin:
    return Admin(cast(Any, HalfSilentView(*silent)), timeout_ms=50)


async def test_lists_of_reachable_brokers_have_the_errors_of_the_others() -> None:
    admin = admin_without(2)
    groups = await admin.groups.list_groups(needs_all_brokers=False)
    assert [each.group_id for each in groups] == ["g1", "g3"]
    listed = await admin.transactions.list_transactions(needs_all_brokers=False)
    assert [each.transactional_id for each in listed] == ["t1", "t3"]
    for errors in (groups.errors, listed.errors):
        assert {node_id: str(each) for node_id, each in errors.items()} == {
            2: "node 2 cannot be reached"
        }


async def test_lists_of_all_brokers_have_no_errors_or_are_refused() -> None:
    assert (await admin_without().groups.list_groups()).errors == {}
    admin = admin_without(2)
    with pytest.raises(NetworkException, match="node 2"):
        await admin.groups.list_groups()
    with pytest.raises(NetworkException, match="node 2"):
        await admin.transactions.list_transactions()


async def test_lists_without_any_answer_are_refused() -> None:
    admin = admin_without(1, 2, 3)
    with pytest.raises(NetworkException, match="cannot be reached"):
        await admin.groups.list_groups(needs_all_brokers=False)
    with pytest.raises(NetworkException, match="cannot be reached"):
        await admin.transactions.list_transactions(needs_all_brokers=False)


async def test_lists_without_any_live_broker_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster that starts may list no broker. Its transactions would pass as hanging."""

    async def nobody(self: ClusterView, topics: Iterable[str] | None = None) -> ClusterSnapshot:
        return self.snapshot

    monkeypatch.setattr(HalfSilentView, "refresh", nobody)
    with pytest.raises(NetworkException, match="no live broker"):
        await admin_without().transactions.list_transactions(producer_ids=[1])


async def test_list_with_an_id_of_two_brokers_is_repeated_until_only_one_coordinates_it() -> None:
    """A coordinator that was replaced while it was paused still lists its ids for a moment."""
    admin = admin_without()
    cast(HalfSilentView, admin.view).replaced = 1
    listed = await admin.transactions.list_transactions()
    assert [(each.transactional_id, each.coordinator) for each in listed] == [
        ("t1", 1), ("t2", 2), ("t3", 3),
    ]  # fmt: skip


async def test_list_without_a_broker_that_knows_no_coordinator_has_its_error() -> None:
    """A broker without a connection to the others must not delay the list until it is fenced."""
    admin = admin_without()
    cast(HalfSilentView, admin.view).leaderless = 2
    listed = await admin.transactions.list_transactions(needs_all_brokers=False)
    assert [each.transactional_id for each in listed] == ["t1", "t3"]
    assert isinstance(listed.errors.get(2), CoordinatorNotAvailable)
    with pytest.raises(CoordinatorNotAvailable):
        await admin.transactions.list_transactions()
