"""Verification guards: no transaction opens in a partition without its coordinator (KIP-890).

Before the first transactional batch of a producer is appended, the coordinator verifies that the
partition belongs to the transaction. Meanwhile a marker may end the transaction: a verification
that arrives after that must open nothing. So each verification gets a guard, a number that is
never reused; any data or marker of the producer that is appended destroys it, and only the holder
of the present guard may append. While the guard lasts, the lowest sequence that was seen must be
appended first: a higher one would make it a gap for ever. The coordinator's answer says when the
transaction was ongoing, by the index of its Raft log; markers that were decided before are of
earlier transactions.
"""

import itertools
from dataclasses import dataclass, field

from ...wire.errors import InvalidTxnState, OutOfOrderSequenceNumber

_guards = itertools.count(1)  # of the process: a guard never comes back after a reload


@dataclass(slots=True, eq=False)
class VerificationStateEntry:
    """One producer's transactional append that waits for its verification."""

    epoch: int
    lowest_sequence: int
    created_ms: int
    ongoing_index: int = 0
    supports_epoch_bump: bool = False
    guard: int = field(default_factory=_guards.__next__)


class VerificationGuards(dict[int, VerificationStateEntry]):
    """The present guards of a partition by producer id, at most `guards_max` of them."""

    __slots__ = ("guards_max",)

    def __init__(self, guards_max: int) -> None:
        super().__init__()
        self.guards_max = guards_max

    def begin(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, supports_epoch_bump: bool
    ) -> int:
        """Return the producer's present guard, or a new one.

        Several requests may hold the same.
        """
        verification = self.get(producer_id)
        if verification is None:
            if len(self) >= self.guards_max:
                del self[next(iter(self))]  # the oldest: its producer will retry
            verification = self[producer_id] = VerificationStateEntry(epoch, sequence, now_ms)
        elif epoch > verification.epoch:
            verification.epoch, verification.lowest_sequence = epoch, sequence
        elif epoch == verification.epoch:
            verification.lowest_sequence = min(verification.lowest_sequence, sequence)
        if epoch == verification.epoch:
            verification.supports_epoch_bump = supports_epoch_bump
        return verification.guard

    def check_guard(self, producer_id: int, guard: int | None) -> None:
        """Raise InvalidTxnState unless `guard` is the producer's present one."""
        verification = self.get(producer_id)
        if guard is None or verification is None or verification.guard != guard:
            raise InvalidTxnState(
                f"Producer {producer_id} has no verified transaction in this partition"
            )

    def check_sequence(
        self, producer_id: int, first_sequence: int, *, begins_unknown_transaction: bool
    ) -> None:
        """Raise OutOfOrderSequenceNumber when a lower sequence is still to come.

        So is sequence 0 for a TV2 producer that the partition does not know: each of its
        transactions begins an epoch.
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
