"""Test the bytes of a replica that the fault `damage` changes, and their restoration."""

from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults.damage_action import damage
from oncelog.deploy.faults.schedule import Fault

FAULT = Fault("damage", (0.0, 0.4, 0.7, 0.9))


def test_damaged_byte_of_a_replica_is_restored_once(tmp_path: Path) -> None:
    file = tmp_path / "t-0" / "00000000000000000000.log"
    file.parent.mkdir()
    file.write_bytes(bytes(range(100)))
    byte = damage(tmp_path, FAULT)
    assert byte.path == file
    changed = [at for at, value in enumerate(file.read_bytes()) if value != at]
    assert changed == [byte.position]
    assert byte.put_back()
    assert file.read_bytes() == bytes(range(100))
    assert not byte.put_back(), "it is not there any more"


def test_damaged_byte_of_a_recreated_file_is_not_restored(tmp_path: Path) -> None:
    file = tmp_path / "t-0" / "00000000000000000000.index"
    file.parent.mkdir()
    file.write_bytes(bytes(100))
    byte = damage(tmp_path, FAULT)
    anew = file.with_suffix(".new")
    anew.write_bytes(bytes([byte.now]) * 100)
    anew.rename(file)
    assert not byte.put_back()
    assert file.read_bytes() == bytes([byte.now]) * 100


def test_damage_action_without_a_nonempty_log_file_is_refused(tmp_path: Path) -> None:
    for name in ("meta.properties", "raft/0.log", "t-0/00000000000000000000.log", "t-x/1.log"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"" if path.suffix == ".log" and "t-0" in name else b"content")
    with pytest.raises(Failure, match="nothing"):
        damage(tmp_path, FAULT)
