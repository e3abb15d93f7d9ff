"""Test the parts of the chaos loads that need no cluster."""

import json
from dataclasses import asdict, replace

from hypothesis import given
from hypothesis import strategies as st

from oncelog.proof.chaos.load.bank import BankCheck
from oncelog.proof.chaos.load.order import WorkerOrder
from oncelog.proof.chaos.load.payloads import FILLER, leg, leg_of, plain, value_of
from oncelog.proof.chaos.load.settings import LoadSettings
from oncelog.proof.chaos.plan_settings import RunSettings

VALUES = st.integers(0, 2**62)


@given(VALUES, st.integers(0, len(FILLER)))
def test_plain_load_record_contains_its_value(value: int, filler_bytes: int) -> None:
    content = plain(value, filler_bytes)
    assert value_of(content) == value and len(content) == 8 + filler_bytes


@given(VALUES, VALUES, st.integers(-(10**6), 10**6))
def test_transfer_load_record_contains_its_transfer_and_amount(
    value: int, transfer: int, amount: int
) -> None:
    content = leg(value, transfer, amount)
    assert value_of(content) == value and leg_of(content) == (transfer, amount)


def test_load_record_of_foreign_bytes_has_no_value() -> None:
    assert value_of(None) == value_of(b"x") == -1
    assert leg_of(b"x") is leg_of(None) is None


def _check(*legs: tuple[int, int]) -> BankCheck:
    check = BankCheck()
    for value, (transfer, amount) in enumerate(legs):
        check.saw(leg(value, transfer, amount))
    return check


def test_transfer_load_of_whole_transfers_is_balanced_in_any_order() -> None:
    check = _check((1, 5), (2, -7), (1, -10), (2, 7), (1, 5))
    assert check.is_balanced and "5 sides" in check.words()


def test_transfer_load_of_an_incomplete_transfer_is_unbalanced() -> None:
    check = _check((1, -10), (1, 5), (2, 7), (2, -7))
    assert not check.is_balanced
    assert "VIOLATION" in check.words() and "1 by -5" in check.words()


def test_transfer_load_of_two_incomplete_transfers_that_sum_to_zero_is_unbalanced() -> None:
    assert not _check((1, -10), (2, 10)).is_balanced


def test_load_settings_are_read_back_from_json() -> None:
    load = LoadSettings(pause_ms=3, consumer_groups=("job",))
    settings = RunSettings(seed=9, kinds=("kill",), load=load)
    assert RunSettings.from_json(json.loads(json.dumps(asdict(settings)))) == settings


def test_load_worker_order_is_read_back_from_json() -> None:
    order = WorkerOrder(
        run="r", connection="b", number=1, seed="s", workloads=("append",), proxies={1: 2},
        settings=LoadSettings(consumer_groups=("readers",)),
    )  # fmt: skip
    assert WorkerOrder.from_json(order.to_json()) == order
    assert WorkerOrder.from_json(replace(order, number=2).to_json()) != order
