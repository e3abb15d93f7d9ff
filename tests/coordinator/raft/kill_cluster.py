"""Run three Raft processes that are killed at random, and check the acknowledged commands."""

import json
import random
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

PROCESS = Path(__file__).with_name("raft_process.py")
VOTERS = [1, 2, 3]
SMALL = {
    "snapshot_entries": 400,
    "retained_entries": 50,
    "segment_bytes": 512 << 10,
    "segments_max": 3,
    "command_bytes_max": 64 << 10,
    "snapshot_chunk_bytes": 64 << 10,
}


class Verdict(NamedTuple):
    """The counts of a run. `lost`, `doubled` and `disordered` must be 0."""

    acknowledged: int
    lost: int
    doubled: int
    disordered: int
    kills: list[int]  # rounds in which one, two, three nodes were killed
    fail_over_ms: list[float]


class KillCluster:
    def __init__(self, directory: Path, seed: int, **options: Any) -> None:
        self.directory, self.random = directory, random.Random(seed)
        self.options = {"outstanding": 12, "settings": SMALL, "ballast": 300_000} | options
        self.processes = {node: self.start(node) for node in VOTERS}

    def start(self, node: int) -> subprocess.Popen:
        command = [sys.executable, str(PROCESS), str(node), json.dumps(VOTERS)]
        errors = open(self.directory / f"errors-{node}", "a")  # noqa: SIM115 - the child has it
        with errors:
            return subprocess.Popen(
                [*command, str(self.directory), json.dumps(self.options)], stderr=errors
            )

    def status(self, node: int) -> list[list[Any]]:
        try:
            return json.loads((self.directory / f"status-{node}").read_text())
        except (OSError, ValueError):
            return []

    def leader(self) -> int | None:
        led = [(s[0][1], n) for n in VOTERS if (s := self.status(n)) and s[0][0]]
        return max(led)[1] if led else None

    def wait(self, what: str, reached: Any, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not reached():
            for node, process in self.processes.items():
                if process.poll() not in (None, -signal.SIGKILL):
                    errors = (self.directory / f"errors-{node}").read_text()
                    raise AssertionError(f"node {node} ended by itself: {errors[-2000:]}")
            assert time.monotonic() < end, f"{what} took more than {seconds} s"
            time.sleep(0.01)

    def kill(self, victims: list[int]) -> None:
        for node in victims:
            self.processes[node].send_signal(signal.SIGKILL)
        for node in victims:
            self.processes[node].wait()
            (self.directory / f"status-{node}").unlink(missing_ok=True)

    def acknowledged(self) -> list[int]:
        numbers = []
        for node in VOTERS:
            path = self.directory / f"acknowledged-{node}"
            if path.exists():
                numbers += [int(line) for line in path.read_text().split("\n") if line]
        return numbers

    def run(self, seconds: float) -> Verdict:
        self.wait("the first leader", self.leader)
        end, kills, fail_over_ms = time.monotonic() + seconds, [0, 0, 0], []
        while time.monotonic() < end:
            time.sleep(self.random.uniform(0.3, 1.2))
            leader, choice = self.leader(), self.random.random()
            if choice < 0.25:
                victims = list(VOTERS)
            elif choice < 0.65 and leader is not None:
                victims = [leader]
            else:
                victims = self.random.sample(VOTERS, self.random.choice([1, 2]))
            self.kill(victims)
            kills[len(victims) - 1] += 1
            killed = time.monotonic()
            if victims == [leader]:
                self.wait("a new leader", self.leader)
                fail_over_ms.append((time.monotonic() - killed) * 1_000)
            else:
                time.sleep(self.random.uniform(0, 0.5))
            for node in victims:
                self.processes[node] = self.start(node)
        self.wait("the last leader", self.leader)
        time.sleep(0.5)
        (self.directory / "stop").touch()
        return self.judge(kills, fail_over_ms)

    def judge(self, kills: list[int], fail_over_ms: list[float]) -> Verdict:
        def level() -> bool:
            applied = [[group[2] for group in self.status(node)] for node in VOTERS]
            return bool(applied[0]) and applied[0] == applied[1] == applied[2]

        time.sleep(3.2)  # the last submits have their outcome
        self.wait("catching up", level)
        (self.directory / "dump").touch()
        paths = [self.directory / f"items-{node}" for node in VOTERS]
        self.wait("the dump", lambda: all(path.exists() for path in paths))
        items = [list(chain(*json.loads(path.read_text()))) for path in paths]
        acknowledged = set(self.acknowledged())
        return Verdict(
            acknowledged=len(acknowledged),
            lost=max(len(acknowledged - set(numbers)) for numbers in items),
            doubled=max(len(numbers) - len(set(numbers)) for numbers in items),
            disordered=sum(numbers != items[0] for numbers in items),
            kills=kills,
            fail_over_ms=fail_over_ms,
        )

    def close(self) -> None:
        (self.directory / "end").touch()
        for process in self.processes.values():
            process.kill()
            process.wait()
