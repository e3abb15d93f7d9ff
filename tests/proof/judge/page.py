"""Write docs/judge.md from the code with `.venv/bin/python -m tests.proof.judge.page`.

With --measure the program plants every anomaly fifty times, judges five hundred legal histories,
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
    "call": "the number of the poll call in its recorder",
    "is_compacted": "1: cleanup.policy=compact",
    "isolation": "0 read_uncommitted, 1 read_committed",
    "outcome": "0 ok, 1 fail (it certainly did not happen), 2 info (unknown)",
    "seed": "the seed of the schedule that made the fault",
}


def page() -> str:
    schema = table(("table", "its rows", "columns"), schema_rows())
    meanings = table(("column", "meaning"), [(f"`{k}`", v) for k, v in MEANINGS.items()])
    return f"""# The judge

The judge checks whether a cluster kept Kafka's promises: no record is lost, doubled or out of
order, and transactions are atomic. `oncelog check` runs it on three kinds of input:

- `oncelog check RUN` judges the operations that clients recorded during a run.
- `oncelog check TOPIC --bootstrap HOST:PORT` audits the raw batches of a live topic of any
  Kafka-compatible cluster.
- `oncelog check DIR` judges the files of a cluster: raw logs, replicas, and files beside the logs.

Exit code 0 means that no promise was broken, 1 that one was, and 2 that nothing was judged.
`--evidence` prints everything that is known about a violation, and `--format json` prints it for
programs. `--only J3` runs a single check, and `--catalogue` lists all anomalies. In a checkout the
command needs `pip install '.[check]'`.

This page is made from the code by `.venv/bin/python -m tests.proof.judge.page`, and a test checks
that it is up to date.

## Anomalies, and the tests of the judge

An anomaly is a kind of violation. The judge itself is tested in two ways. Legal histories of a
model (tests/proof/judge/model_cluster.py) must raise no alarm. Then a legal history is changed in
one random place, and the judge must report the right anomaly. This command runs the full test with
500 legal histories and 50 changed ones of each kind:
`.venv/bin/python -m tests.proof.judge.page --measure`.

In the table, a *value* is a record that is sent once in the whole history. Three columns need an
explanation:

- *planted*: the anomaly was planted in histories, and the judge found it. This is so for every
  violation.
- *Jepsen*: the numbers of the cases about this anomaly in Jepsen's tests of its own Kafka checker.
  The file tests/proof/judge/test_jepsen_cases.py has these cases in this project's terms, with the
  same verdicts.
- *audit*: `oncelog check TOPIC` detects this anomaly, too.

{table(("check", "anomaly", "what it is", "verdict", "planted", "Jepsen", "audit"), anomaly_rows())}
Only an audit detects the next three, since it reads with both isolation levels:

{table(("anomaly", "what it is"), audit_rows())}
A *legal* finding breaks no promise of Kafka. In Kafka, producers are not isolated from one another.
So values of other producers may be between the values of a transaction, and each of two
transactions may have a value before a value of the other.

Two things are not findings at all: gaps in offsets (from markers and aborted records), and
partitions of a transaction that become visible at different moments.

### Jepsen's cases

The names of the tests say what each case shows:

{table(("case", "what is shown"), jepsen_rows())}
Two cases are missing. Case 16 is about the lag of readers, which Kafka does not promise. Case 24
measures speed: `.venv/bin/python -m tests.proof.judge.speed 10000000`.

Jepsen judges operations, and this judge judges transactions and records. So two verdicts are
stricter here:

- If a reader got a value of a failed transaction, the anomaly is G1a, even if the reader's own
  transaction failed afterwards.
- A value that was never sent is a finding (`phantom-read`), not an error of the checker.

One verdict differs. Jepsen accepts sends out of order after a consumer's assignment has changed.
Here sends must be in order as long as the producer is the same object (its `session`).

## Bug switches

A run without findings proves something only if the judge would have found a bug. So tests add bugs
to the code of the brokers (tests/switches/), one at a time, and the judge must report each under
its expected name. A *switch* is such a bug. It is a patch that a test installs; a released broker
has no switches.

Each bug has a scenario that triggers it. The scenario runs with the bug and without:

- `.venv/bin/python -m tests.switches` runs all scenarios in the simulation, and prints this table.
- `--write` saves the table, and `--processes` uses real processes.
- Each build runs some of the scenarios, in the simulation and on real processes.
- `.venv/bin/python -m pytest -m chaos tests/switches` runs all of them.

{switch_table()}
The columns mean:

- *seeds*: the number of seeds with which the bug was found, of all seeds. A scenario of Raft tries
  up to 60 histories for a seed.
- *s*: the time of the longest run in seconds, including the verdict.
- *without it*: the findings of the same scenario and seeds in the original code, without the bug.
- *by chance*: the seed with which a random simulation finds the bug, and the CPU seconds until then
  (`--chance S`). The simulation was not tuned for these seeds. This column measures the simulation,
  not the judge.

