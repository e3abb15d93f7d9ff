"""The bank's invariant: all sides of a transfer together make zero, and so do all transfers. Pure.

It is fed every record that the last reading shows. Only transfers that do not add up yet are kept.
"""

from dataclasses import dataclass, field

from .payloads import leg_of

EXAMPLES_MAX = 5


@dataclass(slots=True)
class BankCheck:
    sides: int = 0
    total: int = 0
    _open: dict[int, int] = field(default_factory=dict[int, int])

    def saw(self, content: bytes | None) -> None:
        """One visible record of the bank."""
        found = leg_of(content)
        if found is None:
            return
        transfer, amount = found
        self.sides += 1
        self.total += amount
        left = self._open.pop(transfer, 0) + amount
        if left:
            self._open[transfer] = left

    @property
    def is_balanced(self) -> bool:
        """Whether nothing came from nowhere or went there."""
        return self.total == 0 and not self._open

    def words(self) -> str:
        """What was found, in a sentence."""
        if self.is_balanced:
            return f"bank: {self.sides:,} sides of transfers, all in balance"
        examples = ", ".join(
            f"{t} by {left}" for t, left in list(self._open.items())[:EXAMPLES_MAX]
        )
        return (
            f"VIOLATION bank: the sum is {self.total}, {len(self._open):,} transfers are torn "
            f"or doubled: {examples}"
        )
