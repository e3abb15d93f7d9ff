"""Measure the judge with `.venv/bin/python -m tests.proof.judge.speed [SENDS] [DIRECTORY]`.

The program creates a legal history with this number of sends, in transactions of ten. Each send is
polled once, and read once more at the end. The history is written as by recorders, sealed, and
judged in a fresh process.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.schema import NONE, TABLES, Isolation, OpOutcome

PARTITIONS, PROCESSES, A_TRANSACTION = 12, 16, 10


def make(run: Path, sends: int) -> None:
    """Write a legal history with this number of sends to a run's directory."""
    recorder = Recorder.open(run)
    folder = recorder.folder
    assert folder is not None
    partitions = [recorder.name(f"orders/{p}") for p in range(PARTITIONS)]
    identity = [recorder.name(f"writer-{p}") for p in range(PROCESSES)]
    recorder.close()
    number = np.arange(sends)
    transaction = number // A_TRANSACTION
    # processes alternate by transaction; a transaction goes to three partitions
    process = transaction % PROCESSES
    partition = (transaction * 5 + number % 3) % PARTITIONS
    order = np.argsort(partition.astype(np.uint16), kind="stable")
    starts = np.searchsorted(partition[order], np.arange(PARTITIONS))
    offset = np.empty(sends, np.int64)
    offset[order] = np.arange(sends) - starts[partition[order]]
    invoked = 1_000_000_000 + number * 1_000
    names = np.array(partitions, np.int32)

    def rows(table: str, count: int, **columns: object) -> None:
        made = np.zeros(count, np.dtype(TABLES[table].dtype))
        for name, value in columns.items():
            made[name] = value
        made["is_set"] = 1
        made.tofile(folder / f"{table}.rows")

    count = int(transaction[-1]) + 1
    begun = 1_000_000_000 + np.arange(count) * A_TRANSACTION * 1_000
    commit = begun + A_TRANSACTION * 1_000
    rows("transactions", count, transaction=np.arange(count), process=np.arange(count) % PROCESSES,
         transactional_id=np.array(identity, np.int32)[np.arange(count) % PROCESSES],
         producer_id=np.arange(count) % PROCESSES, begun_ns=begun, commit_invoked_ns=commit,
         ended_ns=commit + 500, outcome=OpOutcome.OK, attempts=1, error=NONE)  # fmt: skip
    rows("sends", sends, transaction=transaction, process=process, partition=names[partition],
         value=number, offset=offset, invoked_ns=invoked, acknowledged_ns=invoked + 300,
         outcome=OpOutcome.OK, error=NONE)  # fmt: skip
    rows("polls", sends, transaction=NONE, process=PROCESSES + partition, call=number // 100,
         partition=names[partition], offset=offset, value=number,
         returned_ns=commit[transaction] + 1_000_000, isolation=1)  # fmt: skip
    rows("scan", sends, isolation=Isolation.READ_COMMITTED, partition=names[partition[order]],
         offset=offset[order], value=number[order], scanned_ns=10**14)  # fmt: skip
    rows("ends", PARTITIONS, replica=NONE, partition=names, leader=1, replicas=3, in_sync=3)


def main(sends: int, folder: str | None) -> None:
    from oncelog.proof.judge.history.files import seal

    run = Path(tempfile.mkdtemp(dir=folder))
    try:
        make(run, sends)
        started = time.perf_counter()
        seal(run)
        size = sum(f.stat().st_size for f in run.rglob("*.parquet"))
        print(f"sealed in {time.perf_counter() - started:.1f} s, {size:,} bytes")
        subprocess.run([sys.executable, "-m", __spec__.name, "judge", str(run)], check=True)
    finally:
        shutil.rmtree(run)


def judge_it(run: Path) -> None:
    """Judge a run and print time and memory."""
    from oncelog.proof.judge.catalogue import CHECKS
    from oncelog.proof.judge.history.columns import History
    from oncelog.proof.judge.verdict import judge

    started, cpu = time.perf_counter(), time.process_time()
    verdict = judge(History.open(run))
    took, used = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert verdict.is_clean, verdict.names()
    print(f"{verdict.operations:,} operations, {len(verdict.judged)} of {len(CHECKS)} checks: "
          f"{took:.1f} s, CPU {used:.1f} s, peak {peak:,.0f} MiB")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["judge"]:
        judge_it(Path(sys.argv[2]))
    else:
        main(int((*sys.argv[1:2], "1000000")[0]), (*sys.argv[2:3], None)[0])
