"""A check-back that aborts without a recorded decision, for `--break no-tombstone`.

python -m oncelog.proof.demo.transfers.careless_check_back CONNECTION URL OLDER_THAN_MS EVERY_MS
"""

import asyncio
import contextlib
import sys

from ....client import Admin, CheckBack
from ....client.dual_write import decision_table
from ....client.dual_write.database import Dialect, run
from ....client.dual_write.flow import drive
from ....client.dual_write.steps import DecidedOutcome, TransactionKey
from ....deploy.cluster.secured.connection import client_config
from .database import TransferDatabase


class CarelessResolver:
    """A resolver that reads the database's decisions on transactions, and writes none."""

    def __init__(self, database: TransferDatabase) -> None:
        self._database = database

    async def resolve(self, key: TransactionKey) -> DecidedOutcome | None:
        with contextlib.closing(self._database.connect()) as connection:
            script = decision_table.read_outcome(key)
            found = drive(run(script, connection, Dialect(connection)))
        return found or DecidedOutcome.ABORTED

    async def check(self) -> str:
        return ""

    async def close(self) -> None: ...


async def main(connection: str, url: str, older_than_ms: str, every_ms: str) -> None:
    resolver = CarelessResolver(TransferDatabase(url))
    async with Admin(client_config(connection)) as admin:
        print(f"looks every {every_ms} ms", flush=True)
        check_back = CheckBack(admin.view, resolver, older_than_ms=int(older_than_ms))
        await check_back.run(
            every_ms=int(every_ms), report=lambda each: print(each.in_words(), flush=True)
        )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
