"""Test that the requests of a fetch session together name the wanted partitions (KIP-227)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.fetch.broker_session import EPOCH_MAX, BrokerSession
from oncelog.wire.errors import ErrorCode
from oncelog.wire.identifiers import TopicPartition
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse

IDS = {"a": b"a" * 16, "b": b"b" * 16}
EVENTS = "ok", "lost", "no session", "evicted", "another epoch", "names", "ids"
Wanted = dict[TopicPartition, FetchPartition]


class Broker:
    """A broker with one fetch session that follows the rules of KIP-227."""

    def __init__(self) -> None:
        self.session_id = self.epoch = 0
        self.held: dict[tuple[Any, int], FetchPartition] = {}

    def take(self, request: FetchRequest, *, gives: bool = True) -> FetchResponse:
        if request.session_epoch == 0:
            self.held = {}
            self.session_id += 1
            self.epoch = 0
        elif request.session_id != self.session_id:
            return FetchResponse([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif request.session_epoch != self.epoch:
            return FetchResponse([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for topic in request.topics:
            for partition in topic.partitions:
                self.held[topic.topic_id or topic.name, partition.index] = partition
        for gone in request.forgotten_topics:
            for index in gone.partitions:
                del self.held[gone.topic_id or gone.name, index]
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1
        return FetchResponse([], session_id=self.session_id if gives else 0)


def named(wanted: Wanted, topic_ids: dict[str, bytes] | None) -> dict[tuple[Any, int], Any]:
    return {(topic_ids[t] if topic_ids else t, i): each for (t, i), each in wanted.items()}


def at(index: int, offset: int) -> FetchPartition:
    return FetchPartition(index, offset, 100)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(
                st.tuples(st.sampled_from("ab"), st.integers(0, 2)), st.integers(0, 2), min_size=1
            ),
            st.sampled_from(
                ["ok", "lost", "no session", "evicted", "another epoch", "names", "ids"]
            ),
        ),
        max_size=12,
    )
)
def test_fetch_session_has_exactly_the_wanted_partitions_after_any_events(
    steps: list[tuple[Any, str]],
) -> None:
    session, broker = BrokerSession(), Broker()
    topic_ids: dict[str, bytes] | None = None
    for offsets, event in steps:
        wanted = {(name, index): at(index, offset) for (name, index), offset in offsets.items()}
        if event == "evicted":
            broker.session_id += 1
        elif event == "another epoch":
            broker.epoch += 1
        elif event in ("names", "ids"):
            topic_ids = IDS if event == "ids" else None
        for _ in range(3):
            request = FetchRequest(0, 1, [])
            session.prepare(request, wanted, topic_ids)
            answer = broker.take(request, gives=event != "no session")
            if event != "lost":
                session.answered(answer)
            if not answer.error_code:
                break
        else:
            pytest.fail("refused again and again")
        assert broker.held == named(wanted, topic_ids)


def test_fetch_session_next_request_names_only_changed_partitions() -> None:
    session, broker = BrokerSession(), Broker()
    wanted = {("a", index): at(index, 0) for index in range(100)}
    for moved, said in ((None, 100), (7, 1), (None, 0)):
        if moved is not None:
            wanted = wanted | {("a", moved): at(moved, 1)}
        request = FetchRequest(0, 1, [])
        session.prepare(request, wanted, None)
        session.answered(broker.take(request))
        assert sum(len(topic.partitions) for topic in request.topics) == said


def test_fetch_session_epoch_after_the_maximum_is_one() -> None:
    session, broker = BrokerSession(), Broker()
    for epoch in (0, EPOCH_MAX, 1, 2):
        if epoch == EPOCH_MAX:
            session._epoch = broker.epoch = EPOCH_MAX
        request = FetchRequest(0, 1, [])
        session.prepare(request, {("a", 0): at(0, 0)}, None)
        assert request.session_epoch == epoch
        session.answered(broker.take(request))
