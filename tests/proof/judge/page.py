"""docs/judge.md, made from the code: `.venv/bin/python -m tests.proof.judge.page` writes it anew.

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
# The meaning of columns with names that do not say it.
MEANINGS = {
    "attempts": "commit calls, or requests, that were seen",
    "call": "number of the poll call, of its recorder",
    "is_compacted": "1: cleanup.policy=compact",
    "isolation": "0 read_uncommitted, 1 read_committed",
    "outcome": "0 ok, 1 fail (certainly not), 2 info (not known)",
    "seed": "of the schedule that made the fault",
}


def page() -> str:
    schema = "\n".join(_table_section(name) for name in TABLES)
    meanings = table(("column", "meaning"), [(f"`{k}`", v) for k, v in MEANINGS.items()])
    return f"""# The judge

`oncelog check RUN` judges what clients recorded during a run; `oncelog check TOPIC --bootstrap
HOST:PORT` audits a live topic of any Kafka-compatible cluster by its raw batches; `oncelog check
DIR` judges the files of a cluster (raw logs, replicas, files beside the logs). Exit code 0: no
promise was broken. `--evidence` prints all that is known of a case, `--format json` everything for
programs, `--only J3` chooses among the checks, `--catalogue` lists what is looked for. It needs
`pip install '.[check]'` in a checkout.

This page is made from the code by `.venv/bin/python -m tests.proof.judge.page`, and a test keeps
it true.

## What is looked for, and who judges the judge

Every violation is *planted*: a legal history of a model (tests/proof/judge/model_cluster.py) is
falsified in one place by chance, and the judge must name the anomaly. Legal histories of the same
model must raise no alarm. *Jepsen*: the numbers of the cases of Jepsen's tests of its own Kafka
checker that speak of the anomaly, told anew in tests/proof/judge/test_jepsen_cases.py with the
same verdicts. *Audit*: `oncelog check TOPIC` looks for it, too. Full size (500 legal histories, 50
of each kind planted): `.venv/bin/python -m tests.proof.judge.page --measure`.

{table(("check", "anomaly", "what it is", "verdict", "planted", "Jepsen", "audit"), anomaly_rows())}
Only an audit can see the next three, since it reads under both isolation levels:

{table(("anomaly", "what it is"), audit_rows())}
Legal are findings that Kafka promises nothing about: writers are not isolated from one another, so
other values stand between those of a transaction, and transactions precede each other in turns.
Gaps in offsets (markers, aborted records) and partitions of one transaction that become visible at
different moments are not findings at all.

### Jepsen's cases

{table(("case", "what is shown"), jepsen_rows())}
16 is about how far readers are behind, which is no promise; 24 is a measurement of speed:
`.venv/bin/python -m tests.proof.judge.speed 10000000`. Jepsen's
verdicts rest on operations; ours on transactions and records, so two things are stricter here. A
failed value that a reader got is G1a also when the reader's own transaction failed afterwards. A
value that nobody sent is a finding (`phantom-read`), not an error of the checker. One thing is told
otherwise: Jepsen forgives sends out of order after a consumer's assignment changed; here that is
what a producer's `session` is for.

## Bug switches

A run without findings proves nothing unless a bug would have been found. So bugs are put into the
code of the brokers (tests/switches/), one at a time, and each must be found under its right name.
They are patches that a test installs; a released broker has no switch. Each is played in a scenario
that meets it, with the bug and without, by `.venv/bin/python -m tests.switches`, which prints this
table; `--write` keeps it, `--processes` plays on real processes instead of in the simulation. In
each build some have their turn in both; `.venv/bin/python -m pytest -m chaos tests/switches` tries
them all.

