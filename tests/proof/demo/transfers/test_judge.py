"""Test that the judge of transfers finds each kind of planted violation, and nothing else."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from oncelog.proof.demo.transfers import readers
from oncelog.proof.demo.transfers.judge import (
    TRANSFER_ANOMALIES,
    ReaderWait,
    TransfersVerdict,
    judge_transfers,
)
from oncelog.proof.demo.transfers.readers import ReaderWatch
from oncelog.proof.demo.transfers.transfer import BALANCE, AccountTransfer, Contents

TRANSFERS = [AccountTransfer(1, 0, 1, 5), AccountTransfer(2, 1, 2, 7), AccountTransfer(3, 0, 2, 1)]


@dataclass
class Run:
    rows: list[AccountTransfer] = field(default_factory=lambda: list(TRANSFERS))
    balances: dict[int, int] = field(
        default_factory=lambda: {0: BALANCE - 6, 1: BALANCE - 2, 2: BALANCE + 8}
    )
    events: list[bytes] = field(default_factory=lambda: [each.event() for each in TRANSFERS])
    told: dict[int, str] = field(
        default_factory=lambda: {1: "committed", 2: "began", 3: "doubtful", 4: "failed"}
    )
    waits: list[ReaderWait] = field(default_factory=lambda: [ReaderWait(0, 10.0, 13.0)])
    away: list[tuple[float, float]] = field(default_factory=list)

    def judge(self) -> TransfersVerdict:
        events = [(0, offset, value) for offset, value in enumerate(self.events)]
        found = Contents(self.rows, self.balances)
        return judge_transfers(found, events, self.told, self.waits, self.away, wait_max_s=4.0)


def names(run: Run) -> set[str]:
    return {finding.name for finding in run.judge().violations}


def test_transfers_judge_of_a_clean_run_has_no_violation() -> None:
    verdict = Run().judge()
    assert verdict.violations == () and (verdict.rows, verdict.distinct) == (3, 3)
    assert verdict.longest_wait_s == 3.0


def lose_event(run: Run) -> None:
    del run.events[0]


def lose_row(run: Run) -> None:
    run.rows.remove(TRANSFERS[1])
    run.balances.update({1: BALANCE + 5, 2: BALANCE + 1})


def double(run: Run) -> None:
    run.events.append(run.events[0])


def alter(run: Run) -> None:
    run.events[0] = AccountTransfer(1, 0, 1, 6).event()


def spoil(run: Run) -> None:
    run.events.append(b"\xff")


def misbalance(run: Run) -> None:
    run.balances[1] += 1


def promise(run: Run) -> None:
    run.told[9] = "committed"


def deny(run: Run) -> None:
    run.told[1] = "failed"


def hold_up(run: Run) -> None:
    run.waits.append(ReaderWait(1, 20.0, 24.5))


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (lose_event, {"without event"}),
        (lose_row, {"without row"}),
        (double, {"doubled"}),
        (alter, {"altered", "without event"}),
        (spoil, {"altered"}),
        (misbalance, {"wrong balances"}),
        (promise, {"told wrong"}),
        (deny, {"told wrong"}),
        (hold_up, {"held up"}),
    ],
)
def test_transfers_judge_names_each_planted_violation(
    plant: Callable[[Run], None], named: set[str]
) -> None:
    run = Run()
    plant(run)
    assert names(run) == named <= {each.name for each in TRANSFER_ANOMALIES}


def test_transfers_judge_excludes_outages_from_the_time_that_readers_wait() -> None:
    run = Run(waits=[ReaderWait(0, 10.0, 20.0)], away=[(5.0, 12.0), (11.0, 13.0), (15.0, 19.0)])
    assert run.judge().longest_wait_s == pytest.approx(3.0) and names(run) == set()
    run.away = [(21.0, 30.0), (1.0, 9.0)]
    assert names(run) == {"held up"}


def test_transfers_watch_records_the_waits_of_readers_below_the_high_watermark() -> None:
    watch = ReaderWatch({"bootstrap.servers": "127.0.0.1:1"}, "t", 1, shortest_s=1.0)
    key = ("t", 0)
    for now, stable, high in (
        (0.0, 5, 5),
        (1.0, 5, 8),  # the transfers begin
        (2.0, 5, 9),
        (4.0, 9, 9),
        (5.0, 9, 10),
        (5.5, 10, 11),  # too short to be kept, and the next begins
        (9.0, 10, 11),
        (9.5, 11, 12),
    ):
        watch.look({key: stable}, {key: high}, now)
    assert watch.waits == [ReaderWait(0, 1.0, 4.0), ReaderWait(0, 5.5, 9.5)]


def test_transfers_watch_of_the_last_stable_offset_stops_at_an_error_and_raises_it_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.contextmanager
    def broken(_: str) -> Iterator[None]:
        yield None

    monkeypatch.setattr(readers, "blocking_admin", broken)
    watch = ReaderWatch({"bootstrap.servers": "127.0.0.1:1"}, "t", 1, shortest_s=1.0)
    watch.start()
    watch.join(30)
    with pytest.raises(AttributeError):
        watch.end()
