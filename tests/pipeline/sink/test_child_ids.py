"""Test the reuse of the transactional ids of task attempts ("child ids")."""

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pyspark import SparkFiles

from oncelog.pipeline.sink import child_ids
from oncelog.pipeline.sink.child_ids import ChildIds, ids_file
from oncelog.pipeline.sink.names import generation_of


@pytest.fixture(params=["own", "shared"])
def ids(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ChildIds]:
    """Return the ids of an executor, in a table of one process or in a shared one."""
    ids = ChildIds(tmp_path / "ids" if request.param == "shared" else None)
    yield ids
    ids.close()


def used(ids: ChildIds, batch_id: int, committed: Sequence[str] = (), generation: int = 1) -> str:
    """Take an id for an attempt that succeeds, and return it."""
    name = ids.take("s", generation, batch_id, committed)
    ids.put_back(name, "s", generation, batch_id)
    return name


def test_child_id_is_reused_only_after_its_commit_and_for_a_newer_batch(ids: ChildIds) -> None:
    first, second = used(ids, 0), used(ids, 0)
    assert first != second
    assert used(ids, 2, [first]) == first
    assert used(ids, 2, [first]) not in (first, second)  # one attempt a batch
    assert used(ids, 1, [second, first]) == second
    assert used(ids, 0, [first, second]) not in (first, second)  # a late task


def test_child_id_is_never_given_to_two_attempts(ids: ChildIds) -> None:
    name = used(ids, 0)
    assert ids.take("s", 1, 2, [name]) == name
    assert ids.take("s", 1, 2, [name]) != name  # its twin
    assert ids.take("s", 1, 3, [name]) != name  # the first one sleeps, or is dead


def test_child_id_of_one_sink_is_never_given_to_another_sink(ids: ChildIds) -> None:
    one, other = used(ids, 0), ids.take("t", 1, 0)
    ids.put_back(other, "t", 1, 0)
    assert used(ids, 2, [one]) == one
    assert ids.take("t", 1, 2, [other, one]) == other


def test_child_ids_of_other_generations_are_not_reused(ids: ChildIds) -> None:
    own = used(ids, 0, generation=3)
    late = ids.take("s", 2, 9, [own])  # of a former driver
    assert generation_of("s", late) == 2
    assert used(ids, 1, [own], generation=3) == own
    fresh = used(ids, 2, [own], generation=4)
    assert generation_of("s", fresh) == 4
    assert ids.take("s", 3, 5, [own]) != own


def test_child_id_is_reused_by_another_process_of_the_executor(tmp_path: Path) -> None:
    file = tmp_path / "ids"
    one, other = ChildIds(file), ChildIds(file)
    name = used(one, 0)
    one.close()
    assert other.take("s", 1, 2, [name]) == name
    assert ChildIds().take("s", 1, 2, [name]) != name  # of another executor


TAKES_ALL = """
import json, pathlib, sys
from oncelog.pipeline.sink.child_ids import ChildIds, ids_file
ids, names = ChildIds(pathlib.Path(sys.argv[1])), json.load(sys.stdin)
print(json.dumps([ids.take("s", 1, 1, names) for _ in names]))
"""


def test_child_ids_taken_by_processes_at_the_same_time_are_different(tmp_path: Path) -> None:
    file = tmp_path / "ids"
    ids = ChildIds(file)
    names = [ids.take("s", 1, 0) for _ in range(60)]
    for name in names:
        ids.put_back(name, "s", 1, 0)
    command = [sys.executable, "-c", TAKES_ALL, str(file)]
    several = [
        subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in several:
        assert process.stdin is not None
        process.stdin.write(json.dumps(names))
        process.stdin.close()
        process.stdin = None
    taken = [name for each in several for name in json.loads(each.communicate(timeout=60)[0])]
    assert len(set(taken)) == len(taken) == 3 * len(names)
    assert set(names) <= set(taken)


def test_child_id_table_that_is_locked_leads_to_new_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_ids, "LOCK_TIMEOUT_S", 0.01)
    file = tmp_path / "ids"
    ids = ChildIds(file)
    name = used(ids, 0)
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    fresh = ids.take("s", 1, 2, [name])
    ids.put_back(fresh, "s", 1, 2)
    holder.execute("ROLLBACK")
    holder.close()
    assert fresh != name
    assert ids.take("s", 1, 4, [fresh, name]) == name  # the other was not put back


def of_other_tables(file: Path) -> None:
    with closing(sqlite3.connect(file)) as table:
        table.execute("CREATE TABLE ids (something)")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b"no table" * 1_000),
        lambda file: file.mkdir(),
        of_other_tables,
    ],
    ids=["no table", "a directory", "another table"],
)
def test_child_id_table_that_cannot_be_created_leaves_each_process_its_own_ids(
    spoil: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(tmp_path / "ids")
    ids = ChildIds(tmp_path / "ids")
    used(ids, 0)
    name = used(ids, 1)
    assert used(ids, 2, [name]) == name
    assert caplog.text.count("this process ") == 1


def test_child_id_table_that_is_deleted_is_abandoned_for_new_ids(tmp_path: Path) -> None:
    file = tmp_path / "ids"
    ids = ChildIds(file)
    name = used(ids, 0)
    file.unlink()
    fresh = used(ids, 2, [name])
    assert fresh != name
    assert used(ids, 4, [name, fresh]) == fresh


def test_child_ids_in_a_python_without_sqlite_stay_within_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    ids = ChildIds(tmp_path / "ids")
    name = used(ids, 0)
    assert used(ids, 2, [name]) == name


def test_child_id_table_is_bounded_and_a_busy_sink_evicts_no_other_sink(
    ids: ChildIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_ids, "IDS_MAX", 10)
    monkeypatch.setattr(child_ids, "PRUNED_EACH", 1)
    slow = ids.take("slow", 1, 0)
    ids.put_back(slow, "slow", 1, 0)
    busy: list[str] = []
    for batch in range(50):
        busy = [used(ids, batch, busy)]
    assert ids.take("slow", 1, 1, [slow]) == slow
    names = [used(ids, 100) for _ in range(25)]
    again = [ids.take("s", 1, 101, names) for _ in names]
    assert set(again) & set(names) == set(names[-10:])


def test_child_ids_of_a_worker_without_its_directory_have_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", ".")  # as in executors
    monkeypatch.chdir(tmp_path)
    found = ids_file()
    assert found is not None
    assert found.parent == tmp_path
    folder = tmp_path / "of-a-task"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert ids_file() is None


def test_child_id_table_is_shared_by_two_threads(ids: ChildIds) -> None:
    name = ids.take("s", 1, 0)
    thread = threading.Thread(target=ids.put_back, args=(name, "s", 1, 0))
    thread.start()
    thread.join()
    assert ids.take("s", 1, 1, [name]) == name
