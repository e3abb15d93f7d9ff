"""Test `oncelog ui` and `oncelog top` as processes, beside a broker that runs in the test."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.cli.main import run
from oncelog.deploy.cluster.ports import is_refused

pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from .sites import Visitor, open_site

PROGRAM = (sys.executable, "-P", "-m", "oncelog.cli")
ENDS_S = 60


@asynccontextmanager
async def started(tmp_path: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command as a process, and kill it at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.in_turn
async def test_ui_command_prints_its_address_first_and_exits_cleanly_at_each_signal(tmp_path: Path):
    async with open_site(tmp_path) as opened, asyncio.timeout(ENDS_S * 3):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            arguments = ("ui", "--no-open", "--bootstrap", opened.bootstrap)
            async with started(tmp_path, *arguments) as process:
                assert process.stdout is not None
                line = (await process.stdout.readline()).decode()
                assert line.startswith("oncelog ui: http://127.0.0.1:")
                address, token = line.split()[2].split("/?token=")
                port = int(address.rpartition(":")[2])
                visitor = Visitor(port, {"Authorization": f"Bearer {token}"})
                while not (nodes := (await visitor.get("/api/cluster")).json()["nodes"]):
                    pass  # each answer waits a moment for the broker's
                assert [node["node"] for node in nodes] == [1]
                process.send_signal(number)
                _, err = await process.communicate()
                assert (process.returncode, b"Traceback" in err) == (0, False), err
                assert is_refused(port)


async def test_top_once_prints_the_columns_within_the_width_of_the_environment(
    tmp_path: Path, monkeypatch
):
    async with open_site(tmp_path) as opened, asyncio.timeout(ENDS_S * 2):
        await opened.admin.create_topic("orders", partitions=2)
        monkeypatch.setenv("COLUMNS", "30")
        arguments = ("top", "--once", "--bootstrap", opened.bootstrap)
        async with started(tmp_path, *arguments) as process:
            out, err = await process.communicate()
        assert process.returncode == 0, err
        lines = out.decode().splitlines()
        assert lines[0].split() == ["NODE", "ROLE", "LEADERS", "LAG"]
        assert lines[1].split()[:2] == ["1", "controller"]
        assert max(map(len, lines)) <= 30


@pytest.mark.parametrize(
    "arguments",
    [
        ("ui", "--read-only", "--allow-writes", "--bootstrap", "127.0.0.1:9"),
        ("ui", "--port", "70000", "--bootstrap", "127.0.0.1:9"),
        ("top", "--bootstrap", "127.0.0.1:9"),
    ],
)
def test_ui_commands_with_wrong_options_are_refused_in_one_line(arguments, capsys) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("oncelog: ")
    assert len(err.splitlines()) == 1


@pytest.mark.in_turn
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_metrics_and_events_commands_exit_cleanly_at_each_signal(
    tmp_path: Path, number: signal.Signals
):
    pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
    async with (
        open_site(tmp_path) as opened,
        asyncio.timeout(ENDS_S * 2),
        started(tmp_path, "metrics", "--bootstrap", opened.bootstrap) as metrics,
        started(tmp_path, "events", "--bootstrap", opened.bootstrap) as events,
    ):
        assert metrics.stdout is not None
        assert events.stderr is not None
        line = (await metrics.stdout.readline()).decode()
        assert line.startswith("http://127.0.0.1:")
        assert b"checks every 2 s" in await events.stderr.readline()
        for process in (metrics, events):
            process.send_signal(number)
            _, err = await process.communicate()
            assert (process.returncode, b"Traceback" in err) == (0, False), err
        assert is_refused(int(line.split(":")[2].split("/")[0]))
