"""Test the id of the machine's boot, which a broker reads."""

from pathlib import Path

from oncelog.node import environment, linux


def test_boot_id_that_is_unknown_never_equals_another(monkeypatch):
    """With equal ids, lost pages would not be searched for after a power cut."""
    assert environment.machine_boot_id() == environment.machine_boot_id()
    monkeypatch.setattr(linux, "PROC", Path("/nowhere"))
    assert environment.machine_boot_id() != environment.machine_boot_id()
