"""The facts that a broker reads from its machine."""

from pathlib import Path

from oncelog.node import environment, linux


def test_an_unknown_boot_is_never_taken_for_the_same(monkeypatch):
    """Else a power cut would count as a kill, after which lost pages are not searched."""
    assert environment.machine_boot_id() == environment.machine_boot_id()
    monkeypatch.setattr(linux, "PROC", Path("/nowhere"))
    assert environment.machine_boot_id() != environment.machine_boot_id()
