"""Verification guards, without which no transaction opens in a partition (KIP-890).

Before the first transactional batch of a producer is appended, the coordinator verifies that the
partition belongs to the transaction. Meanwhile a marker may end the transaction, and a verification
that arrives later must open no transaction. Therefore each verification gets a guard, a number that
is never reused. Any appended data or marker of the producer destroys the guard, and only a request
with the current guard may open the transaction. While the guard exists, the lowest sequence that
was seen must be appended first, since otherwise that sequence would be a gap forever. The next
sequence of a known epoch leaves no gap, and is not compared with the lowest one. The coordinator's
answer has an index of its Raft log at which the transaction was ongoing. Markers that were decided
before that index belong to earlier transactions.
"""

import itertools
from dataclasses import dataclass, field

from ...wire.errors import InvalidTxnState, OutOfOrderSequenceNumber

_guards = itertools.count(1)  # unique in the process, so that no guard returns after a reload


@dataclass(slots=True, eq=False)
class VerificationStateEntry:
    """The verification of one producer's transaction, until its first append or its marker."""

    epoch: int
    lowest_sequence: int
    created_ms: int
    ongoing_index: int = 0
    supports_epoch_bump: bool = False
    guard: int = field(default_factory=_guards.__next__)


class VerificationGuards(dict[int, VerificationStateEntry]):
    """The current guards of a partition by producer id, at most `guards_max` of them."""

    __slots__ = ("guards_max",)

    def __init__(self, guards_max: int) -> None:
        super().__init__()
        self.guards_max = guards_max

    def begin(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, supports_epoch_bump: bool
    ) -> int:
        """Return the producer's current guard, or a new one.

        Several requests may share a guard.
        """
        verification = self.get(producer_id)
        if verification is None:
            if len(self) >= self.guards_max:
                del self[next(iter(self))]  # the oldest is dropped, since its producer will retry
            verification = self[producer_id] = VerificationStateEntry(epoch, sequence, now_ms)
        elif epoch > verification.epoch:
            verification.epoch, verification.lowest_sequence = epoch, sequence
        elif epoch == verification.epoch:
            verification.lowest_sequence = min(verification.lowest_sequence, sequence)
        if epoch == verification.epoch:
            verification.supports_epoch_bump = supports_epoch_bump
        return verification.guard

    def check_guard(self, producer_id: int, guard: int | None) -> None:
        """Raise InvalidTxnState unless `guard` is the producer's current guard."""
        verification = self.get(producer_id)
        if guard is None or verification is None or verification.guard != guard:
            raise InvalidTxnState(
                f"Producer {producer_id} has no verified transaction in this partition"
            )

    def check_sequence(
        self, producer_id: int, first_sequence: int, *, begins_unknown_transaction: bool
    ) -> None:
        """Raise OutOfOrderSequenceNumber if a lower sequence is still to be appended.

        For an unknown TV2 producer the lower sequence is 0, since each of its transactions begins
        an epoch.
        """
        verification = self.get(producer_id)
        if verification is None:
            return
        if first_sequence > verification.lowest_sequence:
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {producer_id}: {first_sequence} "
                f"(incoming), {verification.lowest_sequence} (earliest seen)"
            )
        if begins_unknown_transaction and verification.supports_epoch_bump and first_sequence != 0:
            raise OutOfOrderSequenceNumber(
                f"Producer {producer_id} is not known here and begins a transaction with sequence "
                f"{first_sequence} instead of 0"
            )

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Drop the guards that are `expiration_ms` old."""
        for producer_id, verification in list(self.items()):
            if now_ms - verification.created_ms >= expiration_ms:
                del self[producer_id]
