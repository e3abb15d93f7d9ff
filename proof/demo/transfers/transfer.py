"""A transfer between two accounts, with a row and an event of the same contents.

The file does no I/O.
"""

import json
from random import Random
from typing import NamedTuple

ACCOUNTS, BALANCE, AMOUNT_MAX = 50, 1_000, 20
BLOCK_MAX = 8  # transfers of one transaction
PER_SERVICE, PER_INCARNATION = 10**12, 10**6  # ranges of numbers, of BIGINT


class AccountTransfer(NamedTuple):
    """A transfer. Its number is unique among all services and restarts."""

    number: int
    source: int
    target: int
    amount: int

    def event(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def of_event(cls, value: bytes) -> "AccountTransfer | None":
        """Parse an event of a transfer, or return None for a record of another kind."""
        try:
            return cls(**json.loads(value))
        except (ValueError, TypeError):
            return None


class Contents(NamedTuple):
    """The accounts and transfers in the database."""

    transfers: list[AccountTransfer]
    balances: dict[int, int]


def drawn(random: Random, first: int) -> list[AccountTransfer]:
    """Return random transfers for one transaction, numbered from `first` on."""
    found: list[AccountTransfer] = []
    for number in range(first, first + random.randint(1, BLOCK_MAX)):
        source, target = random.sample(range(ACCOUNTS), 2)
        found.append(AccountTransfer(number, source, target, random.randint(1, AMOUNT_MAX)))
    return found
