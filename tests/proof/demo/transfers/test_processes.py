"""Test that killed services of the transfers demo leave no transaction and repeat no number."""

from itertools import pairwise
from pathlib import Path

import pytest

from oncelog.proof.demo.transfers.processes import (
    RIVAL,
    SERVICES,
    ServiceOverruled,
    TransferServices,
)
from oncelog.proof.demo.transfers.service import ServiceSettings
from oncelog.proof.demo.transfers.transfer import PER_INCARNATION


class Sleepers(TransferServices):
    """Services that start `sleep` instead of the transfer program."""

    def argv(self, name: str, incarnation: int) -> list[str]:
        self.command(name, incarnation)
        return ["sleep", "60"]


def sleepers_in(folder: Path) -> Sleepers:
    settings = ServiceSettings(
        connection="127.0.0.1:1", topic="t", database="", folder=str(folder), seed=1, broken="none"
    )
    return Sleepers(settings, folder)


def test_transfers_service_that_was_killed_leaves_no_open_transaction(tmp_path: Path) -> None:
    sleepers = sleepers_in(tmp_path)
    try:
        for name in (SERVICES[0], RIVAL):
            sleepers.start(name)
            sleepers.on_event(name, "began", [1])
        assert sleepers.open_transactions() == 2
        sleepers.kill(RIVAL)
        assert sleepers.open_transactions() == 1
    finally:
        sleepers.close()


def test_transfers_service_that_was_overruled_ends_every_wait(tmp_path: Path) -> None:
    sleepers = sleepers_in(tmp_path)
    try:
        sleepers.start(SERVICES[0])
        sleepers.on_event(SERVICES[0], "ended", "WriterSuperseded")
        sleepers.check()
        sleepers.on_event(SERVICES[0], "ended", "DecisionOverruled")
        with pytest.raises(ServiceOverruled):
            sleepers.wait(lambda: False, 60)
    finally:
        sleepers.close()


def test_transfers_numbers_stay_unique_after_many_kills(tmp_path: Path) -> None:
    told = sleepers_in(tmp_path)
    firsts = [told.settings_of(name).first for name in (*SERVICES, RIVAL)]
    starts = 60 * 60  # one each second, for an hour
    assert all(b - a > starts * PER_INCARNATION for a, b in pairwise(firsts))
