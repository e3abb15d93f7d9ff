"""Test `oncelog ui RUN/` as a process, with its answers, its token and its exit at a signal."""

import asyncio
import signal
from pathlib import Path

import pytest

from oncelog.cli.main import run
from oncelog.deploy.cluster.ports import is_refused
from oncelog.proof.pages.run_folder import keep_report

from ..proof.pages.known_runs import violated

pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from .sites import Visitor
from .test_commands import ENDS_S, started


@pytest.mark.in_turn
async def test_run_report_server_requires_its_token_and_exits_cleanly_at_each_signal(
    tmp_path: Path,
):
    keep_report(violated(), tmp_path / "RUN")
    before = sorted(tmp_path.rglob("*"))
    async with asyncio.timeout(ENDS_S * 3):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            async with started(tmp_path, "ui", "RUN", "--no-open") as process:
                assert process.stdout is not None
                line = (await process.stdout.readline()).decode()
                address, token = line.split()[2].split("/?token=")
                port = int(address.rpartition(":")[2])
                assert (await Visitor(port).get("/")).status == 403
                visitor = Visitor(port, {"Authorization": f"Bearer {token}"})
                page = await visitor.get("/")
                assert "AT LEAST ONCE: 1 doubled" in page.body and "in RUN" in page.body
                assert "default-src 'none'" in page.headers["content-security-policy"]
                assert (await visitor.get("/api/run")).json()["verdict"] == violated().verdict
                assert "--paper" in (await visitor.get("/static/style.css")).body
                assert (await visitor.get("/topics")).status == 404
                assert (await visitor.post("/fault", "kind=kill")).status == 403
                process.send_signal(number)
                _, err = await process.communicate()
                assert (process.returncode, b"Traceback" in err) == (0, False), err
                assert is_refused(port)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [("none",), (".",), ("run", "--bootstrap", "127.0.0.1:9"), ("run", "--allow-writes")],
)
def test_run_report_server_with_wrong_arguments_is_refused_in_one_line(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    keep_report(violated(), tmp_path / "run")
    assert run(("ui", *arguments, "--no-open")) == 2
    out, err = capsys.readouterr()
    assert (out, err[:9], len(err.splitlines())) == ("", "oncelog: ", 1)
