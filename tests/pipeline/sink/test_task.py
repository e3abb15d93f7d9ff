"""Test the objects that a Python worker of Spark keeps from task to task."""

import gc
from collections.abc import Iterator

import pytest

from oncelog.pipeline.sink import task
from oncelog.pipeline.sink.task import worker_of_process


@pytest.fixture
def no_worker() -> Iterator[None]:
    """Run the test as in a process that has executed no task yet."""
    before = dict(task._workers)
    task._workers.clear()
    yield
    for worker in task._workers.values():
        worker.close()
    task._workers.clear()
    task._workers.update(before)
    gc.unfreeze()


@pytest.mark.usefixtures("no_worker")
def test_spark_worker_objects_are_excluded_from_garbage_collection_from_the_second_task_on() -> (
    None
):
    gc.unfreeze()
    first = worker_of_process()
    assert gc.get_freeze_count() == 0  # its first task may load more, and leave garbage
    assert worker_of_process() is first
    frozen = gc.get_freeze_count()
    assert frozen > 1_000
    of_later_tasks: list[object] = [[] for _ in range(100)]
    assert worker_of_process() is first
    assert gc.get_freeze_count() <= frozen and len(of_later_tasks) == 100  # they stay collectable
