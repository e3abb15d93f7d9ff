"""Test that reports stored by `demo` and `bench` open in `oncelog ui DIR/` and as a file."""

# Selenium is in the extra test-ui only.
# pyright: reportMissingImports=false

import asyncio
import sys
from pathlib import Path

import pytest

from oncelog.proof.pages.run_folder import report_in

pytest.importorskip("selenium", reason="the extra test-ui is not installed")
pytest.importorskip("uvicorn", reason="the extra ui is not installed")
pytest.importorskip("confluent_kafka", reason="the extra demo is not installed")

from .chromium import CHROMIUM, DRIVER, Browser
from .screenshots import page
from .test_run_browser import look

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="there is no chromium here"),
    pytest.mark.filterwarnings("ignore"),  # selenium's own
    pytest.mark.in_turn,
    pytest.mark.cluster,
]
SHORT = ("--rf", "1", "--seconds", "0.3", "--repetitions", "1")
RUNS = {
    "flights": (("demo", "--engine", "workers", "--seed", "1"), "EXACTLY ONCE"),
    "transfers": (("demo", "--job", "transfers", "--seconds", "8", "--seed", "1"), "EXACTLY ONCE"),
    "replication": (
        ("bench", "replication", *SHORT, "--acks", "1", "--record-size", "100", "--batch-size",
         "16384"),
        "MB/s",
    ),
    "txn": (
        ("bench", "txn", *SHORT, "--min-isr", "1", "--records", "1", "--partitions", "1"),
        "OVERHEAD",
    ),
    "failover": (("bench", "failover", "--kills", "1"), "kill 1"),
}  # fmt: skip
ENDS_S = 400


def visit(served: str, folder: Path, words: str) -> None:
    report = report_in(folder)
    chrome = Browser(served)
    try:
        for address in (chrome.base, (folder / "report.html").as_uri()):
            look(chrome, address, report)
            for each in (report.command, report.verdict, words):
                assert each in chrome.text(), each
    finally:
        chrome.driver.quit()


@pytest.mark.parametrize("name", RUNS)
async def test_report_kept_by_each_kind_of_run_opens_in_the_ui_and_as_a_file(
    tmp_path: Path, name: str
) -> None:
    arguments, words = RUNS[name]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "oncelog.cli", *arguments, "--keep", "kept"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(ENDS_S):
            told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode == 0, told.decode()
    async with page(tmp_path, "kept") as address:
        await asyncio.to_thread(visit, address, tmp_path / "kept", words)