A name before the seed is the shape of the simulation, a set of settings (docs/simulation.md).
Without a name, each seed has its own shape. The shape `raft` is the simulation of Raft alone. The
scenario `random` is the random simulation itself.

### Ten classes of bugs

These classes of bugs were found in Kafka-like systems in 2025 and 2026. The second column names the
check that detects them here. The list is in `tests/proof/judge/bug_classes.py`.

{table(("class", "detected by", "switch: by chance"), class_rows())}
## The checks

{table(("check", "promise", "judged when there are rows in one of"), check_rows())}
If a check has no rows to judge, the report says so, and the check does not count as passed.

J9 finds cycles of transactions without searching the whole graph. An edge leads from a transaction
to each transaction that read its values. A value is read after the commit call of its writer (A2),
and before the commit call of its reader. So edges go forward in the time of the commit calls, and
cannot form a cycle. Only edges that do not go forward are searched.

## How a run is recorded

Clients record their operations with `proof/judge/history/recorder.py`, which needs only the
standard library. Any number of processes may record into one run at the same time. Each process
calls `Recorder.open(RUN)`, which creates the next folder `RUN/history/NNNN`. The number of the
folder makes the numbers of processes, transactions and values unique in the run.

Rows have a fixed width and are packed into a memory-mapped file. Writing a row takes about 3 us and
no system call, and no row is lost when the process is killed. The recorder writes a row *before*
its request is sent, with the outcome `info`, and completes it in place. So the last request of a
killed client is in the history, with an unknown outcome. The memory is limited by the number of
incomplete rows.

At the end, `seal(RUN)` (`proof/judge/history/files.py`) converts the rows to Parquet, with names as
strings. Sealed and unsealed runs get the same verdict. A simulation records with
`Recorder.in_memory(clock_ns=...)` and judges `History.of(recorder)`.

After the run, the state of the cluster is recorded:

- `scan_topics` (`proof/judge/logs/scan.py`) reads everything with read_committed, into the tables
  `scan` and `ends`.
- `dump_logs` reads the batch headers of all replicas, and the files beside the logs, into the
  tables `batches`, `ends` and `file_findings`.
- `Recorder.add` fills the other tables: `committed`, `decisions`, `probes`, `survivors`.

The file `RUN/run.json` may have three settings:

- `scan_interval_ms`: the interval at which the coordinators look for expired transactions.
- `is_at_rest`: if false, open transactions are not a finding.
- `keeps_all`: if true, every log must begin at offset 0.

One file, `proof/judge/history/outcomes.py`, decides what an error means for its operation (ok,
fail, info).

Recorders follow these rules:

- A *process* is a client object from its creation to its end, and does one thing after another. A
  client that may be broken is replaced by a new process.
- All times are nanoseconds of CLOCK_MONOTONIC, or of a simulation's own clock. The value -1 means
  "none", "never" or "unknown". The time `commit_invoked_ns` is taken before the commit call, and
  `returned_ns` after the poll call.
- A *value* is an integer that is sent once in the whole history. When an application repeats a
  failed transaction, it sends new values.
- A consumer's *session* changes with an assignment, a subscription, a rebalance and a seek to
  another offset. It does not change when the consumer seeks back to the start of its own failed
  transaction, because the next poll must begin there. A producer's session changes when a new
  producer is created.
- A partition is called `topic/number`. The `transaction` -1 means an operation outside of
  transactions.

## The schema

The type follows the name of each column. i1, i2, i4 and i8 are signed integers of 1, 2, 4 and 8
bytes, and `name` is a string. These columns need an explanation:

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
    """Yield each class of bugs, the checks that detect it, and seeds with which chaos finds it."""
    rows = json.loads(SWITCHES.read_text(encoding="utf-8"))["table"]
    chance = {cells[0]: cells[-1] for cells in rows}
    for one in CLASSES:
        found = "; ".join(f"`{name}`: {chance[f'`{name}`']}" for name in one.switches)
        yield one.what, one.seen_by, found or "none yet"


def switch_table() -> str:
    """Return the table of the findings of the last trial of each switch (a deliberate bug)."""
    kept = json.loads(SWITCHES.read_text(encoding="utf-8"))
    heads, *rows = kept["table"]
    return table(heads, rows)


def jepsen_cases() -> list[tuple[str, str]]:
    """Return the number and a sentence of each test in test_jepsen_cases.py, in order."""
    text = (FOLDER / "test_jepsen_cases.py").read_text(encoding="utf-8")
    found = re.findall(r"^def test_(\d\d)_(\w+)", text, re.MULTILINE)
    return [(number, name.replace("_", " ")) for number, name in found]


def jepsen_rows() -> Iterable[tuple[str, ...]]:
    return jepsen_cases()


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


def measure() -> int:
    """Print how many planted anomalies are found, and return the number of failures."""
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
    """Plant an anomaly in histories, and return how many there are and how many are found."""
    found = [name in judge(edit.history()).names() for _, edit in mutated(name, times)]
    return len(found), sum(found)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        sys.exit(measure())
    PAGE.write_text(page(), encoding="utf-8")
    print("written:", PAGE.name)