{switch_table()}
*seeds*: with how many of them it was caught (a scenario of Raft tries up to 60 histories each);
*s*: the longest play, with its verdict; *without it*: what was found in the same scenario, with the
same seeds, without the bug; *by chance*: which seed of random simulation finds it, of seeds that
nothing was tuned on, and after how many seconds of the processor (`--chance S`): a measure of the
simulation, and no proof. Where a shape is named the seeds have that one (docs/simulation.md), else
their own; `raft` is the simulation of Raft alone. The scenario `random` is that simulation itself.

### Ten classes of bugs

Of bugs that were found in Kafka-like systems in 2025 and 2026 these are the classes, with what sees
each of them here; `tests/proof/judge/bug_classes.py`.

{table(("class", "seen by", "switch: by chance"), class_rows())}
## The checks

{table(("check", "promise", "judged when there are rows in one of"), check_rows())}
A check that has nothing to judge says so; it never counts as passed.

Cycles (J9) need no search. Each transaction has a time, its commit call; a value is read after its
writer's commit call (A2) and before its reader's, so edges from writers to readers go forward in
time, as does the order of real time, and no circle can close. Only edges that do not go forward
are searched.

## How a run is recorded

`proof/judge/history/recorder.py` needs only the standard library. Any number of processes may
record into one run at once: `Recorder.open(RUN)` takes the next free folder
`RUN/history/NNNN`, whose number makes its process,
transaction and value numbers differ from all others. Rows have a fixed
width and are packed into a mapped file: about 3 us each, no system call, and nothing is lost when
the process is killed. A row is written *before* its request leaves, with the outcome `info`, and
completed in place; so what a killed client was doing is in the history, with its outcome unknown.
Memory is bounded by the rows that are under way. `seal(RUN)` (`proof/judge/history/files.py`)
turns the rows into Parquet, names as strings; sealed and unsealed runs are judged alike. A
simulation records with
`Recorder.in_memory(clock_ns=...)` and judges `History.of(recorder)`.

At the end `scan_topics` (`proof/judge/logs/scan.py`) reads everything once more under
read_committed (`scan`, `ends`), `dump_logs` takes the batch headers of all replicas and looks at
the files beside the logs (`batches`, `ends`, `file_findings`); `committed`, `decisions`, `probes`
and `survivors` go in by `Recorder.add`. `RUN/run.json` may hold `scan_interval_ms` (the
coordinators' scan for timeouts), `is_at_rest` (false: open transactions are no finding) and
`keeps_all` (true: no log may begin above 0).

What an error says of an operation (ok, fail, info) is decided in one place:
`proof/judge/history/outcomes.py`.

Rules that recorders keep:
- A *process* is one incarnation of one client and does one thing after another. When it may be
  broken, a new one is made.
- All times are nanoseconds of CLOCK_MONOTONIC (a simulation: of its own clock); -1 is "none",
  "never", "not known". `commit_invoked_ns` is taken before the commit call, `returned_ns` after the
  poll call.
- A *value* is an integer that is sent once in the whole history. What is tried again after a
  failure gets a new value.
- A consumer's *session* changes when it is assigned, subscribed, rebalanced or sought elsewhere. It
  does not change when the consumer goes back to where its own failed transaction began: there the
  next poll has to begin. A producer's session changes when it is made anew.
- A partition is called `topic/number`; `transaction` -1 is a plain operation.

## The schema

Columns end in their types: i1, i2, i4, i8 are signed integers of so many bytes, `name` is a string.
What a name does not tell:

{meanings}
{schema}"""


def _table_section(name: str) -> str:
    one = TABLES[name]
    columns = ", ".join(f"`{c.name}` {c.kind}" for c in one.columns)
    return f"**{name}**: {one.what}.\n{columns}\n"


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
    """Print plants and findings; return the number of failures."""
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
    """Return (planted, found by the right name); each in another history."""
    found = [name in judge(edit.history()).names() for _, edit in mutated(name, times)]
    return len(found), sum(found)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        sys.exit(measure())
    PAGE.write_text(page(), encoding="utf-8")
    print("written:", PAGE.name)
