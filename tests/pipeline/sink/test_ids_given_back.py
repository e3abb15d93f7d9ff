"""Test that a driver returns transactional ids to tasks for reuse, so that few ids suffice."""

import pytest

from oncelog.client import PreparedTransaction
from oncelog.pipeline.sink import protocol as sink_protocol
from oncelog.pipeline.sink.child_ids import ChildIds
from oncelog.pipeline.sink.steps import (
    ChildrenAborted,
    ChildrenCommitted,
    ControlCommitted,
    Effect,
    OpenListed,
    RunTasks,
    TaskReport,
    TasksDone,
)

from .test_protocol import child, feed, given, report, running


def test_child_ids_are_returned_to_executors_one_batch_later() -> None:
    protocol, _ = running()

    def write(batch: int) -> tuple[str, ...]:
        effect = feed(
            protocol,
            TasksDone((TaskReport(partition_id=0, record_count=1, child=child(batch)),)),
            ControlCommitted(),
            ChildrenCommitted(),
            OpenListed(()),
            ChildrenAborted(),
            ControlCommitted(),
            given(batch + 1),
        )
        assert isinstance(effect, RunTasks)
        return effect.committed

    names = [child(batch).transactional_id for batch in range(3)]
    assert write(0) == ()
    assert write(1) == (names[0],)
    assert write(2) == (names[0], names[1])


def test_child_ids_returned_to_executors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_protocol, "GIVEN_BACK_MAX", 2)
    protocol, _ = running()
    effect: Effect | None = None
    for batch in range(8):
        one = TaskReport(partition_id=0, record_count=1, child=child(batch))
        finish = (ControlCommitted(), ChildrenCommitted(), OpenListed(()), ChildrenAborted())
        effect = feed(protocol, TasksDone((one,)), *finish, ControlCommitted(), given(batch + 1))
        assert len(protocol.reusable_ids) <= 4
    assert isinstance(effect, RunTasks)
    assert effect.committed == (child(5).transactional_id, child(6).transactional_id)


def test_child_ids_of_a_batch_with_more_tasks_than_returned_ids_do_not_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_protocol, "GIVEN_BACK_MAX", 2)
    protocol, effect = running()
    ids, made = ChildIds(), set[str]()
    for batch in range(8):
        assert isinstance(effect, RunTasks)
        tasks = 1 if batch == 5 else 6  # one small batch between
        names = [ids.take("s", 1, batch, effect.committed) for _ in range(tasks)]
        made.update(names)
        for name in names:
            ids.put_back(name, "s", 1, batch)
        reports = tuple(
            TaskReport(
                partition_id=i, record_count=1, child=PreparedTransaction(name, i, batch, True)
            )
            for i, name in enumerate(names)
        )
        finish = (ControlCommitted(), ChildrenCommitted(), OpenListed(()), ChildrenAborted())
        effect = feed(protocol, TasksDone(reports), *finish, ControlCommitted(), given(batch + 1))
    assert len(made) == 12  # those of the last batch have to rest


def test_child_id_aborted_as_a_leftover_is_never_returned_to_executors() -> None:
    protocol, _ = running()
    finish = (ControlCommitted(), ChildrenCommitted(), OpenListed(()), ChildrenAborted())
    feed(protocol, TasksDone((report(0),)), *finish, ControlCommitted(), given(1))
    feed(protocol, TasksDone(()), ControlCommitted(), ChildrenCommitted())
    feed(protocol, OpenListed((child(0).transactional_id,)), ChildrenAborted())
    effect = protocol.step(given(2))
    assert isinstance(effect, RunTasks)
    assert effect.committed == ()
