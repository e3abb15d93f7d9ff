"""Test the faults inside a node without running one. Released code cannot inject faults."""

import errno
from pathlib import Path

import pytest

from oncelog.deploy.cluster.admin_socket_client import ask
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults.node_faults import NodeFaults, offset_of, serve_faults

ROOT = Path(__file__).resolve().parents[3]


def test_disk_fault_at_a_named_point_fails_writes_until_healed() -> None:
    faults = NodeFaults()
    faults.point("log.append.before-write")
    faults.answer({"op": "disk", "point": "log.append.before-write", "errno": errno.ENOSPC})
    faults.point("log.append.after-write")
    with pytest.raises(OSError, match="chaos") as caught:
        faults.point("log.append.before-write")
    assert caught.value.errno == errno.ENOSPC and faults.errors == 1
    faults.answer({"op": "heal"})
    faults.point("log.append.before-write")


def test_clock_fault_moves_the_wall_clock_and_not_the_monotonic_clock() -> None:
    faults = NodeFaults()
    before = faults.clock.monotonic_ms()
    faults.answer({"op": "clock", "offset_ms": -3_600_000})
    assert abs(offset_of(faults.answer({"op": "counts"})) + 3_600_000) < 60_000
    assert abs(faults.clock.monotonic_ms() - before) < 60_000
    faults.answer({"op": "heal"})
    assert abs(offset_of(faults.answer({"op": "counts"}))) < 60_000


def test_fault_socket_answers_known_requests_and_refuses_unknown_requests(tmp_path: Path) -> None:
    serve_faults(tmp_path / "faults-1", NodeFaults())
    assert ask(tmp_path, 1, {"op": "counts"}, "faults")["errors"] == 0
    with pytest.raises(Failure, match="unknown op"):
        ask(tmp_path, 1, {"op": "explode"}, "faults")
    with pytest.raises(Failure, match="not understood"):
        ask(tmp_path, 1, {"op": "disk"}, "faults")


def test_released_product_code_imports_no_fault_code() -> None:
    for folder in ("wire", "storage", "replication", "coordinator", "node"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text()
            assert "node_faults" not in text and "faulty_node" not in text, file
