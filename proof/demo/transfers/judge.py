"""Compares rows with events, since each committed transfer must be one row and one event.

The file does no I/O. The judge gets the database's contents, the topic as a read_committed consumer
saw it, the answers that the services got for each transfer, and the time for which readers waited.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...judge import contents
from ...judge.analysis.findings import Anomaly, Findings
from ...judge.contents import ContentsVerdict
from .transfer import BALANCE, AccountTransfer, Contents

NO_EVENT = Anomaly(
    "without event", "demo", "a transfer is committed in the database, but not in Kafka"
)
NO_ROW = Anomaly(
    "without row", "demo", "an event is committed, but its transfer is not in the database"
)
TOLD_WRONG = Anomaly(
    "told wrong",
    "demo",
    "a block returned without its transfer, or raised an error although its transfer exists",
)
WRONG_BALANCES = Anomaly(
    "wrong balances", "demo", "the balance of an account differs from the sum of its transfers"
)
HELD_UP = Anomaly(
    "held up",
    "demo",
    "readers waited longer than a check-back needs to end an abandoned transaction",
)
TRANSFER_ANOMALIES = (
    NO_EVENT,
    NO_ROW,
    contents.DOUBLED,
    contents.ALTERED,
    TOLD_WRONG,
    WRONG_BALANCES,
    HELD_UP,
)


class ReaderWait(NamedTuple):
    """A time span in which the last stable offset of a partition made no progress."""

    partition: int
    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TransfersVerdict(ContentsVerdict):
    rows: int = 0
    longest_wait_s: float = 0.0  # of readers, without the time in which something was away


def judge_transfers(
    found_rows: Contents,
    events: contents.Records,
    told: Mapping[int, str],
    waits: Iterable[ReaderWait],
    away: Sequence[tuple[float, float]],
    *,
    wait_max_s: float,
) -> TransfersVerdict:
    """Compare the rows in the database, the events in Kafka, and the services' answers.

    told: the reported state of each transfer, which is committed, failed, or another word without a
    reported outcome. away: times without a broker, the database or the check-back.
    """
    found, rows = Findings(), {each.number: each for each in found_rows.transfers}

    def number_of(partition: int, offset: int, value: bytes) -> int | None:
        event = AccountTransfer.of_event(value)
        if event is None or rows.get(event.number, event) != event:
            return None
        return event.number

    read, places = contents.look_at(events, number_of, "transfer {}".format, found)
    for number in sorted(rows.keys() - places.keys()):
        found.add(NO_EVENT, f"transfer {number}")
    for number in sorted(places.keys() - rows.keys()):
        found.add(NO_ROW, f"transfer {number}, at {'@'.join(map(str, places[number]))}")
    for number, word in told.items():
        if (word == "committed" and number not in rows) or (word == "failed" and number in rows):
            found.add(TOLD_WRONG, f"transfer {number}, {word}")
    _judge_balances(found_rows, found)
    longest_s = 0.0
    for wait in waits:
        lasted_s = _without(wait, away)
        longest_s = max(longest_s, lasted_s)
        if lasted_s > wait_max_s:
            found.add(HELD_UP, f"partition {wait.partition} for {lasted_s:.1f} s")
    return TransfersVerdict(
        read=read,
        distinct=len(places),
        violations=found.of(TRANSFER_ANOMALIES),
        rows=len(rows),
        longest_wait_s=longest_s,
    )


def _judge_balances(found_rows: Contents, found: Findings) -> None:
    expected = dict.fromkeys(found_rows.balances, BALANCE)
    for transfer in found_rows.transfers:
        expected[transfer.source] -= transfer.amount
        expected[transfer.target] += transfer.amount
    for account, balance in expected.items():
        if found_rows.balances[account] != balance:
            found.add(WRONG_BALANCES, f"{account}: {found_rows.balances[account]}, not {balance}")


def _without(wait: ReaderWait, away: Sequence[tuple[float, float]]) -> float:
    """Return the seconds of a wait during which every component was running."""
    left_s, counted_to = 0.0, wait.since
    for since, until in away:
        if until > counted_to and since < wait.until:
            left_s += max(0.0, since - counted_to)
            counted_to = min(until, wait.until)
    return left_s + max(0.0, wait.until - counted_to)
