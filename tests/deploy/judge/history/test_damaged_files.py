"""A recording that was damaged after it was sealed is named, and not judged."""

from pathlib import Path

import pytest

from oncelog.deploy.judge.history.columns import History
from oncelog.deploy.judge.history.files import seal
from oncelog.deploy.judge.history.format import HistoryFormat
from oncelog.deploy.judge.history.recorder import Recorder
from oncelog.deploy.judge.verdict import judge


@pytest.mark.parametrize("name", ["sends.parquet", "names.jsonl"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    recorder = Recorder.open(tmp_path)
    recorder.send_invoked(recorder.new_process(), "t/0", recorder.new_value())
    recorder.close()
    seal(tmp_path)
    file = tmp_path / "history" / "0000" / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] + b"\xff\xff\n")
    with pytest.raises(HistoryFormat, match=name):
        judge(History.open(tmp_path))
