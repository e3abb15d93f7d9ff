"""Write docs/judge.md from the code: `.venv/bin/python -m tests.proof.judge.page`.

With --measure it first plants every anomaly fifty times and judges five hundred legal histories,
prints the findings, and writes nothing.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from oncelog.proof.judge.catalogue import ANOMALIES, CHECKS
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.schema import TABLES
from oncelog.proof.judge.logs.partition_audit import AUDIT_ANOMALIES
from oncelog.proof.judge.verdict import judge

from .bug_classes import CLASSES
from .model_cluster import ModelCluster
from .mutations import all_mutations, mutated

MUTATIONS = all_mutations()

FOLDER = Path(__file__).parent
SWITCHES = FOLDER.parents[1] / "switches" / "results.json"
PAGE = FOLDER.parents[2] / "docs" / "judge.md"
HISTORIES, MUTATED = 500, 50
# The anomalies that each of Jepsen's cases is about.
JEPSEN: dict[str, tuple[str, ...]] = {
    "04": ("inconsistent-offsets",),
    "05": ("inconsistent-offsets",),
    "06": ("G1a",),
    "07": ("lost-write",),
    "08": ("poll-skip",),
    "09": ("nonmonotonic-poll",),
    "10": ("nonmonotonic-send",),
    "11": ("int-poll-skip",),
    "12": ("int-send-skip",),
    "13": ("int-nonmonotonic-poll",),
    "14": ("int-nonmonotonic-send",),
    "15": ("duplicate", "inconsistent-offsets"),
    "17": ("nothing-succeeded",),
    "18": ("unseen",),
    "19": ("G0",),
    "20": ("G1c",),
    "21": ("G1c-ww",),
    "22": ("precommitted-read",),
}
# The meaning of columns whose names do not explain them.
MEANINGS = {
    "attempts": "commit calls, or requests, that were seen",
    "call": "the number of the poll call within its recorder",
    "is_compacted": "1: cleanup.policy=compact",
    "isolation": "0 read_uncommitted, 1 read_committed",
    "outcome": "0 ok, 1 fail (certainly not), 2 info (not known)",
    "seed": "the seed of the schedule that made the fault",
}


def page() -> str:
    schema = table(("table", "its rows", "columns"), schema_rows())
    meanings = table(("column", "meaning"), [(f"`{k}`", v) for k, v in MEANINGS.items()])
    return f"""# The judge

`oncelog check` judges three things:

- `oncelog check RUN` judges what clients recorded during a run.
- `oncelog check TOPIC --bootstrap HOST:PORT` audits a live topic of any Kafka-compatible cluster
  by its raw batches.
- `oncelog check DIR` judges the files of a cluster: raw logs, replicas, files beside the logs.

Exit code 0 means that no promise was broken. With `--evidence` it prints everything known about a
case, with `--format json` everything for programs. A single check is chosen by `--only J3`, and
`--catalogue` lists all anomalies. In a checkout it needs `pip install '.[check]'`.

This page is made from the code by `.venv/bin/python -m tests.proof.judge.page`, and a test keeps
it true.

## What is looked for, and who judges the judge

Two tests judge the judge. Legal histories of a model (tests/proof/judge/model_cluster.py) must
raise no alarm. Then a legal history is falsified in one place, chosen at random, and the judge
must name the anomaly. The full size is 500 legal histories and 50 of each falsified kind:
`.venv/bin/python -m tests.proof.judge.page --measure`.

Three columns of the table need a word:

- *planted*: histories with this anomaly were made and found. That holds for every violation.
- *Jepsen*: the numbers of the cases in Jepsen's tests of its own Kafka checker that concern this
  anomaly. The file tests/proof/judge/test_jepsen_cases.py has those cases in this project's terms,
  with the same verdicts.
- *audit*: `oncelog check TOPIC` looks for this anomaly, too.

{table(("check", "anomaly", "what it is", "verdict", "planted", "Jepsen", "audit"), anomaly_rows())}
The next three are seen by an audit only, since it reads under both isolation levels:

{table(("anomaly", "what it is"), audit_rows())}
A *legal* finding breaks no promise of Kafka. Writers are not isolated from one another. So values
of other writers stand between those of a transaction, and each of two transactions may stand
before the other.

