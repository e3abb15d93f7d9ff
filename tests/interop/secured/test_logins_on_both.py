"""Test valid and invalid logins of other clients on oncelog and on Apache Kafka 4.4.

The messages of clients and brokers were recorded by `record_logins.py`, and docs/security.md shows
them.
"""

from pathlib import Path

import pytest

from .login_players import NAMES, missing
from .login_table import PAGE, recorded, written
from .record_logins import differences, kind, play, wrongly_judged


def test_security_page_table_equals_the_recorded_login_messages() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, recorded()) == page


SOON = ("oncelog", "kafkajs", "aiokafka")  # the others take a minute or more each


def test_recorded_logins_have_the_same_outcome_on_kafka_and_oncelog() -> None:
    said = recorded()
    assert set(said) == {*NAMES, "broker"}
    assert not differences(said) and not wrongly_judged(said)


@pytest.mark.kafka
@pytest.mark.cluster
@pytest.mark.parametrize(
    "name",
    [each if each in SOON else pytest.param(each, marks=pytest.mark.soak) for each in NAMES],
)
@pytest.mark.in_turn
def test_client_login_has_the_same_outcome_on_kafka_and_oncelog(name: str, tmp_path: Path) -> None:
    if why := missing(name):
        pytest.skip(why)
    said = play((name,), tmp_path)
    assert not differences(said) and not wrongly_judged(said)
    kept = recorded()[name]
    found = {case: {side: kind(words) for side, words in of.items()}
             for case, of in said[name].items()}  # fmt: skip
    assert found == {
        case: {side: kind(words) for side, words in of.items()} for case, of in kept.items()
    }
