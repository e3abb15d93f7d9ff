"""Finds, describes and ends the transactions that a test has left open.

A decided transaction (Prepare*) ends by itself, so the plugin waits for its markers. A transaction
that is Ongoing after the test blocks every reader of committed data until its timeout.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...deploy.cluster.failure import Failure
from ...deploy.inspect.transaction_facts import explanation

if TYPE_CHECKING:
    from ...client.admin import Admin

UNDECIDED = "Ongoing"
DECIDED = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
DECIDED_TIMEOUT_S = 30.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True, order=True)
class OpenTransaction:
    """An open transaction. Its start time distinguishes it from later ones of the same id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    start_ms: int


async def open_transactions(
    admin: "Admin", *, needs_all_brokers: bool = True
) -> frozenset[OpenTransaction]:
    """Return all undecided transactions (see `list_transactions`)."""
    listed = await admin.transactions.list_transactions(
        states=[UNDECIDED], needs_all_brokers=needs_all_brokers
    )
    described = await admin.transactions.describe_listed(listed)
    return frozenset(
        OpenTransaction(s.transactional_id, s.producer_id, s.producer_epoch, s.start_ms)
        for s in described.values()
        if s.state == UNDECIDED
    )


async def wait_for_decided(
    admin: "Admin", known: frozenset[OpenTransaction]
) -> list[OpenTransaction]:
    """Wait for the markers of decided transactions. Return the undecided ones except `known`.

    Raises Failure when the markers are not written in time.
    """
    deadline = time.monotonic() + DECIDED_TIMEOUT_S
    while waiting := await admin.transactions.list_transactions(states=DECIDED):
        if time.monotonic() > deadline:
            told = await explanation(admin, waiting[0].transactional_id)
            raise Failure(told.in_words())
        await asyncio.sleep(POLL_S)
    return sorted(await open_transactions(admin) - known)


async def in_words(admin: "Admin", left: Iterable[OpenTransaction]) -> str:
    """Return a text about the open transactions, and how each of them will end."""
    told = [await explanation(admin, each.transactional_id) for each in left]
    return "\n".join(each.in_words() for each in told)


async def abort(admin: "Admin", left: Iterable[OpenTransaction]) -> None:
    """Abort the transactions, by InitProducerId for each transactional id."""
    for each in left:
        await admin.transactions.end(each.transactional_id)
