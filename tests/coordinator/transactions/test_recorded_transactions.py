"""Test our answers in each transaction state against recorded answers of Apache Kafka.

The answers were recorded from Apache Kafka (`tests/interop/recorded/record.py`), and not made from
our tables. Our broker in this process gets the same requests over the network. The leader of topic
`held` refuses markers, so that its transactions stay in Prepare*.
"""

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode

from ...interop.inner_broker import InnerBroker
from ...interop.raw_peer import CREATE_TOPICS
from ...interop.recorded.cases import FIXTURE, NONE, STATES, Case, cases, read
from ...interop.recorded.requests import CALM, HELD, KNOWN_GROUP, NEW_GROUP
from ...interop.recorded.stage import Stage, play
from .recorded_differences import MEANT, Meant
from .written_transactions import write_states

pytestmark = pytest.mark.cluster
LAST_EPOCHS = (32765, 32766)
FIRST_WRITTEN_PRODUCER_ID = 10_000_000
used: set[Meant] = set()
runs = count()  # no transactional id is used twice


@cache
def recorded() -> dict[Case, str]:
    return read(FIXTURE)


@pytest.fixture(scope="module")
def inner() -> Iterator[InnerBroker]:
    settings = {
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": "200",
        "oncelog_transaction_hold_ms": "0",  # answers come at once where Kafka's come at once
        "oncelog_transaction_connection_fence": "false",  # a case uses several connections
    }
    with InnerBroker(**settings) as inner:
        hold_markers(inner)
        yield inner


@pytest.fixture(scope="module")
def stage(inner) -> Iterator[Stage]:
    stage = Stage({1: inner.address})
    topics = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1}
        for name, partitions in ((CALM, 2), (HELD, 1))
    ]
    peer = stage.peer(1)
    answer = peer.ask_raw(CREATE_TOPICS, 5, {"timeout": 10000, "topics": topics})
    assert all(topic.error_code == 0 for topic in answer.topics), answer
    peer.learn(CALM, 2)
    for group in (KNOWN_GROUP, NEW_GROUP):
        stage.warm(group)
    yield stage
    stage.close()


def hold_markers(inner: InnerBroker) -> None:
    """Refuse markers for the topic HELD, so that its transactions stay in Prepare*."""
    writer: Any = inner.broker.services.markers
    append = writer._append

    def held(marker: Any, topic: str, index: int, leader_epoch: int) -> Any:
        if topic == HELD:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return append(marker, topic, index, leader_epoch)

    writer._append = held


def differences(inner: InnerBroker, stage: Stage, chosen: list[Case]) -> list[str]:
    run = next(runs)
    names = {case: f"{run}: {case}" for case in chosen}
    write_states(
        inner,
        {
            names[case]: (FIRST_WRITTEN_PRODUCER_ID * (run + 1) + number, case.start_epoch - 1)
            for number, case in enumerate(chosen)
            if case.start_epoch > 1
        },
    )
    found = []
    for case, ours in play(stage, chosen, names).items():
        kafka = recorded()[case]
        if ours == kafka:
            continue
        meant = next((row for row in MEANT if row.covers(case, kafka, ours)), None)
        if meant is None:
            found.append(f"{case}\n    Kafka {kafka}\n    ours  {ours}")
        else:
            used.add(meant)
    return found


def _some(state: str) -> list[Case]:
    """Return the cases of a state that show a difference between versions.

    A case in one of the LAST_EPOCHS is included only if its answer differs from that in epoch 0.
    """
    return [
        case
        for case in cases()
        if case.state.name == state
        and case.version in case.request.telling
        and (case.start_epoch == 0 or case in _distinct_of_last_epochs())
    ]


@cache
def _distinct_of_last_epochs() -> set[Case]:
    """Return one case for each answer in the LAST_EPOCHS that differs from that in epoch 0."""
    first: dict[tuple[Case, str], Case] = {}
    for case in cases():
        answer = recorded()[case]
        if case.start_epoch in LAST_EPOCHS and answer != recorded().get(
            case._replace(start_epoch=0)
        ):
            first.setdefault((case._replace(state=NONE), answer), case)
    return set(first.values())


def test_transaction_case_of_each_kind_has_a_recorded_kafka_answer():
    assert recorded().keys() == set(cases())


@pytest.mark.in_turn
@pytest.mark.parametrize("state", [state.name for state in STATES])
def test_transaction_answers_of_some_cases_equal_those_recorded_from_kafka(inner, stage, state):
    found = differences(inner, stage, _some(state))
    assert not found, f"{len(found)} differences\n" + "\n".join(found)


@pytest.mark.soak
def test_transaction_answers_of_all_cases_equal_those_recorded_from_kafka(inner, stage):
    found = differences(inner, stage, list(cases()))
    assert not found, f"{len(found)} differences\n" + "\n".join(found)
    stale = [meant for meant in MEANT if meant not in used]
    assert not stale, "\n".join(map(str, stale))