Two things are not findings at all: gaps in offsets (markers, aborted records), and partitions of
one transaction that become visible at different moments.

### Jepsen's cases

{table(("case", "what is shown"), jepsen_rows())}
Two cases are missing. Case 16 is about the lag of readers, which is no promise. Case 24 is a
measurement of speed: `.venv/bin/python -m tests.proof.judge.speed 10000000`.

Jepsen's verdicts rest on operations, ours on transactions and records. So two verdicts are
stricter here:

- A failed value that a reader got is G1a, also when the reader's own transaction failed
  afterwards.
- A value that was never sent is a finding (`phantom-read`), not an error of the checker.

One verdict differs: Jepsen accepts sends out of order after a consumer's assignment has changed.
Here a producer's `session` changes only when the producer is made anew.

## Bug switches

A run without findings proves something only if a bug would have been found. So bugs are put into
the code of the brokers (tests/switches/), one at a time. Each must be found under its right name.
The bugs are patches that a test installs; a released broker has no switch.

Each bug is played in a scenario that meets it, with the bug and without:

- `.venv/bin/python -m tests.switches` plays all in the simulation, and prints this table.
- Its option `--write` keeps the table, and `--processes` plays on real processes.
- Each build plays some of the bugs in both.
- `.venv/bin/python -m pytest -m chaos tests/switches` plays them all.

{switch_table()}
The columns mean:

- *seeds*: the seeds with which the bug was caught, of those that were played. A scenario of Raft
  tries up to 60 histories a seed.
- *s*: the seconds of the longest play, with its verdict.
- *without it*: the findings in the same scenario, with the same seeds, without the bug.
- *by chance*: the seed of random simulation that finds the bug, and the seconds of the processor
  until then (`--chance S`). Nothing was tuned on these seeds. The column measures the simulation;
  it proves nothing.

A name before the seed is the shape of the simulation (docs/simulation.md); without one, each seed
has its own shape. The shape `raft` is the simulation of Raft alone. The scenario `random` is the
random simulation itself.

### Ten classes of bugs

These are the classes of the bugs that were found in Kafka-like systems in 2025 and 2026. The second
column names what detects them here. The list is in `tests/proof/judge/bug_classes.py`.

{table(("class", "seen by", "switch: by chance"), class_rows())}
## The checks

{table(("check", "promise", "judged when there are rows in one of"), check_rows())}
A check that has nothing to judge says so; it never counts as passed.

Cycles (J9) need no search. The time of a transaction is that of its commit call. A value is read
after its writer's commit call (A2), and before its reader's. So edges from writers to readers go
forward in time, as does the order of real time, and no cycle can close. Only edges that do not go
forward are searched.

## How a run is recorded

The recorder is `proof/judge/history/recorder.py`, which needs only the standard library. Any
number of processes may record into one run at once. Each calls `Recorder.open(RUN)`, which takes
the next free folder `RUN/history/NNNN`. The number of the folder makes the numbers of processes,
transactions and values unique in the run.

Rows have a fixed width and are packed into a mapped file. A row takes about 3 us and no system
call, and none is lost when the process is killed. A row is written *before* its request leaves,
with the outcome `info`, and is completed in place. So the last request of a killed client is in
the history, with its outcome unknown. Memory is bounded by the rows that are under way.

At the end `seal(RUN)` (`proof/judge/history/files.py`) turns the rows into Parquet, with names as
strings. Sealed and unsealed runs are judged alike. A simulation records with
`Recorder.in_memory(clock_ns=...)` and judges `History.of(recorder)`.

When the run is over the cluster is read once more:

- `scan_topics` (`proof/judge/logs/scan.py`) reads everything under read_committed: `scan`, `ends`.
- `dump_logs` reads the batch headers of all replicas, and the files beside the logs: `batches`,
  `ends`, `file_findings`.
- `Recorder.add` takes the rest: `committed`, `decisions`, `probes`, `survivors`.

The file `RUN/run.json` may hold three settings:

- `scan_interval_ms`: how often the coordinators look for timeouts.
- `is_at_rest`: if false, open transactions are no finding.
- `keeps_all`: if true, no log may begin above 0.

The meaning of an error for its operation (ok, fail, info) is decided in one file,
`proof/judge/history/outcomes.py`.

