"""What is not to be read yet is not lost."""

import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.prove.judgement import judge_ids
from oncelog.deploy.prove.observed import Observed
from oncelog.deploy.prove.outputs import draining
from oncelog.deploy.prove.outputs.database import DatabaseOutputs
from oncelog.deploy.prove.outputs.draining import Drain, Pace
from oncelog.deploy.prove.relation import LogRecord, matcher

IN, OUT = ("in", 0), ("out", 0)


class Offsets:
    """What a cluster tells of its offsets."""

    def __init__(self, committed: int) -> None:
        self.groups, self._committed = self, committed
        self.stable = self.end = 0

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        return {IN: self._committed}

    def list_offsets(self, places: Any, read_committed: bool = False) -> dict[Any, int]:
        return dict.fromkeys(places, self.stable if read_committed else self.end)


def drain(tmp_path: Path, admin: Offsets, rows: list[str]) -> Drain:
    with sqlite3.connect(file := tmp_path / "out.db") as connection:
        connection.execute("CREATE TABLE t (id TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
    connection.close()
    observed = Observed(["in"], ["out"])
    observed.groups["g"] = None
    inputs = [(each, LogRecord(*IN, n, each.encode())) for n, each in enumerate(("a", "b"))]
    return Drain(
        cast(Any, admin), cast(Any, None), DatabaseOutputs(f"sqlite:///{file}?table=t&id=id"),
        observed, inputs, {IN: 2}, [OUT],
        lambda inputs, outputs, is_passed: judge_ids(
            inputs, outputs, matcher("key"), is_passed=is_passed
        ),
        Pace(timeout_s=1.0, silence_s=0.5),
    )  # fmt: skip


@pytest.mark.parametrize("is_open", [True, False])
def test_what_an_open_transaction_holds_back_is_not_lost(tmp_path: Path, is_open: bool) -> None:
    admin = Offsets(committed=2)
    admin.end = int(is_open)
    drained = drain(tmp_path, admin, ["a"])
    judgement, *_ = drained.judged(is_last=True)
    if is_open:
        assert judgement.pending == ["b"] and not judgement.is_violated
        assert "a transaction is still open" in drained.why
    else:
        assert judgement.lost == {"b": 1} and drained.why == ""


def test_a_table_that_cannot_be_read_at_the_end_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "READ_TIMEOUT_S", 0.2)
    drained = drain(tmp_path, Offsets(committed=2), ["a", "b"])
    with sqlite3.connect(tmp_path / "out.db") as connection:
        connection.execute("ALTER TABLE t RENAME TO away")
    connection.close()
    with pytest.raises(Failure, match="t cannot be read"):
        drained.judged(is_last=True)


def test_what_has_not_moved_is_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a million outputs it takes seconds, which the proxy misses."""
    monkeypatch.setattr(draining, "QUIET_S", 0.5)
    monkeypatch.setattr(draining, "LOOK_EACH_S", 0.05)
    drained = drain(tmp_path, Offsets(committed=2), ["a", "b"])
    drained._reader.look()  # type: ignore[union-attr]
    judged: list[bool] = []
    judge = drained._judge

    def counted(*arguments: Any) -> Any:
        judged.append(True)
        return judge(*arguments)

    monkeypatch.setattr(drained, "_judge", counted)
    drained.wait()
    assert len(judged) == 1 and drained.why == "" and not drained.notes
