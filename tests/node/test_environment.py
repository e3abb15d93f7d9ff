"""Test the id of the machine's boot, which a broker reads."""

from pathlib import Path

from oncelog.node import environment, linux


def test_boot_id_that_is_unknown_never_equals_another(monkeypatch):
    """Otherwise a power cut would look like a kill, and lost pages would not be searched for."""
    assert environment.machine_boot_id() == environment.machine_boot_id()
    monkeypatch.setattr(linux, "PROC", Path("/nowhere"))
    assert environment.machine_boot_id() != environment.machine_boot_id()
