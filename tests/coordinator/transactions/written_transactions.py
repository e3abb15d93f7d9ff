"""Records that are written directly into the transaction coordinator of a broker."""

import asyncio
from typing import Any

from oncelog.coordinator.sharding import shard_for
from oncelog.coordinator.transactions.commands import (
    Write,
    WriteRecords,
    encode_transaction_command,
)
from oncelog.coordinator.transactions.record import TransactionRecord
from oncelog.coordinator.transactions.shard import Applied
from oncelog.coordinator.transactions.states import TransactionState

from ...interop.inner_broker import InnerBroker

RECORDS_PER_COMMAND = 500
TIMEOUT_MS = 10_000


def write_states(inner: InnerBroker, wanted: dict[str, tuple[int, int]]) -> None:
    """Give each transactional id a record in state Empty, with this producer id and epoch."""
    transactions: Any = inner.broker._transactions
    groups = transactions._raft_groups
    by_shard: dict[int, list[Write]] = {}
    now_ms = inner.broker.services.clock.wall_ms()
    for name, (producer_id, epoch) in wanted.items():
        record = TransactionRecord(
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=900_000,
            state=TransactionState.EMPTY,
            last_update_ms=now_ms,
        )
        by_shard.setdefault(shard_for(name, len(groups)), []).append(
            Write.after(name, None, record)
        )

    async def put() -> None:
        for shard, writes in by_shard.items():
            group = groups[shard]
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                while not group.is_leader:  # the broker serves before all its shards have a leader
                    await asyncio.sleep(0.005)
            for start in range(0, len(writes), RECORDS_PER_COMMAND):
                some = tuple(writes[start : start + RECORDS_PER_COMMAND])
                command = encode_transaction_command(WriteRecords(group.term, some))
                applied: Applied = await group.submit(command, timeout_ms=TIMEOUT_MS)
                assert applied.is_done, applied
                await asyncio.sleep(0)

    inner.run(put())
