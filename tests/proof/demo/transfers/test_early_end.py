"""Test the end of a transfers demo with an overruled service, without nodes and processes."""

import contextlib
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.proof.demo import reading
from oncelog.proof.demo.transfers import run as run_module
from oncelog.proof.demo.transfers.broken import PREPARED
from oncelog.proof.demo.transfers.database import SQLITE, TransferDatabase
from oncelog.proof.demo.transfers.faults import TransferFaultReport
from oncelog.proof.demo.transfers.processes import (
    SERVICES,
    Reported,
    ServiceOverruled,
    TransferServices,
)
from oncelog.proof.demo.transfers.readers import ReaderWatch
from oncelog.proof.demo.transfers.run import TransfersDemo
from oncelog.proof.demo.transfers.service import Service, ServiceSettings
from oncelog.proof.demo.transfers.transfer import AccountTransfer

KINDS = ("decided", "prepared")
MOMENTS = ("start", "fault", "end")  # at which a service is overruled


class Services(TransferServices):
    """Services without processes, one of which is overruled at `moment`."""

    moment = ""

    def start(self, name: str) -> None:
        self.reported[name] = Reported(committed_at=1.0)
        self.reach("start")

    def stop(self, names: Iterable[str] | None = None) -> dict[str, int | None]:
        assert not list(self._logs.glob("*.trap")), "a service would pause before its end"
        self.reach("end")
        return {}

    def reach(self, moment: str) -> None:
        if moment == self.moment:
            self.on_event(SERVICES[0], "ended", "DecisionOverruled")

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        self.check()
        return condition()


def nothing(*_: Any, **__: Any) -> None:
    pass


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TransfersDemo:
    def inflict(fault: Any) -> TransferFaultReport:
        services.set_trap(SERVICES[1], PREPARED, signal.SIGSTOP)
        services.reach("fault")
        services.check()
        return TransferFaultReport(fault.kind, "", 1, 0.0)

    faults = SimpleNamespace(inflict=inflict, away=[])
    monkeypatch.setattr(run_module, "TransferFaults", lambda *_: faults)
    monkeypatch.setattr(run_module, "TransferServices", Services)
    monkeypatch.setattr(run_module, "BETWEEN_S", 0.0)
    monkeypatch.setattr(ReaderWatch, "run", nothing)
    for name, found in (("read_back", list), ("ends_of", list), ("open_transactions", dict)):
        monkeypatch.setattr(reading, name, lambda *_, found=found: found())
    no_cluster: Any = {"ask": nothing, "wait_for_isr": nothing, "client_config": dict}
    cluster: Any = SimpleNamespace(connection="", data=tmp_path, **no_cluster)
    database = TransferDatabase(f"{SQLITE}{tmp_path / 'transfers.db'}")
    demo: Any = TransfersDemo(cluster, 3, "none", print, database=database)
    demo.check_back = SimpleNamespace(start_and_wait=nothing, close=nothing, remove_logs=nothing)
    services = demo.services
    return demo


@pytest.mark.parametrize("moment", MOMENTS)
def test_transfers_demo_with_an_overruled_service_reports_a_row_without_event(
    demo: TransfersDemo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: str
) -> None:
    create = TransferDatabase.create

    def create_with_a_row(database: TransferDatabase) -> None:
        create(database)
        with contextlib.closing(database.connect()) as connection:
            database.write(connection.execute, AccountTransfer(1, 0, 1, 5))
            connection.commit()

    monkeypatch.setattr(TransferDatabase, "create", create_with_a_row)
    monkeypatch.setattr(demo.services, "moment", moment)
    report = demo.run(kinds=KINDS)
    assert [finding.name for finding in report.findings] == ["without event"]
    assert report.exit_code == 1 and len(report.faults) == (2 if moment == "end" else 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("moment", MOMENTS)
def test_transfers_demo_with_an_overruled_service_and_every_event_has_no_verdict(
    demo: TransfersDemo, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(demo.services, "moment", moment)
    with pytest.raises(ServiceOverruled):
        demo.run(kinds=KINDS)


def test_transfers_demo_without_an_overruled_service_has_no_violation(
    demo: TransfersDemo, tmp_path: Path
) -> None:
    report = demo.run(kinds=KINDS)
    assert report.exit_code == 0 and len(report.faults) == 2
    assert not list(tmp_path.iterdir())


def test_transfers_service_whose_trap_is_removed_while_it_looks_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = ServiceSettings(
        connection="", topic="", database="", folder=str(tmp_path), seed=1, broken="none", name="a"
    )
    settings.trap.write_text(f"{PREPARED} 0")
    read_text = Path.read_text

    def read_and_remove(path: Path) -> str:
        text = read_text(path)
        path.unlink()
        return text

    monkeypatch.setattr(Path, "read_text", read_and_remove)
    service: Any = SimpleNamespace(settings=settings)
    Service._meet(service, PREPARED)
    assert "caught" not in capfd.readouterr().out