Recorders keep these rules:

- A *process* is one incarnation of one client, and does one thing after another. A client that may
  be broken is replaced by a new process.
- All times are nanoseconds of CLOCK_MONOTONIC, or of a simulation's own clock. The value -1 stands
  for "none", "never" and "not known". The time `commit_invoked_ns` is taken before the commit
  call, `returned_ns` after the poll call.
- A *value* is an integer that is sent once in the whole history. A retry of the application after
  a failure gets a new value.
- A consumer's *session* changes with an assignment, a subscription, a rebalance and a seek to
  another place. It does not change when the consumer returns to the start of its own failed
  transaction: there the next poll has to begin. A producer's session changes when it is made anew.
- A partition is called `topic/number`. The `transaction` -1 is a plain operation.

## The schema

The type stands behind each column. The types i1, i2, i4 and i8 are signed integers of so many
bytes, and `name` is a string. These columns need a word:

{meanings}
{schema}"""


def schema_rows() -> Iterable[tuple[str, ...]]:
    for name, one in TABLES.items():
        yield f"`{name}`", one.what, ", ".join(f"`{c.name}` {c.kind}" for c in one.columns)


def anomaly_rows() -> Iterable[tuple[str, ...]]:
    audited = {anomaly.name for anomaly in AUDIT_ANOMALIES}
    for anomaly in ANOMALIES.values():
        cases = [number for number, names in JEPSEN.items() if anomaly.name in names]
        yield (
            anomaly.check,
            f"`{anomaly.name}`",
            anomaly.what,
            "legal" if anomaly.is_legal else "violation",
            "yes" if anomaly.name in MUTATIONS else "",
            ", ".join(cases),
            "yes" if anomaly.name in audited else "",
        )


def audit_rows() -> Iterable[tuple[str, ...]]:
    return [(f"`{a.name}`", a.what) for a in AUDIT_ANOMALIES if a.name not in ANOMALIES]


def check_rows() -> Iterable[tuple[str, ...]]:
    for check in CHECKS:
        yield check.name, check.what, ", ".join(check.needs) or "always"


def class_rows() -> Iterable[tuple[str, ...]]:
    """Yield the classes, and the seeds with which chance finds their switches."""
    rows = json.loads(SWITCHES.read_text(encoding="utf-8"))["table"]
    chance = {cells[0]: cells[-1] for cells in rows}
    for one in CLASSES:
        found = "; ".join(f"`{name}`: {chance[f'`{name}`']}" for name in one.switches)
        yield one.what, one.seen_by, found or "none yet"


def switch_table() -> str:
    """Return the findings of the last trial of the switches."""
    kept = json.loads(SWITCHES.read_text(encoding="utf-8"))
    heads, *rows = kept["table"]
    return table(heads, rows)


def jepsen_cases() -> list[tuple[str, str]]:
    """Return (number, sentence) of each test of test_jepsen_cases.py, in order."""
    text = (FOLDER / "test_jepsen_cases.py").read_text(encoding="utf-8")
    found = re.findall(r"^def test_(\d\d)_(\w+)", text, re.MULTILINE)
    return [(number, name.replace("_", " ")) for number, name in found]


def jepsen_rows() -> Iterable[tuple[str, ...]]:
    return jepsen_cases()


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


def measure() -> int:
    """Print plants and findings, and return the number of failures."""
    legal = (History.of(ModelCluster(seed).recorder) for seed in range(HISTORIES))
    alarms = sum(not judge(history).is_clean for history in legal)
    print(f"legal histories: {HISTORIES}, false alarms: {alarms}")
    missed = 0
    for name in ANOMALIES:
        if name in MUTATIONS:
            planted, found = plant_and_judge(name, MUTATED)
            missed += planted - found
            print(f"{name:24} planted {planted:3} found {found:3}")
    return alarms + missed


def plant_and_judge(name: str, times: int) -> tuple[int, int]:
    """Return (planted, found by the right name), each in another history."""
    found = [name in judge(edit.history()).names() for _, edit in mutated(name, times)]
    return len(found), sum(found)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        sys.exit(measure())
    PAGE.write_text(page(), encoding="utf-8")
    print("written:", PAGE.name)
