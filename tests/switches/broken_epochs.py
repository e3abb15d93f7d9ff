"""Switches with bugs of producer epochs and of ends of transactions that Kafka once had."""

from contextlib import AbstractContextManager
from typing import Any

from oncelog.coordinator.transactions import decisions
from oncelog.coordinator.transactions.record import EPOCH_MAX
from oncelog.storage.producers import state
from oncelog.storage.producers.verdicts import ACCEPTED, judge_marker
from oncelog.wire.errors import InvalidProducerEpoch

from .patching import replaced


def last_epoch() -> AbstractContextManager[Any]:
    """A client gets the largest epoch, so no epoch is left to fence the client (KAFKA-19367)."""
    return replaced(decisions, "EPOCH_LAST", EPOCH_MAX)


def strict_marker() -> AbstractContextManager[Any]:
    """A repeated marker of transactions V2 is refused (KAFKA-19999)."""

    def judge(entry: Any, epoch: int, coordinator_epoch: int, version: int) -> Any:
        verdict = judge_marker(entry, epoch, coordinator_epoch, version)
        if verdict is not ACCEPTED:
            raise InvalidProducerEpoch("the epoch of the marker is not above the last one")
        return verdict

    return replaced(state, "judge_marker", judge)
