"""Test that a recording damaged after it was sealed is reported by its file, and not judged."""

from pathlib import Path

import pytest

from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.files import seal
from oncelog.proof.judge.history.format import HistoryFormat
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.verdict import judge


@pytest.mark.parametrize("name", ["sends.parquet", "names.jsonl"])
def test_history_file_that_is_damaged_is_named(tmp_path: Path, name: str) -> None:
    recorder = Recorder.open(tmp_path)
    recorder.send_invoked(recorder.new_process(), "t/0", recorder.new_value())
    recorder.close()
    seal(tmp_path)
    file = tmp_path / "history" / "0000" / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] + b"\xff\xff\n")
    with pytest.raises(HistoryFormat, match=name):
        judge(History.open(tmp_path))
