"""The bounds of one shard: what is refused because there would be too much of it."""

import asyncio
import logging

from ...coordinator.transactions.record import TransactionRecord
from ...coordinator.transactions.settings import TransactionSettings
from ...coordinator.transactions.shard import TransactionShard
from ...coordinator.transactions.states import TransactionState
from ...wire.errors import ErrorCode

LOG_INTERVAL_S = 60.0


class ShardLimits:
    """Of one shard in one term."""

    def __init__(self, shard: TransactionShard, settings: TransactionSettings) -> None:
        self._shard = shard
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._logged_s: dict[str, float] = {}
        self._log = logging.getLogger(__name__)

    def check_new_id(self) -> ErrorCode:
        """Whether there is room for one transactional id more."""
        if len(self._shard) < self._settings.ids_max:
            return ErrorCode.NONE
        self._say("transactional ids", "oncelog.transactional.ids.max")
        return ErrorCode.POLICY_VIOLATION

    def check_change(self, old: TransactionRecord | None, new: TransactionRecord) -> ErrorCode:
        """Whether there is room for what this change opens or adds."""
        if new.state != TransactionState.ONGOING:
            return ErrorCode.NONE
        if len(new.partitions) > self._settings.partitions_max:
            self._say("partitions in a transaction", "oncelog.transaction.partitions.max")
            return ErrorCode.POLICY_VIOLATION
        begins = old is None or old.state != TransactionState.ONGOING
        if begins and len(self._shard.open_ids) >= self._settings.open_max:
            self._say("open transactions", "oncelog.transactions.open.max")
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def _say(self, what: str, key: str) -> None:
        """Say in the log, once in a while, what no field of the answer has room for."""
        now_s = self._loop.time()
        if now_s >= self._logged_s.get(key, 0) + LOG_INTERVAL_S:
            self._logged_s[key] = now_s
            self._log.warning("requests are refused: too many %s; %s allows more", what, key)
