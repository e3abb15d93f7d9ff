"""What workers tell is kept and judged by; a worker that ends by itself is started again."""

import sys
import time
from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.demo import workers as demo_workers
from oncelog.deploy.demo.worker import WorkerSettings
from oncelog.deploy.demo.workers import Workers

# Stands in for a worker: says what the file of its name and incarnation says, and ends like that.
STAND_IN = """
import json, os, sys, time
settings = json.loads(sys.argv[1])
script = f"{settings['group']}/{settings['name']}.{settings['incarnation']}"
for line in open(script) if os.path.exists(script) else ["exit 3"]:
    word, _, rest = line.strip().partition(" ")
    if word == "tell":
        os.write(1, rest.encode() + b"\\n")
    elif word == "exit":
        sys.exit(int(rest))
    else:
        time.sleep(60)
"""


@pytest.fixture
def workers(tmp_path, monkeypatch):
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(STAND_IN)
    popen = demo_workers.subprocess.Popen

    def start(command, **options):
        return popen([sys.executable, str(stand_in), command[-1]], **options)

    monkeypatch.setattr(demo_workers.subprocess, "Popen", start)
    settings = WorkerSettings(
        bootstrap="", name="w", incarnation=0, group=str(tmp_path), source="", enriched="",
        sums="", session_ms=1, transaction_ms=1, is_fenced=True,
    )  # fmt: skip
    made = Workers([settings], tmp_path)
    yield made
    made.close()


def script(directory: Path, incarnation: int, *lines: str) -> None:
    (directory / f"w.{incarnation}").write_text("\n".join(lines) + "\n")


def began(number: int) -> str:
    return f'tell ["began", "w.1.{number}", 10, {{"0": {number * 10}}}]'


def test_reported_transactions_are_kept_in_order(workers, tmp_path):
    script(
        tmp_path, 1,
        began(1), 'tell ["sending", "w.1.1"]', 'tell ["committing", "w.1.1"]',
        'tell ["committed", "w.1.1"]',
        began(2), 'tell ["aborted", "w.1.2", "UNKNOWN_MEMBER_ID"]',
        began(3), "sleep",
    )  # fmt: skip
    started = time.monotonic()
    workers.start_all()
    assert workers.wait(lambda: "w.1.3" in workers.transactions, 20)
    told = workers.transactions
    assert [(t.state, t.why) for t in told.values()] == [
        ("committed", ""), ("aborted", "UNKNOWN_MEMBER_ID"), ("began", ""),
    ]  # fmt: skip
    assert told["w.1.1"].until == {0: 10}
    assert workers.last["w"] is told["w.1.3"]
    assert workers.committed_after(started)["w"] == told["w.1.1"].at
    assert workers.committed_after(time.monotonic()) == {"w": None}


def test_a_killed_worker_stays_down_until_it_is_started(workers, tmp_path):
    script(tmp_path, 1, began(1), "sleep")
    script(tmp_path, 2, 'tell ["began", "w.2.1", 1, {}]', "sleep")
    workers.start_all()
    assert workers.wait(lambda: "w.1.1" in workers.transactions, 20)
    workers.kill("w")
    with pytest.raises(Failure, match="w has ended"):
        workers.pause("w")
    assert workers.restarts == 0
    workers.start("w")
    assert workers.wait(lambda: workers.last["w"].name == "w.2.1", 20)


def test_a_paused_worker_reports_nothing_until_it_is_resumed(workers, tmp_path):
    script(tmp_path, 1, began(1), "sleep")
    workers.start_all()
    assert workers.wait(lambda: "w.1.1" in workers.transactions, 20)
    workers.pause("w")
    workers.resume("w")
    workers.stop()
    assert (tmp_path / "w.log").exists()
    workers.remove_logs()
    assert not (tmp_path / "w.log").exists()


def test_a_worker_that_ends_by_itself_is_started_again_but_not_for_ever(
    workers, tmp_path, monkeypatch
):
    monkeypatch.setattr(demo_workers, "RESTARTS_MAX", 2)
    script(tmp_path, 1, 'tell ["ended", "_FENCED"]', "exit 3")
    workers.start_all()
    with pytest.raises(Failure, match="w has ended 2 times"):
        workers.wait(lambda: False, 20)
    assert not workers.transactions
