"""Test that each listed transaction is described, even if its coordinator moves meanwhile."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client import transaction_admin
from oncelog.client.transaction_admin import TransactionAdmin, TransactionListing
from oncelog.wire.errors import ErrorCode


def described(name: str, error: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        error_code=error, transactional_id=name, transaction_state="Ongoing", producer_id=1,
        producer_epoch=0, transaction_timeout=1, transaction_start_time=1, topics=[],
    )  # fmt: skip


class MovingCoordinator:
    """A view in which broker 1 lists transactions that broker 2 coordinates now."""

    def __init__(self, node_id: int = 0) -> None:
        self.node_id = node_id

    async def broker(self, node_id: int) -> "MovingCoordinator":
        return MovingCoordinator(node_id)

    async def retrying(self, attempt: Any, **_: Any) -> Any:
        return await attempt()

    async def call(self, _: int, values: dict[str, Any]) -> SimpleNamespace:
        error = {"gone": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
        moved = ErrorCode.NOT_COORDINATOR if self.node_id == 1 else 0
        names = values["transactional_ids"]
        return SimpleNamespace(
            transaction_states=[described(name, error.get(name, moved)) for name in names]
        )


async def test_transaction_listed_by_a_former_coordinator_is_described_by_the_new_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def find(*_: Any) -> int:
        return 2

    monkeypatch.setattr(transaction_admin, "find_coordinator", find)
    admin = TransactionAdmin(MovingCoordinator())  # type: ignore[arg-type]
    listed = [TransactionListing(name, 1, 1, "Ongoing") for name in ("moved", "gone")]
    found = await admin.describe_listed(listed)
    assert {name: each.coordinator for name, each in found.items()} == {"moved": 2}
