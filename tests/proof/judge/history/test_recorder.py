"""Test that recordings are read back, sealed or not, also after a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.files import seal
from oncelog.proof.judge.history.format import HistoryFormat
from oncelog.proof.judge.history.outcomes import outcome_of_send, outcome_of_transaction
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.rows import CHUNK_ROWS
from oncelog.proof.judge.history.schema import TABLES, OpOutcome

from ....node.counted_calls import calls_of
from ..model_cluster import ModelCluster

WRITER = """
import sys
from pathlib import Path
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.schema import OpOutcome
recorder = Recorder.open(Path(sys.argv[1]))
process = recorder.new_process()
for number in range(10**9):
    begun = recorder.begin(process, "writer")
    send = recorder.send_invoked(process, "orders/0", recorder.new_value(), begun)
    recorder.send_ended(send, OpOutcome.OK, offset=number)
    recorder.commit_invoked(begun)
    recorder.transaction_ended(begun, OpOutcome.OK)
    if number == 5_000:
        print("enough", flush=True)
"""


def columns(history: History) -> dict[str, list[object]]:
    return {
        table.name: [history.row(table.name, n) for n in range(history.count(table.name))]
        for table in TABLES.values()
    }


def into_files(run: Path, source: Recorder) -> Recorder:
    """Write the rows of a recorder in memory into files, and return the recorder of the files."""
    made = Recorder.open(run)
    for name, rows in columns(History.of(source)).items():
        for row in rows:
            made.add(name, *row.values())  # type: ignore[union-attr]
    return made


def test_history_recorder_sealed_has_the_same_rows(tmp_path: Path) -> None:
    cluster = ModelCluster(3)
    expected = columns(History.of(cluster.recorder))
    made = into_files(tmp_path, cluster.recorder)
    assert columns(History.open(tmp_path)) == expected  # while the history is being written
    made.close()
    assert columns(History.open(tmp_path)) == expected
    seal(tmp_path)
    assert not list(tmp_path.rglob("*.rows"))
    assert columns(History.open(tmp_path)) == expected
    seal(tmp_path)  # there is nothing left to do
    assert columns(History.open(tmp_path)) == expected


def test_history_file_columns_are_readable_by_other_tools(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    into_files(tmp_path, ModelCluster(3).recorder).close()
    seal(tmp_path)
    file = tmp_path / "history" / "0000" / "sends.parquet"
    assert set(pq.read_table(file)["partition"].to_pylist()) == {"in/0", "in/1", "out/0", "out/1"}


@pytest.mark.filterwarnings("ignore")
def test_history_of_killed_writers_has_only_whole_rows(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"enough\n"
    finally:
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
    history = History.open(tmp_path)
    sends, count = history.column("sends", "value"), history.count("sends")
    assert count > 10_000
    assert len(set(sends.tolist())) == count
    assert len(set(history.column("transactions", "transaction").tolist())) == history.count(
        "transactions"
    )
    assert set(history.column("sends", "process").tolist()) == {0, 1 << 16}
    # at most one transaction of each process was open
    unknown = (history.column("transactions", "outcome") == OpOutcome.INFO).sum()
    assert unknown <= 2
    before = columns(history)
    seal(tmp_path)
    assert columns(History.open(tmp_path)) == before


def test_history_file_that_ends_within_a_row_is_read_up_to_its_last_whole_row(
    tmp_path: Path,
) -> None:
    recorder = Recorder.open(tmp_path)
    process = recorder.new_process()
    for _ in range(CHUNK_ROWS + 10):
        recorder.send_invoked(process, "orders/0", recorder.new_value())
    recorder.close()
    (file,) = tmp_path.rglob("sends.rows")
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    assert History.open(tmp_path).count("sends") == CHUNK_ROWS + 9
    with (file.parent / "names.jsonl").open("ab") as names:
        names.write(b'"half a na')
    assert History.open(tmp_path).row("sends", 0)["partition"] == "orders/0"


def test_history_recorder_memory_does_not_grow_with_its_rows(tmp_path: Path) -> None:
    import mmap

    recorder = Recorder.open(tmp_path)
    process = recorder.new_process()
    for _ in range(20 * CHUNK_ROWS):
        recorder.send_ended(recorder.send_invoked(process, "t/0", 1), OpOutcome.OK)
    rows = recorder._rows["sends"]
    assert isinstance(rows._chunk, mmap.mmap)
    assert rows._memory == []  # full chunks are unmapped once no handle refers to them
    recorder.close()
    assert History.open(tmp_path).count("sends") == 20 * CHUNK_ROWS


def test_history_file_of_a_foreign_format_is_refused(tmp_path: Path) -> None:
    Recorder.open(tmp_path).close()
    (about,) = tmp_path.rglob("recorder.json")
    about.write_text('{"format": 99}')
    with pytest.raises(HistoryFormat, match="format 99"):
        History.open(tmp_path)
    about.write_text("{")
    with pytest.raises(HistoryFormat, match="not a recording"):
        History.open(tmp_path)


def test_history_recorder_row_takes_few_function_calls(tmp_path: Path) -> None:
    """The test counts the Python and C calls for many rows, including those for new chunks."""
    recorder, rows = Recorder.open(tmp_path), 1_000
    process = recorder.new_process()

    def record() -> None:
        for _ in range(rows):
            recorder.send_ended(recorder.send_invoked(process, "t/0", 1), OpOutcome.OK, offset=1)

    calls = calls_of(record)
    assert calls / rows < 60
    recorder.close()


@pytest.mark.parametrize(
    ("error", "attempts", "expected"),
    [
        (None, 1, OpOutcome.OK),
        (6, 1, OpOutcome.INFO),  # NOT_LEADER_OR_FOLLOWER: KAFKA-13574
        (7, 1, OpOutcome.INFO),
        (19, 1, OpOutcome.FAIL),
        (90, 1, OpOutcome.FAIL),
        (90, 2, OpOutcome.INFO),
        (90, None, OpOutcome.INFO),
        (10, 3, OpOutcome.FAIL),
        (20, 1, OpOutcome.INFO),  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    ],
)
def test_history_send_outcome_follows_from_error_and_attempts(
    error: int | None, attempts: int | None, expected: OpOutcome
) -> None:
    assert outcome_of_send(error, attempts) is expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"commit_invoked": False, "abort_succeeded": False}, OpOutcome.FAIL),
        ({}, OpOutcome.OK),
        ({"commit_error": 7, "abort_succeeded": True}, OpOutcome.FAIL),
        ({"commit_error": 7, "abort_succeeded": False}, OpOutcome.INFO),
        ({"commit_error": 48, "abort_succeeded": False}, OpOutcome.FAIL),
        ({"commit_error": 48}, OpOutcome.INFO),
        ({"commit_error": 90}, OpOutcome.FAIL),
        ({"commit_error": 90, "attempts": 2}, OpOutcome.INFO),
        ({"commit_error": 90, "attempts": None}, OpOutcome.INFO),
        ({"commit_error": -1}, OpOutcome.INFO),
    ],
)
def test_history_transaction_outcome_follows_from_commit_error_abort_and_attempts(
    end: dict[str, Any], expected: OpOutcome
) -> None:
    assert outcome_of_transaction(**end) is expected
